//! Stress tests with real threads: nothing is lost, nothing is seen twice (L4, L9, L14), and
//! nothing deadlocks (L18).
//!
//! Numbers such as L14 are those of docs/INVARIANTS.md.
//!
//! The tests also run under the thread sanitizer, and find races for which the model checks of
//! `tests/loom` are too small.
//!
//! A change must ensure that each test ends with an exact count of the items.

use super::{ids, item, Item};
use crate::{Isolated, ListLru, MemcgTree, NodeId};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

const NODES: u16 = 2;

#[test]
fn threads_lose_no_item_during_walks_and_offlines() {
    const ITEMS: usize = 512;
    const ROUNDS: usize = 60;
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let items: Vec<_> = (0..ITEMS).map(item).collect();
    let (added, removed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|s| {
        for t in 0..4_usize {
            let (tree, lru, items, added, removed) = (&tree, &lru, &items, &added, &removed);
            s.spawn(move || {
                for round in 0..ROUNDS {
                    let group = tree.root().create(&std::format!("t{t}")).unwrap();
                    let child = group.create("child").unwrap();
                    // The first and the last of the four threads add the same items.
                    for it in items.iter().skip(t).step_by(3) {
                        let memcg = if it.number % 2 == 0 { &group } else { &child };
                        if lru.add(it.clone(), memcg, NodeId::new(it.number as u16 % NODES)).is_ok() {
                            added.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    child.offline().unwrap();
                    for it in items.iter().skip(round % 7).step_by(5) {
                        removed.fetch_add(usize::from(lru.del(it).is_some()), Ordering::Relaxed);
                    }
                    let mut private = Isolated::new();
                    let node = NodeId::new(round as u16 % NODES);
                    let walked = lru.walk_node(node, &mut 100, |it| match it.item().number % 4 {
                        0 => it.skip(),
                        1 => it.rotate(),
                        _ => it.isolate(&mut private),
                    });
                    assert_eq!(walked, private.len() as u64);
                    removed.fetch_add(private.count(), Ordering::Relaxed);
                    group.offline().unwrap();
                }
            });
        }
    });
    lru.assert_valid();
    let left: u64 = (0..NODES).map(|n| lru.count_node(NodeId::new(n))).sum();
    let (added, removed) = (added.into_inner(), removed.into_inner());
    assert_eq!(added - removed, left as usize, "L9: items added and not removed are listed");
    let linked = items.iter().filter(|it| it.links.is_linked()).count();
    assert_eq!(linked, left as usize);
    assert!(items.iter().all(|it| Arc::strong_count(it) == 1 + usize::from(it.links.is_linked())));
    assert!(ids(&tree) <= 1 + ITEMS, "dead groups are kept by items only");
    drop(lru);
    assert_eq!(ids(&tree), 1, "every group ended and nothing names them");
}

#[test]
fn lists_may_be_dropped_while_groups_go_offline() {
    let tree = MemcgTree::default();
    for _ in 0..200 {
        let groups: Vec<_> = (0..4).map(|i| tree.root().create(&std::format!("g{i}")).unwrap()).collect();
        let lru = ListLru::<Item>::new();
        let items: Vec<_> = (0..40).map(item).collect();
        for it in &items {
            lru.add(it.clone(), &groups[it.number % 4], NodeId::new(it.number as u16 % NODES)).unwrap();
        }
        thread::scope(|s| {
            s.spawn(move || drop(lru));
            for group in &groups {
                s.spawn(move || group.offline().unwrap());
            }
        });
        assert!(items.iter().all(|it| Arc::strong_count(it) == 1));
        drop(groups);
        assert_eq!(ids(&tree), 1);
    }
}

#[test]
fn l18_concurrent_offlines_of_chains_and_siblings_do_not_deadlock() {
    const DEPTH: usize = 6;
    for _ in 0..50 {
        let tree = MemcgTree::default();
        let lru = ListLru::<Item>::new();
        let items: Vec<_> = (0..4 * DEPTH).map(item).collect();
        let chains: Vec<Vec<crate::Memcg>> = (0..2)
            .map(|chain| {
                let mut at = tree.root().create(&std::format!("c{chain}")).unwrap();
                let mut groups = Vec::from([at.clone()]);
                for _ in 1..DEPTH {
                    at = at.create("x").unwrap();
                    groups.push(at.clone());
                }
                groups
            })
            .collect();
        thread::scope(|s| {
            for (c, groups) in chains.iter().enumerate() {
                for (depth, group) in groups.iter().enumerate() {
                    let (lru, items) = (&lru, &items);
                    s.spawn(move || {
                        for it in &items[(c * DEPTH + depth) * 2..][..2] {
                            lru.add(it.clone(), group, NodeId::ZERO).unwrap();
                        }
                        // Children go first; a thread that is too early retries.
                        while group.offline().is_err() {
                            thread::yield_now();
                        }
                    });
                }
            }
            // Sweeps take the same locks, until all items have moved to the root.
            s.spawn(|| {
                while lru.count_one(tree.root(), NodeId::ZERO) < items.len() as u64 {
                    crate::list_lru::sweep(tree.root());
                }
            });
        });
        assert_eq!((tree.len(), lru.pairs()), (1, 1));
        lru.assert_valid();
    }
}

/// A walk's callback on the list of `parent`, during which `others` run in threads of their own, is
/// the first to add to another `ListLru`, for the group that `first_add` selects.
fn add_first_in_a_callback(others: &[fn(&Callback)], first_add: fn(&Callback) -> &crate::Memcg) {
    let tree = MemcgTree::default();
    let (walked, other) = (ListLru::new(), ListLru::new());
    let parent = tree.root().create("p").unwrap();
    let child = parent.create("c").unwrap();
    let at = Arc::new(Callback { tree, walked, other, parent, child });
    at.walked.add(item(0), &at.parent, NodeId::ZERO).unwrap();
    let (done, ends) = std::sync::mpsc::channel();
    let in_callback = Arc::new(AtomicUsize::new(0));
    for other in others {
        let (at, other, done, in_callback) = (at.clone(), *other, done.clone(), in_callback.clone());
        thread::spawn(move || {
            while in_callback.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            other(&at);
            let _ = done.send(());
        });
    }
    thread::spawn(move || {
        at.walked.walk_one(&at.parent, NodeId::ZERO, &mut 1, |it| {
            in_callback.store(1, Ordering::Relaxed);
            // Time for the other threads to reach the list's lock; without it the test still holds.
            thread::sleep(core::time::Duration::from_millis(50));
            at.other.add(item(1), first_add(&at), NodeId::ZERO).unwrap();
            it.skip()
        });
        let _ = done.send(());
    });
    for _ in 0..=others.len() {
        // The threads are not joined: in a deadlock they never end.
        ends.recv_timeout(core::time::Duration::from_secs(60)).expect("no thread waits for another for ever");
    }
}

struct Callback {
    tree: MemcgTree,
    walked: ListLru<Item>,
    other: ListLru<Item>,
    parent: crate::Memcg,
    child: crate::Memcg,
}

fn sweep(at: &Callback) {
    crate::list_lru::sweep(at.tree.root());
}

#[test]
fn l18_a_callback_may_be_the_first_to_add_to_other_lists_of_its_group() {
    let split = |at: &Callback| {
        at.walked.split_now(&at.parent, NodeId::ZERO);
    };
    add_first_in_a_callback(&[split], |at| &at.parent);
}

#[test]
fn l18_a_callback_may_be_the_first_to_add_to_other_lists_of_a_child() {
    let add = |at: &Callback| at.walked.add(item(2), &at.child, NodeId::ZERO).unwrap();
    add_first_in_a_callback(&[add], |at| &at.child);
    add_first_in_a_callback(&[add, sweep], |at| &at.parent);
}

#[test]
fn l18_a_callback_may_be_the_first_to_add_while_idle_lists_are_freed() {
    // The child's list is idle from the second sweep on.
    let sweeps = |at: &Callback| {
        drop(at.other.prepare(&at.parent, NodeId::ZERO));
        drop(at.walked.prepare(&at.child, NodeId::ZERO));
        (0..3).for_each(|_| sweep(at));
    };
    add_first_in_a_callback(&[sweeps, sweep], |at| &at.child);
}

#[test]
fn l18_a_callback_may_be_the_first_to_add_to_other_lists_of_a_group_that_goes_offline() {
    // The group's end waits for the list that the callback's walk has locked.
    let end = |at: &Callback| {
        at.child.offline().unwrap();
        at.parent.offline().unwrap();
    };
    add_first_in_a_callback(&[end], |at| &at.parent);
}
