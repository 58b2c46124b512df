//! A walk that released the lock resumes at its position (L11 to L14, R7), whatever happens
//! meanwhile. The last test is about batches.
//!
//! Numbers such as R7 are those of docs/INVARIANTS.md.
//!
//! The callbacks remove or add items, or end the group, at the moment at which the walk has
//! released the lock: the states that another thread could cause are created in one thread. Only
//! the test of L14 has several threads.
//!
//! A change must ensure that the state changes while the walk has released the lock, and not before
//! or after it.

use super::{item, numbers, Item};
use crate::{Isolated, ListLru, MemcgTree, NodeId};
use alloc::sync::Arc;
use alloc::vec::Vec;

const N0: NodeId = NodeId::ZERO;

fn lists(n: usize) -> (MemcgTree, ListLru<Item>, Vec<Arc<Item>>) {
    let (tree, lru) = (MemcgTree::default(), ListLru::new());
    let items: Vec<_> = (0..n).map(item).collect();
    for it in &items {
        lru.add(it.clone(), tree.root(), N0).unwrap();
    }
    (tree, lru, items)
}

#[test]
fn l11_skipped_items_are_not_visited_again_after_a_retry() {
    let (tree, lru, _items) = lists(100);
    let mut shown = Vec::new();
    let mut nr_to_walk = 1_000;
    lru.walk_one(tree.root(), N0, &mut nr_to_walk, |it| {
        let number = it.item().number;
        let again = shown.last() == Some(&number);
        shown.push(number);
        if number % 2 == 0 || again {
            it.skip()
        } else {
            it.unlock().retry()
        }
    });
    let expected: Vec<_> = (0..100).flat_map(|n| core::iter::repeat_n(n, 1 + n % 2)).collect();
    assert_eq!(shown, expected, "each odd one twice, nothing else: not O(n) for each retry");
    assert_eq!(nr_to_walk, 1_000 - 150);
    lru.assert_valid();
}

#[test]
fn l13_a_walk_resumes_although_its_neighbours_were_removed() {
    let (tree, lru, items) = lists(8);
    let mut shown = Vec::new();
    lru.walk_one(tree.root(), N0, &mut 100, |it| {
        let number = it.item().number;
        shown.push(number);
        if number != 3 {
            return it.skip();
        }
        let unlocked = it.unlock();
        for gone in [2, 3, 4, 7] {
            assert!(lru.del(&items[gone]).is_some());
        }
        lru.assert_valid();
        lru.add(items[2].clone(), tree.root(), N0).unwrap();
        assert_eq!(numbers(&lru, tree.root(), N0), [0, 1, 5, 6, 2], "another walk steps over the cursor");
        unlocked.retry()
    });
    assert_eq!(shown, [0, 1, 2, 3, 5, 6, 2]);
    lru.assert_valid();
}

#[test]
fn r7_a_walk_whose_group_died_ends_and_leaves_no_cursor() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let group = tree.root().create("g").unwrap();
    for n in 0..4 {
        lru.add(item(n), &group, N0).unwrap();
    }
    let mut shown = 0;
    let removed = lru.walk_one(&group, N0, &mut 100, |it| {
        shown += 1;
        let (_gone, unlocked) = it.remove();
        if shown == 2 {
            group.offline().unwrap();
            lru.assert_valid();
        }
        unlocked.retry()
    });
    assert_eq!((removed, shown), (2, 2));
    assert_eq!(numbers(&lru, tree.root(), N0), [2, 3]);
    drop(group);
    assert_eq!(super::ids(&tree), 2, "two items name it, and no walk");
    lru.assert_valid();
}

#[test]
#[cfg_attr(panic = "abort", ignore = "it catches a panic")]
fn a_walk_that_panics_with_the_lock_released_leaves_no_cursor() {
    let (tree, lru, items) = lists(2);
    let walk = core::panic::AssertUnwindSafe(|| {
        lru.walk_one(tree.root(), N0, &mut 1, |it| -> crate::LruStatus<'_> {
            let _unlocked = it.unlock();
            panic!("the callback's own fault")
        })
    });
    assert!(std::panic::catch_unwind(walk).is_err());
    assert!(items.iter().all(|it| lru.del(it).is_some()));
    lru.assert_valid();
    crate::list_lru::sweep(tree.root());
    assert_eq!(crate::list_lru::sweep(tree.root()).given_back, 1, "nothing counts on the list");
}

#[test]
fn l14_concurrent_walks_that_retry_isolate_each_item_once() {
    let (tree, lru, items) = lists(2_000);
    let isolated: usize = std::thread::scope(|s| {
        let walks: Vec<_> = (0..3_usize)
            .map(|t| {
                let (lru, tree) = (&lru, &tree);
                s.spawn(move || {
                    let (mut private, mut removed) = (Isolated::new(), 0);
                    for round in 0.. {
                        let left = lru.count_one(tree.root(), N0);
                        if left == 0 {
                            break;
                        }
                        // Each thread and each walk has another sequence of verdicts.
                        let mut turn = round;
                        lru.walk_one(tree.root(), N0, &mut 200, |it| {
                            turn += t + 1;
                            match turn % 5 {
                                0 => it.unlock().retry(),
                                1 => it.rotate(),
                                2 => {
                                    let (_gone, unlocked) = it.remove();
                                    removed += 1;
                                    unlocked.retry()
                                }
                                3 => it.isolate(&mut private),
                                _ => it.skip(),
                            }
                        });
                    }
                    removed + private.len()
                })
            })
            .collect();
        walks.into_iter().map(|walk| walk.join().unwrap()).sum()
    });
    assert_eq!(isolated, items.len());
    lru.assert_valid();
}

#[test]
fn batches_keep_the_order_and_skip_items_of_other_lists() {
    let tree = MemcgTree::default();
    let (lru, other) = (ListLru::<Item>::new(), ListLru::<Item>::new());
    let group = tree.root().create("g").unwrap();
    let items: Vec<_> = (0..300).map(item).collect();
    let mut batch: Isolated<Item> = items.iter().cloned().collect();
    assert!(batch.push(items[0].clone()).is_err(), "it is on a list, though a private one");
    assert_eq!(lru.add_batch(&mut batch, &group, N0), Ok(300));
    assert!(numbers(&lru, &group, N0).into_iter().eq(0..300));
    lru.assert_valid();

    for it in &items[..10] {
        assert!(lru.del(it).is_some());
        other.add(it.clone(), &group, N0).unwrap();
    }
    group.offline().unwrap();
    let mut gone = Isolated::new();
    let asked = items.iter().step_by(2).map(|it| &**it);
    assert_eq!(lru.del_batch(asked, &mut gone), 145, "every second, but for those on another list");
    assert!(gone.map(|it| it.number).eq((10..300).step_by(2)));
    assert_eq!((lru.count_node(N0), other.count_node(N0)), (145, 10));
    lru.assert_valid();
    other.assert_valid();

    let mut late: Isolated<Item> = [item(900)].into_iter().collect();
    assert_eq!(lru.add_batch(&mut late, &group, N0), Ok(1), "a dying group's go to its parent");
    assert_eq!(numbers(&lru, tree.root(), N0).last(), Some(&900));
}
