//! Lists of objects in slots, whose links are slot numbers: compared with a simple queue, for any
//! sequence of calls; and walk cursors on such lists.
//!
//! Such lists are those of caches whose objects are in slots of a slab
//! ([`LinkLayout`](crate::list::LinkLayout)): their links are 32-bit numbers, so a walk's cursor,
//! which is not in a slot, needs a number of its own.
//!
//! A change must ensure that one test still counts the numbers that cursors have released.

use crate::list::test_arena::{in_arena, Arena, ArenaSlot};
use crate::{AddError, CompressedLinks, Isolated, ListLru, Memcg, MemcgTree, NodeId};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ptr::NonNull;
use proptest::prelude::*;

const N0: NodeId = NodeId::ZERO;

/// Neither the size nor the offset of the links is divisible by a large power of two.
struct Item {
    number: u64,
    links: CompressedLinks,
    _more: [u64; 2],
}

in_arena!(Item { links });

fn item(arena: &Arena<Item>, number: u64) -> ArenaSlot<Item> {
    let item = Item { number, links: CompressedLinks::new(), _more: [number; 2] };
    arena.alloc(item)
}

/// Returns the item with this number that is on the list.
fn find(lru: &ListLru<Item>, memcg: &Memcg, number: u64) -> Option<NonNull<Item>> {
    let mut found = None;
    lru.walk_one(memcg, N0, &mut u64::MAX.clone(), |it| {
        if it.item().number == number {
            found = Some(NonNull::from(it.item()));
        }
        it.skip()
    });
    found
}

fn numbers(lru: &ListLru<Item>, memcg: &Memcg) -> Vec<u64> {
    let mut numbers = Vec::new();
    lru.walk_one(memcg, N0, &mut u64::MAX.clone(), |it| {
        numbers.push(it.item().number);
        it.skip()
    });
    numbers
}

#[test]
#[cfg(target_pointer_width = "64")]
fn a_walk_sets_the_prefetch_cursor_and_adds_advance_it() {
    use crate::list::{LinkLayout, Linked};
    let (tree, arena, lru) = (MemcgTree::new(1), Arena::new(), ListLru::<Item>::new());
    let layout: &LinkLayout = Item::LAYOUT;
    let memcg = tree.root();
    // The number of items before the prefetch cursor; none: the cursor is not set.
    let prefetch_cursor = || {
        let guard = crate::rcu::pin();
        let mut list = lru.raw.lock_one(memcg, N0, 0, &guard).unwrap();
        list.with_list(|list, _| {
            let (mut at, mut by) = (0, list.first());
            while by != list.prefetch_cursor(layout) {
                // SAFETY: `by` is on the list, since otherwise the search would have ended at none.
                let item = unsafe { layout.get(by) };
                // SAFETY: `item` is on the list, and the list's lock is held.
                by = unsafe { layout.next(item) };
                at += 1;
            }
            (!by.is_none()).then_some(at)
        })
    };
    (0..10).for_each(|number| lru.add(item(&arena, number), memcg, N0).unwrap());
    assert_eq!(prefetch_cursor(), None, "there was no walk yet");
    let mut old = Isolated::new();
    lru.walk_one(memcg, N0, &mut 3, |it| it.isolate(&mut old));
    assert_eq!(prefetch_cursor(), Some(0));
    for number in 1..=3 {
        lru.add(item(&arena, 9 + number), memcg, N0).unwrap();
        assert_eq!(prefetch_cursor(), Some(number), "one more with each");
    }
    lru.walk_one(memcg, N0, &mut 2, |it| it.rotate());
    assert_eq!(prefetch_cursor(), Some(0), "it begins again");
    lru.walk_one(memcg, N0, &mut u64::MAX.clone(), |it| it.skip());
    assert_eq!(prefetch_cursor(), None, "all were shown");
}

#[derive(Clone, Debug)]
enum Op {
    Add,
    AddMany(usize),
    Del(usize),
    DelMany(Vec<usize>),
    Touch(usize),
    Replace(usize),
    /// A walk with a verdict for each visited item.
    Walk(Vec<Fate>),
    /// The group goes offline, its items move to the root, and a new group takes its place.
    Offline,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Isolate,
    Rotate,
    Skip,
    Remove,
    /// The same as `Remove`, so that removals are drawn twice as often as other verdicts.
    RemoveAndGoOn,
    Stop,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let fate = prop_oneof![
        Just(Fate::Isolate),
        Just(Fate::Rotate),
        Just(Fate::Skip),
        Just(Fate::Remove),
        Just(Fate::RemoveAndGoOn),
        Just(Fate::Stop),
    ];
    let some = || prop::collection::vec(0..64_usize, 0..8);
    let op = prop_oneof![
        8 => Just(Op::Add),
        2 => (0..100_usize).prop_map(Op::AddMany),
        4 => (0..64_usize).prop_map(Op::Del),
        2 => some().prop_map(Op::DelMany),
        3 => (0..64_usize).prop_map(Op::Touch),
        3 => (0..64_usize).prop_map(Op::Replace),
        4 => prop::collection::vec(fate, 0..12).prop_map(Op::Walk),
        1 => Just(Op::Offline),
    ];
    prop::collection::vec(op, 0..60)
}

/// Applies the operations to a list and to a queue of numbers (`twin`), and compares both after
/// each.
fn run(ops: Vec<Op>) {
    let (tree, arena, lru) = (MemcgTree::default(), Arena::new(), ListLru::<Item>::new());
    let mut group = tree.root().create("first").unwrap();
    let (mut twin, mut taken) = (VecDeque::new(), VecDeque::new());
    let mut next = 0..;
    let mut fresh = || next.next().unwrap();
    let mut generation = 0;
    for op in ops {
        let at = |n: usize, twin: &VecDeque<u64>| (!twin.is_empty()).then(|| n % twin.len().max(1));
        match op {
            Op::Add => {
                let number = fresh();
                lru.add(item(&arena, number), &group, N0).unwrap();
                twin.push_back(number);
            }
            Op::AddMany(n) => {
                // Numbers that no other operation uses.
                let first = fresh();
                let mut many: Isolated<Item> = (0..n as u64).map(|n| item(&arena, first + 1_000_000 * n)).collect();
                assert_eq!(lru.add_batch(&mut many, &group, N0), Ok(n as u64));
                twin.extend((0..n as u64).map(|n| first + 1_000_000 * n));
            }
            Op::Del(n) => {
                let Some(n) = at(n, &twin) else { continue };
                let number = twin.remove(n).unwrap();
                let found = find(&lru, &group, number).unwrap();
                // SAFETY: the item is on the list, and no other thread removes it.
                assert_eq!(lru.del(unsafe { found.as_ref() }).unwrap().number, number);
            }
            Op::DelMany(some) => {
                let mut some: Vec<_> = some.into_iter().filter_map(|n| twin.get(n).copied()).collect();
                some.sort_unstable();
                some.dedup();
                let items: Vec<_> = some.iter().map(|&number| find(&lru, &group, number).unwrap()).collect();
                let mut to = Isolated::new();
                // SAFETY: the items are on the list, and no other thread removes them.
                let listed = items.iter().map(|item| unsafe { item.as_ref() });
                assert_eq!(lru.del_batch(listed, &mut to), some.len() as u64);
                assert!(to.map(|item| item.number).eq(some.iter().copied()));
                twin.retain(|number| !some.contains(number));
            }
            Op::Touch(n) => {
                let Some(n) = at(n, &twin) else { continue };
                let number = twin.remove(n).unwrap();
                // SAFETY: the item is on the list, and no other thread removes it.
                assert!(lru.promote(unsafe { find(&lru, &group, number).unwrap().as_ref() }));
                twin.push_back(number);
            }
            Op::Replace(n) => {
                let Some(n) = at(n, &twin) else { continue };
                let by = fresh();
                // SAFETY: the item is on the list, and no other thread removes it.
                let there = unsafe { find(&lru, &group, twin[n]).unwrap().as_ref() };
                let old = lru.replace(there, item(&arena, by)).ok().unwrap();
                assert_eq!(old.number, core::mem::replace(&mut twin[n], by));
            }
            Op::Walk(fates) => walk(&lru, &group, fates, &mut twin, &mut taken),
            Op::Offline => {
                generation += 1;
                let other = tree.root().create(&alloc::format!("g{generation}")).unwrap();
                // Items that the root has from an earlier offline would follow those of the group.
                let mut old = Isolated::new();
                lru.walk_one(tree.root(), N0, &mut u64::MAX.clone(), |it| it.isolate(&mut old));
                drop(old);
                group.offline().unwrap();
                assert!(numbers(&lru, tree.root()).into_iter().eq(twin.drain(..)), "all is the parent's (L9)");
                group = other;
            }
        }
        lru.assert_valid();
        assert!(numbers(&lru, &group).into_iter().eq(twin.iter().copied()));
        assert_eq!(lru.count_one(&group, N0), twin.len() as u64);
    }
}

/// Walks the whole list with a verdict for each item (`fates`), and applies the verdicts to the
/// queue: the skipped items come first, then those that were not visited, then the rotated ones.
fn walk(lru: &ListLru<Item>, group: &Memcg, fates: Vec<Fate>, twin: &mut VecDeque<u64>, taken: &mut VecDeque<u64>) {
    let mut isolated = Isolated::new();
    let (mut shown, mut fates) = (Vec::new(), fates.into_iter());
    let mut expected = (VecDeque::new(), VecDeque::new(), twin.clone());
    taken.clear();
    lru.walk_one(group, N0, &mut u64::MAX.clone(), |it| {
        let number = it.item().number;
        shown.push(number);
        assert_eq!(expected.2.pop_front(), Some(number), "oldest first");
        match fates.next().unwrap_or(Fate::Skip) {
            Fate::Isolate => {
                taken.push_back(number);
                it.isolate(&mut isolated)
            }
            Fate::Rotate => {
                expected.1.push_back(number);
                it.rotate()
            }
            Fate::Skip => {
                expected.0.push_back(number);
                it.skip()
            }
            Fate::Remove | Fate::RemoveAndGoOn => {
                let (handle, unlocked) = it.remove();
                assert_eq!(handle.number, number);
                unlocked.retry()
            }
            Fate::Stop => {
                expected.0.push_back(number);
                it.unlock().stop()
            }
        }
    });
    assert!(isolated.map(|item| item.number).eq(taken.iter().copied()));
    let (mut left, rotated, unseen) = expected;
    left.extend(unseen);
    left.extend(rotated);
    *twin = left;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, ..ProptestConfig::default() })]

    #[test]
    fn lists_of_slots_match_a_queue(ops in ops()) {
        run(ops);
    }
}

#[test]
fn a_slot_on_a_list_is_refused_by_other_lists() {
    let (tree, arena) = (MemcgTree::default(), Arena::new());
    let lists = [ListLru::<Item>::new(), ListLru::<Item>::new()];
    lists[0].add(item(&arena, 1), tree.root(), N0).unwrap();
    let there = find(&lists[0], tree.root(), 1).unwrap();
    // SAFETY: the item is on the list, and no other thread removes it.
    let there = unsafe { there.as_ref() };
    assert!(there.links.is_linked());
    assert!(lists[1].del(there).is_none() && !lists[1].promote(there));
    let refused = lists[1].replace(there, item(&arena, 2)).err().unwrap();
    let handle = lists[0].replace(there, refused).ok().unwrap();
    assert!(!matches!(lists[1].add(handle, tree.root(), N0), Err(AddError::Linked(_))));
    assert_eq!(lists.map(|lru| numbers(&lru, tree.root())), [[2], [1]]);
}

/// Far more walks than cursors exist at a time, so that a number that is not released is noticed.
const WALKS: u64 = if cfg!(miri) { 16 } else { 6_000 };
const ITEMS: u64 = if cfg!(miri) { 20 } else { 2_000 };

/// Walks that release the lock leave a cursor, which is registered under a number meanwhile;
/// threads that add and remove items encounter it.
#[test]
fn cursors_in_lists_of_slots_are_found_and_release_their_numbers() {
    let (tree, arena, lru) = (MemcgTree::default(), Arena::new(), ListLru::<Item>::new());
    for number in 0..ITEMS {
        lru.add(item(&arena, number), tree.root(), N0).unwrap();
    }
    let before = lowwater_base::slots::ChunkTable::numbers_made();
    std::thread::scope(|s| {
        for t in 1..3_u64 {
            let (lru, tree, arena) = (&lru, &tree, &arena);
            s.spawn(move || {
                for n in 0..WALKS / 2 {
                    lru.add(item(arena, t * 10_000 + n), tree.root(), N0).unwrap();
                    let mut removed = None;
                    lru.walk_one(tree.root(), N0, &mut 3, |it| match removed {
                        None => {
                            let (handle, unlocked) = it.remove();
                            removed = Some(handle);
                            unlocked.retry()
                        }
                        Some(_) => it.unlock().stop(),
                    });
                    assert!(removed.is_some(), "there are more than a few");
                }
            });
        }
    });
    assert_eq!(lru.count_one(tree.root(), N0), ITEMS);
    lru.assert_valid();
    assert!(
        cfg!(miri) || lowwater_base::slots::ChunkTable::numbers_made() < before + WALKS as u32 / 2,
        "each of the walks had one, one after the other"
    );
}
