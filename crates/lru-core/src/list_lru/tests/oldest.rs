//! `isolate_oldest` beside a walk that makes the same decisions.
//!
//! proptest draws the items and the decisions; both ways must leave the same lists and return the
//! same items in the same order. A decision that is added to [`Pick`](crate::Pick) is added to
//! both.

use super::{item, numbers, Item};
use crate::{Isolated, ListLru, Memcg, MemcgTree, NodeId, Pick};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::Cell;
use proptest::prelude::*;

const N0: NodeId = NodeId::ZERO;

/// Returns a list with the items `0..n`, in that order.
fn filled(n: usize) -> (MemcgTree, ListLru<Item>, Vec<Arc<Item>>) {
    let (tree, lru) = (MemcgTree::default(), ListLru::new());
    let items: Vec<_> = (0..n).map(item).collect();
    items.iter().for_each(|it| lru.add(it.clone(), tree.root(), N0).unwrap());
    (tree, lru, items)
}

/// Makes the same decisions in a walk, which is the plain form of `isolate_oldest`.
fn isolate_by_walk(
    lru: &ListLru<Item>,
    memcg: &Memcg,
    nr_to_walk: &mut u64,
    mut pick: impl FnMut(&Item) -> Pick,
) -> [Isolated<Item>; 2] {
    let (mut first, mut second) = (Isolated::new(), Isolated::new());
    lru.walk_one(memcg, N0, nr_to_walk, |it| match pick(it.item()) {
        Pick::First => it.isolate(&mut first),
        Pick::Second => it.isolate(&mut second),
        Pick::Rotate => it.rotate(),
    });
    [first, second]
}

/// A decision for each item by its number, and for more items than a test has.
fn picks() -> impl Strategy<Value = Vec<Pick>> {
    let pick = prop_oneof![Just(Pick::First), Just(Pick::Second), Just(Pick::Rotate)];
    prop::collection::vec(pick, 64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

    #[test]
    fn isolate_oldest_equals_a_walk_with_the_same_decisions(
        n in 0..20_usize,
        rounds in prop::collection::vec((0..30_u64, picks()), 1..4),
    ) {
        let (tree, lru, _items) = filled(n);
        let (twin_tree, twin, _twins) = filled(n);
        for (budget, picks) in rounds {
            let by = |shown: &mut Vec<usize>, it: &Item| {
                shown.push(it.number);
                picks[it.number]
            };
            let (mut shown, mut twin_shown) = (Vec::new(), Vec::new());
            let (mut left, mut twin_left) = (budget, budget);
            let out = lru.isolate_oldest(tree.root(), N0, &mut left, |it| by(&mut shown, it));
            let twin_out = isolate_by_walk(&twin, twin_tree.root(), &mut twin_left, |it| by(&mut twin_shown, it));
            lru.assert_valid();
            prop_assert_eq!(shown, twin_shown);
            prop_assert_eq!(left, twin_left);
            let order = |list: Isolated<Item>| list.map(|it| it.number).collect::<Vec<_>>();
            prop_assert_eq!(out.map(order), twin_out.map(order));
            prop_assert_eq!(numbers(&lru, tree.root(), N0), numbers(&twin, twin_tree.root(), N0));
        }
    }
}

#[test]
fn isolated_items_can_be_added_again_and_are_counted() {
    let (tree, lru, items) = filled(5);
    let pick = |it: &Item| if it.number & 1 == 0 { Pick::First } else { Pick::Second };
    let [mut even, mut odd] = lru.isolate_oldest(tree.root(), N0, &mut 4, pick);
    assert_eq!((even.len(), odd.len(), lru.count_node(N0)), (2, 2, 1));
    assert!(items[..4].iter().all(|it| lru.del(it).is_none()), "they are on no list of the `ListLru`");
    lru.add_batch(&mut odd, tree.root(), N0).unwrap();
    lru.add_batch(&mut even, tree.root(), N0).unwrap();
    assert_eq!(numbers(&lru, tree.root(), N0), [4, 1, 3, 0, 2]);
    lru.assert_valid();
}

#[test]
#[cfg_attr(panic = "abort", ignore = "it catches a panic")]
fn a_panic_leaves_the_item_and_drops_those_before() {
    let (tree, lru, items) = filled(5);
    let isolate = core::panic::AssertUnwindSafe(|| {
        lru.isolate_oldest(tree.root(), N0, &mut 9, |it| match it.number {
            0 => Pick::First,
            1 => Pick::Rotate,
            2 => Pick::Second,
            _ => panic!("the callback's own fault"),
        })
    });
    assert!(std::panic::catch_unwind(isolate).is_err());
    lru.assert_valid();
    assert_eq!(numbers(&lru, tree.root(), N0), [3, 4, 1]);
    let counts: Vec<_> = items.iter().map(Arc::strong_count).collect();
    assert_eq!(counts, [1, 2, 1, 2, 2], "the isolated ones were dropped");
}

#[test]
fn the_cursor_of_a_walk_stays_where_it_is() {
    let (tree, lru, items) = filled(4);
    let shown = Cell::new(0);
    let mut seen = Vec::new();
    lru.walk_one(tree.root(), N0, &mut 100, |it| {
        seen.push(it.item().number);
        if shown.replace(shown.get() + 1) != 1 {
            return it.skip();
        }
        // The walk is at item 1, and the list's lock is free until `retry`.
        let unlocked = it.unlock();
        let [out, rest] = lru.isolate_oldest(tree.root(), N0, &mut 3, |it| match it.number {
            0 => Pick::Rotate,
            _ => Pick::First,
        });
        lru.assert_valid();
        assert_eq!((out.map(|it| it.number).collect::<Vec<_>>(), rest.len()), (Vec::from([1, 2]), 0));
        unlocked.retry()
    });
    assert_eq!(seen, [0, 1, 3, 0], "the walk goes on behind its cursor");
    assert_eq!(items.iter().filter(|it| lru.del(it).is_some()).count(), 2);
    lru.assert_valid();
}

#[test]
fn l13_a_rotated_item_is_not_shown_again_behind_a_cursor() {
    let (tree, lru, _items) = filled(4);
    lru.walk_one(tree.root(), N0, &mut 3, |it| {
        if it.item().number != 2 {
            return it.skip();
        }
        let unlocked = it.unlock();
        let (mut shown, mut left) = (Vec::new(), 100);
        lru.isolate_oldest(tree.root(), N0, &mut left, |it| {
            shown.push(it.number);
            Pick::Rotate
        });
        assert_eq!((shown, left), (Vec::from([0, 1, 2, 3]), 96));
        unlocked.stop()
    });
    lru.assert_valid();
}

#[test]
fn all_shards_of_a_split_list_give_items() {
    let (tree, lru) = (MemcgTree::default(), ListLru::<Item>::new());
    let group = tree.root().create("g").unwrap();
    drop(lru.prepare(&group, N0).unwrap());
    assert!(lru.split_now(&group, N0));
    for n in 0..40 {
        crate::list_lru::shards::set_cpu_hint(n % 2);
        lru.add(item(n), &group, N0).unwrap();
    }
    let mut left = 30;
    let [some, _] = lru.isolate_oldest(&group, N0, &mut left, |_| Pick::First);
    assert_eq!((some.len(), left, lru.count_one(&group, N0)), (30, 0, 10));
    let numbers: Vec<_> = some.map(|it| it.number).collect();
    assert!((0..2).all(|shard| numbers.iter().any(|n| n % 2 == shard)), "{numbers:?}");
    lru.assert_valid();
}

#[test]
fn items_of_a_dead_group_are_taken_once() {
    let (tree, lru) = (MemcgTree::default(), ListLru::<Item>::new());
    let group = tree.root().create("g").unwrap();
    (0..3).for_each(|n| lru.add(item(n), &group, N0).unwrap());
    group.offline().unwrap();
    let (mut left, visited) = (10, Cell::new(0));
    let count = |_: &Item| {
        visited.set(visited.get() + 1);
        Pick::First
    };
    let ([own, _], own_left) = (lru.isolate_oldest(&group, N0, &mut left, count), left);
    let [parents, _] = lru.isolate_oldest(tree.root(), N0, &mut left, count);
    assert_eq!(own.len() + parents.len(), 3);
    assert_eq!((left, visited.get()), (10 - 3, 3), "after the first call {own_left}");
    assert_eq!(lru.count_node(N0), 0);
    lru.assert_valid();
}
