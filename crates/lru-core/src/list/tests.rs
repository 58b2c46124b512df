//! Links in slots, without a `ListLru` around them.
//!
//! The units under test are `RawList` with its prefetch cursor, by fixed sequences, and `RawQueue`,
//! by random sequences compared with a plain deque. `list_lru/tests/slots.rs` has random sequences
//! for lists.
//!
//! A new operation of the queue is added to the random sequences.

use super::tail_and_prefetch::TailAndPrefetch;
use super::test_arena::{in_arena, Arena, ArenaSlot};
use super::{CompressedLinks, Handle, LinkLayout, LinkNode, LinkRef, Linked, RawList, RawQueue};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use proptest::prelude::*;

struct Thing {
    number: usize,
    links: CompressedLinks,
}

in_arena!(Thing { links });

const LAYOUT: &LinkLayout = Thing::LAYOUT;

/// A number of things as link nodes, which own them.
struct Things {
    nodes: Vec<LinkNode>,
    _arena: Arena<Thing>,
}

impl Things {
    fn new(count: usize) -> Self {
        let arena = Arena::new();
        let node = |number| {
            let thing = Thing { number, links: CompressedLinks::new() };
            let thing = arena.alloc(thing);
            assert_eq!(thing.number, number);
            // SAFETY: `into_raw` returns a pointer to a live object.
            let links = unsafe { Thing::links(thing.into_raw()) };
            // SAFETY: the links are those of a `Thing`, and derive from the pointer that `into_raw`
            // returned.
            unsafe { LAYOUT.node(links) }
        };
        Self { nodes: (0..count).map(node).collect(), _arena: arena }
    }
}

impl Drop for Things {
    fn drop(&mut self) {
        for node in &self.nodes {
            // SAFETY: the links are those of a live `Thing`.
            let thing = unsafe { Thing::from_links(node.at) };
            // SAFETY: `into_raw` returned this pointer, and it is taken back once.
            drop(unsafe { ArenaSlot::from_raw(thing) });
        }
    }
}

/// Returns the list's items, as indices into the things.
fn places(things: &Things, list: &RawList) -> Vec<usize> {
    let (mut places, mut by) = (Vec::new(), list.first());
    while !by.is_none() {
        places.push(things.nodes.iter().position(|node| node.by == by).unwrap());
        // SAFETY: `by` is on the list.
        let at = unsafe { LAYOUT.get(by) };
        // SAFETY: `at` is on the list, to which only this test has access.
        by = unsafe { LAYOUT.next(at) };
    }
    places
}

#[test]
#[cfg(target_pointer_width = "64")]
fn each_append_prefetches_one_more_item_until_the_last() {
    let things = Things::new(10);
    let mut list = RawList::new();
    let prefetch_cursor = |list: &RawList| things.nodes.iter().position(|node| node.by == list.prefetch_cursor(LAYOUT));
    for node in &things.nodes[..6] {
        // SAFETY: the links are live and on no list, and only this test has access.
        unsafe { list.push_back(LAYOUT, *node) };
        assert_eq!(prefetch_cursor(&list), None, "there was no walk yet");
    }
    // SAFETY: the links are on the list.
    unsafe { list.expect(LAYOUT, list.first()) };
    assert_eq!(prefetch_cursor(&list), Some(0));
    // SAFETY: the links are live and on no list, and only this test has access.
    unsafe { list.push_back(LAYOUT, things.nodes[6]) };
    assert_eq!(prefetch_cursor(&list), Some(1));
    for gone in [0, 1, 2] {
        // SAFETY: the links are on the list, and only this test has access.
        let pushed = unsafe { list.remove(LAYOUT, things.nodes[gone].at) };
        assert_eq!(pushed, things.nodes[gone].by);
        assert_eq!(prefetch_cursor(&list), Some([1, 2, 3][gone]), "which is on the list");
    }
    for (at, expected) in [(0, Some(4)), (1, Some(5)), (2, Some(6)), (7, Some(0)), (8, Some(1)), (9, Some(2))] {
        // SAFETY: the links are live and on no list, and only this test has access.
        unsafe { list.push_back(LAYOUT, things.nodes[at]) };
        assert_eq!(prefetch_cursor(&list), expected);
    }
    assert_eq!(places(&things, &list), [3, 4, 5, 6, 0, 1, 2, 7, 8, 9]);
    for gone in [7, 8] {
        // SAFETY: the links are on the list, and only this test has access.
        unsafe { list.remove(LAYOUT, things.nodes[gone].at) };
    }
    // SAFETY: the links are live and on no list, and only this test has access.
    unsafe { list.push_back(LAYOUT, things.nodes[7]) };
    assert_eq!(prefetch_cursor(&list), Some(9));
    // SAFETY: the links are live and on no list, and only this test has access.
    unsafe { list.push_back(LAYOUT, things.nodes[8]) };
    assert_eq!(prefetch_cursor(&list), Some(7));
    // SAFETY: the links are on the list, and only this test has access.
    unsafe { list.remove(LAYOUT, things.nodes[8].at) };
    // SAFETY: the links are live and on no list, and only this test has access.
    unsafe { list.push_back(LAYOUT, things.nodes[8]) };
    assert_eq!(prefetch_cursor(&list), None, "an item added last needs no prefetch");
    // SAFETY: only this test has access to the list.
    unsafe { list.assert_valid(LAYOUT, 10) };
}

#[test]
fn a_splice_keeps_the_prefetch_cursor_of_the_target() {
    let things = Things::new(6);
    let (mut list, mut other) = (RawList::new(), RawList::new());
    for (at, node) in things.nodes.iter().enumerate() {
        // SAFETY: the links are live and on no list, and only this test has access.
        unsafe { if at < 3 { &mut list } else { &mut other }.push_back(LAYOUT, *node) };
    }
    // SAFETY: the links are on `list`.
    unsafe { list.expect(LAYOUT, things.nodes[1].by) };
    // SAFETY: the links are on `other`.
    unsafe { other.expect(LAYOUT, things.nodes[4].by) };
    // SAFETY: only this test has access to the lists, which have the same layout.
    unsafe { list.splice_front(LAYOUT, &mut other) };
    assert_eq!(places(&things, &list), [3, 4, 5, 0, 1, 2]);
    assert!(other.first().is_none() && other.tail.prefetch_cursor(LAYOUT).is_none());
    if cfg!(target_pointer_width = "64") {
        assert_eq!(list.tail.prefetch_cursor(LAYOUT), things.nodes[1].by);
    }
    // SAFETY: only this test has access to the list.
    unsafe { list.assert_valid(LAYOUT, 6) };
}

#[test]
fn links_by_address_have_no_prefetch_cursor() {
    let mut tail = TailAndPrefetch::NONE;
    tail.set_prefetch_cursor(LinkLayout::ANYWHERE, LinkRef::of_number(7));
    assert!(tail.prefetch_cursor(LinkLayout::ANYWHERE).is_none() && tail.last(LinkLayout::ANYWHERE).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    /// Pushes to one of two queues, pops, or prepends the other queue to the first.
    #[test]
    fn a_queue_equals_its_model(ops in prop::collection::vec(0..4_u8, 1..60)) {
        let things = Things::new(ops.len());
        let (mut queue, mut other) = (RawQueue::new(), RawQueue::new());
        let (mut model, mut other_model) = (VecDeque::new(), VecDeque::new());
        for (op, node) in ops.into_iter().zip(&things.nodes) {
            match op {
                0 => {
                    // SAFETY: the links are live and on no list, and only this test has access.
                    unsafe { queue.push_back(LAYOUT, *node) };
                    model.push_back(node.by);
                }
                1 => {
                    // SAFETY: the links are live and on no list, and only this test has access.
                    unsafe { other.push_back(LAYOUT, *node) };
                    other_model.push_back(node.by);
                }
                2 => {
                    // SAFETY: only this test has access to the queue.
                    let popped = unsafe { queue.pop_front(LAYOUT) }.map(|node| node.by);
                    prop_assert_eq!(popped, model.pop_front());
                }
                _ => {
                    // SAFETY: only this test has access to the queues.
                    unsafe { queue.splice_front(LAYOUT, core::mem::take(&mut other)) };
                    other_model.append(&mut model);
                    core::mem::swap(&mut model, &mut other_model);
                }
            }
            // SAFETY: everything on the queue is live.
            prop_assert_eq!(unsafe { queue.first(LAYOUT) }.map(|node| node.by), model.front().copied());
        }
        while let Some(expected) = model.pop_front() {
            // SAFETY: only this test has access to the queue.
            prop_assert_eq!(unsafe { queue.pop_front(LAYOUT) }.map(|node| node.by), Some(expected));
        }
        // SAFETY: only this test has access to the queue.
        let none = unsafe { queue.pop_front(LAYOUT) };
        prop_assert!(none.is_none(), "and nothing else");
    }
}
