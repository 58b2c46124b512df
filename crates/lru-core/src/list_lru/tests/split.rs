//! A contended list is split into shards, which are joined when contention ends; all guarantees of
//! a list hold for a split one.
//!
//! The tests split lists by hand (`split_now`) and select the shard of the current thread
//! (`set_cpu_hint`), so their results do not depend on processors or contention; one test creates
//! real contention.
//!
//! Numbers such as L13 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that the results do not depend on the machine: no test but one relies on
//! real contention.

use super::{item, numbers, Item};
use crate::list_lru::list_lru_one::ListLruOne;
use crate::list_lru::locked::Idleness;
use crate::list_lru::refusable::fault;
use crate::list_lru::shards::set_cpu_hint;
use crate::list_lru::shards::shard::Shard;
use crate::list_lru::shards::ShardSet;
use crate::list_lru::{sweep, Swept};
use crate::rcu::pin;
use crate::{Isolated, ListLru, Memcg, MemcgTree, NodeId, Occupancy, Pick};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const N0: NodeId = NodeId::ZERO;

/// Creates a group whose list was split after it got items `0..whole`; each of two shards has two
/// more items.
fn split_lists(whole: usize) -> (MemcgTree, Memcg, ListLru<Item>, Vec<Arc<Item>>) {
    let tree = MemcgTree::default();
    let group = tree.root().create("g").unwrap();
    let lru = ListLru::new();
    let items: Vec<_> = (0..whole + 4).map(item).collect();
    items[..whole].iter().for_each(|it| lru.add(it.clone(), &group, N0).unwrap());
    drop(lru.prepare(&group, N0).unwrap());
    assert!(lru.split_now(&group, N0));
    for (n, it) in items[whole..].iter().enumerate() {
        set_cpu_hint(n % 2);
        lru.add(it.clone(), &group, N0).unwrap();
    }
    lru.assert_valid();
    (tree, group, lru, items)
}

#[test]
fn contention_splits_a_list_and_sweeps_join_it() {
    let tree = MemcgTree::default();
    let group = tree.root().create("g").unwrap();
    let lru = ListLru::<Item>::new();
    let it = item(0);
    lru.add(it.clone(), &group, N0).unwrap();
    let before = lru.footprint();
    thread::scope(|s| {
        s.spawn(|| {
            while lru.shards(&group, N0) == 0 {
                lru.walk_one(&group, N0, &mut 1, |it| {
                    // With the list's lock held, so that adds of the other thread find it taken.
                    thread::sleep(core::time::Duration::from_micros(200));
                    it.skip()
                });
            }
        });
        let mine = item(1);
        while lru.shards(&group, N0) == 0 {
            lru.add(mine.clone(), &group, N0).unwrap();
            lru.del(&mine).unwrap();
        }
    });
    let shards = lru.shards(&group, N0);
    assert!(lru.footprint().get() - before.get() >= (shards * size_of::<Shard>()) as u64, "a split is counted");
    assert_eq!((numbers(&lru, &group, N0), lru.pairs()), (Vec::from([0]), 2));
    lru.assert_valid();
    sweep(tree.root());
    assert_eq!(lru.shards(&group, N0), shards, "one sweep has not seen enough of them");
    sweep(tree.root());
    assert_eq!((lru.shards(&group, N0), lru.footprint()), (0, before));
    assert_eq!(numbers(&lru, &group, N0), [0]);
    lru.assert_valid();
}

/// Once the other threads have ended, the items of the one that goes on are the youngest.
#[test]
fn l13_a_join_makes_the_items_of_the_busiest_shard_the_youngest() {
    for busiest in [0, 1] {
        let (tree, group, lru, _items) = split_lists(1);
        sweep(tree.root());
        set_cpu_hint(busiest);
        (5..9).for_each(|number| lru.add(item(number), &group, N0).unwrap());
        sweep(tree.root());
        assert_eq!(lru.shards(&group, N0), 0);
        let expected = [[0, 2, 4, 1, 3, 5, 6, 7, 8], [0, 1, 3, 2, 4, 5, 6, 7, 8]][busiest];
        assert_eq!(numbers(&lru, &group, N0), expected);
        lru.assert_valid();
    }
}

/// Returns the list to which an item is added, for a thread that found the list locked (`missed`)
/// or not.
fn locked_to_add(lru: &ListLru<Item>, memcg: &Memcg, missed: bool) -> *const ListLruOne {
    let guard = pin();
    let list = lru.raw.lock_to_add(None, memcg, N0, missed, &guard).ok().expect("the list exists");
    ptr::from_ref(list.one())
}

#[test]
fn a_list_is_split_after_64_contended_adds_between_two_sweeps() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    lru.add(item(0), tree.root(), N0).unwrap();
    // Batches are not counted.
    for _ in 0..200 {
        lru.add_batch(&mut Isolated::from_iter([item(1)]), tree.root(), N0).unwrap();
    }
    let shards_after = |misses: usize| {
        (0..misses).for_each(|_| assert!(!locked_to_add(&lru, tree.root(), true).is_null()));
        lru.shards(tree.root(), N0)
    };
    assert_eq!(shards_after(63), 0);
    sweep(tree.root());
    assert_eq!(shards_after(63), 0, "a sweep resets the count of contended locks");
    assert_ne!(shards_after(1), 0);
}

#[test]
fn a_thread_that_finds_its_shard_locked_uses_another() {
    let (_tree, group, lru, _items) = split_lists(0);
    for hint in [0, 1] {
        set_cpu_hint(hint);
        let taken = locked_to_add(&lru, &group, false);
        assert_eq!(locked_to_add(&lru, &group, false), taken);
        // The first attempt moves to another shard, unless the processor's number selects the same
        // one again.
        let other = (0..10).map(|_| locked_to_add(&lru, &group, true)).find(|&shard| shard != taken);
        assert!(other.is_some_and(|other| locked_to_add(&lru, &group, false) == other), "and stays there");
    }
}

#[test]
fn l16_a_split_adds_its_shards_and_their_set_to_the_footprint() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    lru.add(item(0), tree.root(), N0).unwrap();
    let before = lru.footprint().get();
    assert!(lru.split_now(tree.root(), N0));
    let each = size_of::<Shard>() + size_of::<*const Shard>();
    let more = size_of::<ShardSet>() + lru.shards(tree.root(), N0) * each;
    assert_eq!(lru.footprint().get() - before, more as u64);
}

#[test]
fn l16_a_list_split_before_the_sweep_locks_it_is_busy() {
    let (_tree, group, lru, _items) = split_lists(0);
    let guard = pin();
    let mut list = lru.raw.lock_one(&group, N0, 0, &guard).unwrap();
    assert_eq!(list.idleness(), Idleness::Busy, "though it is empty itself");
    drop(list);
    lru.assert_valid();
}

#[test]
fn shards_are_kept_while_more_than_one_is_used() {
    let (tree, group, lru, _items) = split_lists(0);
    sweep(tree.root());
    let busy = |hints: &[usize]| {
        let it = item(100);
        // With two hints, each shard gets more adds than `QUIET` of `shards/shard.rs`.
        for n in 0..10_000 {
            set_cpu_hint(hints[n % hints.len()]);
            lru.add(it.clone(), &group, N0).unwrap();
            lru.del(&it).unwrap();
        }
        sweep(tree.root());
        lru.shards(&group, N0) != 0
    };
    assert!(busy(&[0, 1]));
    assert!(!busy(&[1]), "a single thread needs no shards");
}

#[test]
fn a_list_has_64_bytes_and_a_shard_two_lines_of_its_own() {
    #[cfg(all(feature = "std", target_pointer_width = "64"))]
    assert_eq!((size_of::<ListLruOne>(), size_of::<ShardSet>()), (64, 256));
    assert_eq!(align_of::<ShardSet>(), 64, "walks write no line that adds read");
    assert_eq!((size_of::<Shard>(), align_of::<Shard>()), (128, 128));
}

#[test]
fn l13_a_walk_visits_of_each_shard_its_share() {
    let (_tree, group, lru, _items) = split_lists(4);
    assert_eq!(lru.count_one(&group, N0), 8, "L1");
    assert_eq!(numbers(&lru, &group, N0), [0, 1, 2, 3, 4, 6, 5, 7], "the list, then its shards");
    let shown = |nr: u64| {
        let mut shown = Vec::new();
        let mut left = nr;
        lru.walk_one(&group, N0, &mut left, |it| {
            shown.push(it.item().number);
            it.skip()
        });
        assert_eq!(left, 0, "L11");
        shown
    };
    assert_eq!(shown(4), [0, 1, 4, 5], "half of each");
    assert_eq!(shown(1), [0], "the longest list");
    assert_eq!(shown(1), [4], "its turn, as it has waited longer than the list");
    assert_eq!(shown(1), [5]);
    assert_eq!(shown(5), [0, 1, 2, 4, 5], "the next walk begins behind where the last one ended");
}

/// A thread that adds rarely has a shard with few items, beside the long shard of a busy thread.
#[test]
fn l13_an_item_alone_on_a_shard_is_not_visited_before_its_time() {
    let tree = MemcgTree::default();
    let group = tree.root().create("g").unwrap();
    let lru = ListLru::<Item>::new();
    drop(lru.prepare(&group, N0).unwrap());
    assert!(lru.split_now(&group, N0));
    let add = |number: usize, hint: usize| {
        set_cpu_hint(hint);
        lru.add(item(number), &group, N0).unwrap();
    };
    (0..800).for_each(|number| add(number, 0));
    add(usize::MAX, 1);
    let visited = (1..=200).find(|round| {
        let [out, _] = lru.isolate_oldest(&group, N0, &mut 8, |_| Pick::First);
        assert_eq!(out.len(), 8, "L11");
        (0..8).for_each(|n| add(round * 8 + n, 0));
        out.into_iter().any(|it: Arc<Item>| it.number == usize::MAX)
    });
    // In a single list it is the 801st: in round 101. With whole items, half a round earlier.
    assert!(visited.is_some_and(|round| (50..=101).contains(&round)), "{visited:?}");
}

#[test]
fn l13_a_walk_whose_items_are_removed_meanwhile_visits_others() {
    let (_tree, group, lru, items) = split_lists(4);
    // A walk of one item, during which another thread removes `removed`. Returns the numbers of the
    // visited lists and items.
    let walk = |removed: &[Arc<Item>]| {
        let (mut lists, mut shown) = (Vec::new(), Vec::new());
        let flow = lru.raw.each_share(&group, N0, &mut 1, |index, left| {
            lists.push(index);
            removed.iter().for_each(|it| drop(lru.del(it)));
            lru.raw.walk_list::<Item>(&group, N0, index, left, &mut 0, |it| {
                shown.push(it.item().number);
                it.skip()
            })
        });
        assert!(flow.is_continue());
        (lists, shown)
    };
    assert_eq!(walk(&items[..4]), (Vec::from([0, 1]), Vec::from([4])), "the list had the share");
    assert_eq!(walk(&items[4..]), (Vec::from([2]), Vec::new()), "nothing is left to visit");
    lru.assert_valid();
}

/// A shard with few items comes to be owed a visit, and its items are removed before that, again
/// and again.
#[test]
fn l13_an_item_alone_on_the_list_is_not_visited_in_place_of_removed_items() {
    let tree = MemcgTree::default();
    let group = tree.root().create("g").unwrap();
    let lru = ListLru::<Item>::new();
    lru.add(item(usize::MAX), &group, N0).unwrap();
    assert!(lru.split_now(&group, N0));
    set_cpu_hint(0);
    (0..1000).for_each(|number| lru.add(item(number), &group, N0).unwrap());
    set_cpu_hint(1);
    let few: Vec<_> = (0..10).map(item).collect();
    let mut visits = 0;
    for _ in 0..500 {
        for stays in [true, false] {
            few.iter().for_each(|it| match stays {
                true => lru.add(it.clone(), &group, N0).unwrap(),
                false => drop(lru.del(it).unwrap()),
            });
            lru.isolate_oldest(&group, N0, &mut 8, |it| {
                visits += usize::from(it.number == usize::MAX);
                Pick::Rotate
            });
        }
    }
    assert!((7..=9).contains(&visits), "1000 walks visit 8 times as many items: {visits}");
}

#[test]
fn l13_concurrent_walks_begin_at_different_shards() {
    let (_tree, group, lru, _items) = split_lists(4);
    let mut shown = Vec::new();
    lru.walk_one(&group, N0, &mut 4, |it| {
        shown.push(it.item().number);
        let unlocked = it.unlock();
        lru.walk_one(&group, N0, &mut 4, |it| {
            shown.push(it.item().number);
            it.skip()
        });
        unlocked.stop()
    });
    assert_eq!(shown, [0, 4, 5, 0, 1], "the list, and its first shard");
}

#[test]
fn l11_l12_verdicts_apply_to_items_on_shards() {
    let (_tree, group, lru, items) = split_lists(2);
    let (mut private, mut shown) = (Isolated::new(), Vec::new());
    let mut nr = 100;
    let removed = lru.walk_one(&group, N0, &mut nr, |it| {
        let number = it.item().number;
        shown.push(number);
        match number {
            2 => it.rotate(),
            3 if shown.iter().filter(|&&n| n == 3).count() == 1 => it.unlock().retry(),
            4 => {
                let (_gone, unlocked) = it.remove();
                unlocked.retry()
            }
            _ => it.isolate(&mut private),
        }
    });
    assert_eq!(shown, [0, 1, 2, 4, 3, 3, 5]);
    assert_eq!((removed, nr), (5, 93));
    assert_eq!(numbers(&lru, &group, N0), [2]);
    lru.assert_valid();
    assert!(items[3].links.is_linked() && !items[4].links.is_linked());
    let mut shown = 0;
    lru.walk_one(&group, N0, &mut 100, |it| {
        shown += 1;
        it.unlock().stop()
    });
    assert_eq!(shown, 1, "the end of a walk is the end of the round");
}

#[test]
fn l17_a_split_without_memory_changes_nothing() {
    let tree = MemcgTree::default();
    let group = tree.root().create("g").unwrap();
    let lru = ListLru::<Item>::new();
    let it = item(0);
    lru.add(it.clone(), &group, N0).unwrap();
    let before = lru.footprint();
    let mut nth = 0;
    while fault::after(nth, || lru.split_now(&group, N0)).1 {
        assert_eq!((lru.footprint(), lru.shards(&group, N0)), (before, 0));
        assert_eq!(numbers(&lru, &group, N0), [0]);
        lru.assert_valid();
        nth += 1;
    }
    assert_eq!(nth, 2 + lru.shards(&group, N0), "one for each shard, and two for the list of shards");
    assert!(lru.del(&it).is_some());
    group.offline().unwrap();
    drop(group);
    assert_eq!(super::ids(&tree), 1, "nothing names the group: no shard was left behind");
}

#[test]
fn l9_l16_offline_joins_the_shards_and_moves_their_items() {
    let (tree, group, lru, items) = split_lists(2);
    let root = item(99);
    lru.add(root.clone(), tree.root(), N0).unwrap();
    group.offline().unwrap();
    assert_eq!(numbers(&lru, tree.root(), N0), [0, 1, 2, 4, 3, 5, 99]);
    assert_eq!((lru.count_one(&group, N0), lru.pairs()), (0, 1));
    lru.assert_valid();
    assert!(!lru.split_now(&group, N0), "L8");
    // The homes of these items are dead shards of a dead list.
    assert!(items.iter().all(|it| lru.del(it).is_some()));
    lru.assert_valid();
    assert!(lru.del(&root).is_some());
    drop((group, root));
    assert_eq!(super::ids(&tree), 1, "nothing names the group");
    while sweep(tree.root()) != Swept::default() {}
    assert_eq!(lru.footprint(), ListLru::<Item>::new().footprint());
}

#[test]
fn offline_moves_items_to_a_parents_list_with_shards() {
    let (_tree, parent, lru, items) = split_lists(1);
    let child = parent.create("c").unwrap();
    let it = item(50);
    lru.add(it.clone(), &child, N0).unwrap();
    child.offline().unwrap();
    assert_eq!(numbers(&lru, &parent, N0), [50, 0, 1, 3, 2, 4], "the cold end of the list itself (L9)");
    lru.assert_valid();
    parent.offline().unwrap();
    lru.assert_valid();
    assert!(items.iter().chain([&it]).all(|it| lru.del(it).is_some()));
    lru.assert_valid();
}

#[test]
fn l20_dropping_the_lists_drops_items_on_shards() {
    let (tree, group, lru, items) = split_lists(3);
    drop(lru);
    assert!(items.iter().all(|it| Arc::strong_count(it) == 1));
    group.offline().unwrap();
    drop(group);
    assert_eq!(super::ids(&tree), 1);
}

#[test]
#[cfg_attr(panic = "abort", ignore = "it catches a panic")]
fn a_walk_keeps_its_shards_from_being_joined() {
    let (tree, group, lru, _items) = split_lists(2);
    let mut shown = Vec::new();
    sweep(tree.root());
    lru.walk_one(&group, N0, &mut 100, |it| {
        shown.push(it.item().number);
        let unlocked = it.unlock();
        sweep(tree.root());
        assert!(!lru.join_shards_now(&group, N0));
        unlocked.stop()
    });
    assert_ne!(lru.shards(&group, N0), 0);
    let panics = core::panic::AssertUnwindSafe(|| {
        lru.walk_one(&group, N0, &mut 100, |it| -> crate::LruStatus<'_> {
            let _unlocked = it.unlock();
            panic!("the callback's own fault")
        })
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert!(lru.join_shards_now(&group, N0), "a walk that panicked is over, too");
    lru.assert_valid();
}

#[test]
fn r7_a_walk_on_a_shard_ends_when_its_group_dies() {
    let (tree, group, lru, _items) = split_lists(1);
    let mut shown = Vec::new();
    lru.walk_one(&group, N0, &mut 100, |it| {
        shown.push(it.item().number);
        if shown.len() < 3 {
            return it.skip();
        }
        let unlocked = it.unlock();
        group.offline().unwrap();
        lru.assert_valid();
        unlocked.retry()
    });
    assert_eq!(shown, [0, 1, 3]);
    assert_eq!(numbers(&lru, tree.root(), N0), [0, 1, 3, 2, 4]);
    lru.assert_valid();
}

#[test]
fn l10_the_listener_is_called_for_the_first_item_of_each_shard() {
    #[derive(Default)]
    struct Ear(AtomicUsize);
    impl Occupancy for Ear {
        fn occupied(&self, memcg: &Memcg, node: NodeId) {
            assert_eq!((memcg.path(), node), ("/g".into(), N0));
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let tree = MemcgTree::default();
    let group = tree.root().create("g").unwrap();
    let ear = Arc::new(Ear::default());
    let lru = ListLru::<Item>::with_occupancy(ear.clone());
    let heard = || ear.0.swap(0, Ordering::Relaxed);
    drop(lru.prepare(&group, N0).unwrap());
    assert!(lru.split_now(&group, N0));
    let add = |number, hint| {
        set_cpu_hint(hint);
        lru.add(item(number), &group, N0).unwrap();
    };
    add(0, 0);
    assert_eq!(heard(), 1);
    add(1, 0);
    assert_eq!(heard(), 0);
    // Each shard reports its first item: the listener may have cleared its bit since the first add.
    add(2, 1);
    assert_eq!(heard(), 1);
    assert!(lru.join_shards_now(&group, N0));
    assert_eq!(heard(), 1);
    assert_eq!(lru.count_one(&group, N0), 3);
}

#[test]
fn prepared_lists_and_batches_work_on_split_lists() {
    let (tree, group, lru, items) = split_lists(2);
    let prepared = lru.prepare(&group, N0).unwrap();
    set_cpu_hint(0);
    let mut batch: Isolated<Item> = (100..300).map(item).collect();
    assert_eq!(lru.add_batch(&mut batch, &group, N0), Ok(200));
    assert_eq!(lru.count_one(&group, N0), 206);
    assert_eq!(lru.count_node(N0), 206, "L3");
    let mut gone = Isolated::new();
    assert_eq!(lru.del_batch(items.iter().map(|it| &**it), &mut gone), 6);
    lru.assert_valid();
    let mut rest = Isolated::new();
    assert_eq!(lru.walk_node(N0, &mut u64::MAX.clone(), |it| it.isolate(&mut rest)), 200);
    assert!(rest.map(|it| it.number).eq(100..300));
    for _ in 0..4 {
        sweep(tree.root());
    }
    assert_eq!((lru.shards(&group, N0), lru.pairs()), (0, 2), "it is promised, but not its shards");
    drop(prepared);
    while sweep(tree.root()) != Swept::default() {}
    assert_eq!(lru.pairs(), 0);
}

#[test]
fn l4_l9_threads_lose_no_item_during_splits_and_joins() {
    const ITEMS: usize = 256;
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let items: Vec<_> = (0..ITEMS).map(item).collect();
    let done = AtomicBool::new(false);
    let (added, removed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|s| {
        let workers: Vec<_> = (0..3_usize)
            .map(|t| {
                let (tree, lru, items, added, removed) = (&tree, &lru, &items, &added, &removed);
                s.spawn(move || {
                    for round in 0..150 {
                        set_cpu_hint(t + round);
                        // One thread at a time has the group, the others use the root.
                        let group = tree.root().create("g").unwrap_or_else(|_| tree.root().clone());
                        // The first and the last of the three threads add the same items.
                        for it in items.iter().skip(t).step_by(2) {
                            added.fetch_add(usize::from(lru.add(it.clone(), &group, N0).is_ok()), Ordering::Relaxed);
                        }
                        lru.split_now(&group, N0);
                        for it in items.iter().skip(round % 5).step_by(3) {
                            removed.fetch_add(usize::from(lru.del(it).is_some()), Ordering::Relaxed);
                        }
                        let (mut private, mut turn) = (Isolated::new(), 0);
                        lru.walk_one(&group, N0, &mut 40, |it| {
                            turn += 1;
                            match turn % 4 {
                                0 => it.isolate(&mut private),
                                1 => it.rotate(),
                                2 => it.unlock().retry(),
                                _ => it.skip(),
                            }
                        });
                        removed.fetch_add(private.count(), Ordering::Relaxed);
                        if group != *tree.root() {
                            group.offline().unwrap();
                        }
                    }
                })
            })
            .collect();
        s.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                lru.split_now(tree.root(), N0);
                assert!(lru.count_node(N0) <= 2 * ITEMS as u64, "never huge (L2)");
                thread::yield_now();
                sweep(tree.root());
                lru.join_shards_now(tree.root(), N0);
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    lru.assert_valid();
    let left = added.into_inner() - removed.into_inner();
    assert_eq!(lru.count_node(N0), left as u64, "L9: items added and not removed are listed");
    assert_eq!(items.iter().filter(|it| lru.del(it).is_some()).count(), left);
    assert_eq!(super::ids(&tree), 1, "every group ended and nothing names them");
    while sweep(tree.root()) != Swept::default() {}
    assert_eq!(lru.footprint(), ListLru::<Item>::new().footprint());
}
