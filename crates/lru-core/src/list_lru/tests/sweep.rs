//! Lists that are empty and idle are freed, and no others (DESIGN: cost table, "the same, empty
//! again and idle").
//!
//! A list is freed by the second sweep that finds it empty, so most tests sweep twice and count the
//! lists or their bytes in between.
//!
//! A change must ensure that each test sweeps twice where a list is to be freed.

use super::{item, numbers, Item};
use crate::list_lru::list_lru_one::ListLruOne;
use crate::list_lru::locked::Idleness;
use crate::list_lru::{sweep, sweep::sweep_group, Swept};
use crate::rcu::pin;
use crate::{Isolated, ListLru, MemcgTree, NodeId};
use alloc::sync::Arc;
use alloc::vec::Vec;

const N0: NodeId = NodeId::ZERO;

#[test]
fn l16_the_second_sweep_frees_an_empty_list_and_keeps_a_used_one() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let nothing = lru.footprint();
    let group = tree.root().create("g").unwrap();
    let it = item(0);
    lru.add(it.clone(), &group, N0).unwrap();
    for _ in 0..3 {
        assert_eq!(sweep(tree.root()).given_back, 0, "it holds something");
    }
    lru.del(&it).unwrap();
    // The root's list was marked by the first sweep, and stays as long as its child's.
    assert_eq!(sweep(tree.root()), Swept { given_back: 0, marked: 1 });
    lru.add(it.clone(), &group, N0).unwrap();
    lru.del(&it).unwrap();
    assert_eq!(sweep(tree.root()), Swept { given_back: 0, marked: 1 }, "it was used in between");
    assert_eq!(sweep(tree.root()), Swept { given_back: 2, marked: 0 }, "children first, so all at once");
    assert_eq!(lru.footprint(), nothing);
    lru.add(it, &group, N0).unwrap();
    assert_eq!(numbers(&lru, &group, N0), [0]);
    lru.assert_valid();
}

#[test]
fn l16_items_from_a_childs_offline_count_as_a_use_of_the_list() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let end_of = |items: &[_]| {
        let child = tree.root().create("c").unwrap();
        drop(lru.prepare(&child, N0).unwrap());
        items.iter().for_each(|it| lru.add(Arc::clone(it), &child, N0).unwrap());
        child.offline().unwrap();
        items.iter().for_each(|it| assert!(lru.del(it).is_some()));
    };
    drop(lru.prepare(tree.root(), N0).unwrap());
    assert_eq!(sweep(tree.root()), Swept { given_back: 0, marked: 1 });
    end_of(&[item(0)]);
    assert_eq!(sweep(tree.root()), Swept { given_back: 0, marked: 1 }, "it was used in between");
    end_of(&[]);
    assert_eq!(sweep(tree.root()), Swept { given_back: 1, marked: 0 });
}

#[test]
fn l16_a_list_used_before_the_sweep_locks_it_is_busy() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let found = || {
        let guard = pin();
        let mut list = lru.raw.lock_one(tree.root(), N0, 0, &guard).unwrap();
        list.idleness()
    };
    let it = item(0);
    lru.add(it.clone(), tree.root(), N0).unwrap();
    assert_eq!(found(), Idleness::Busy);
    lru.del(&it).unwrap();
    assert_eq!([found(), found()], [Idleness::Marked, Idleness::Idle]);
}

#[test]
fn l6_an_ancestors_list_is_kept_while_a_childs_exists() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let a = tree.root().create("a").unwrap();
    let b = a.create("b").unwrap();
    lru.add(item(0), &b, N0).unwrap();
    for _ in 0..3 {
        sweep(tree.root());
    }
    assert_eq!(lru.pairs(), 3);
    lru.assert_valid();
    b.offline().unwrap();
    assert_eq!(numbers(&lru, &a, N0), [0]);
}

#[test]
fn a_prepared_list_is_not_swept() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let group = tree.root().create("g").unwrap();
    let prepared = lru.prepare(&group, N0).unwrap();
    for _ in 0..3 {
        assert_eq!(sweep(tree.root()).given_back, 0);
    }
    group.offline().unwrap();
    for _ in 0..3 {
        assert_eq!(sweep(tree.root()).given_back, 0, "the promise is the parent's now");
    }
    assert_eq!(super::ids(&tree), 2, "and it names the group");
    drop(prepared);
    drop(group);
    assert_eq!(super::ids(&tree), 1);
    assert_eq!(sweep(tree.root()).given_back, 1);
    assert_eq!(lru.pairs(), 0);
}

#[test]
fn a_sweep_shrinks_a_table_that_is_much_too_large() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let groups: Vec<_> = (0..1_000).map(|i| tree.root().create(&std::format!("g{i}")).unwrap()).collect();
    for group in &groups {
        drop(lru.prepare(group, N0).unwrap());
    }
    let full = lru.footprint().get();
    let kept = item(0);
    lru.add(kept.clone(), &groups[17], N0).unwrap();
    while sweep(tree.root()) != Swept::default() {}
    assert_eq!(lru.pairs(), 2);
    assert!(lru.footprint().get() < full / 100, "{} of {full}", lru.footprint());
    assert_eq!(numbers(&lru, &groups[17], N0), [0]);
    lru.assert_valid();
}

#[test]
fn a_table_of_four_times_the_needed_size_is_kept() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let groups: Vec<_> = (0..9).map(|i| tree.root().create(&std::format!("g{i}")).unwrap()).collect();
    for group in &groups {
        drop(lru.prepare(group, N0).unwrap());
    }
    lru.add(item(0), &groups[3], N0).unwrap();
    let full = lru.footprint().get();
    while sweep(tree.root()) != Swept::default() {}
    // 16 slots for ten lists; two lists, and room for one more, need 4.
    assert_eq!((lru.pairs(), full - lru.footprint().get()), (2, 8 * size_of::<ListLruOne>() as u64));
}

#[test]
fn l20_lists_that_are_dropped_during_a_sweep_are_all_drained() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let groups: Vec<_> = (0..1_000).map(|i| tree.root().create(&std::format!("g{i}")).unwrap()).collect();
    for (number, group) in groups.iter().enumerate() {
        lru.add(item(number), group, N0).unwrap();
    }
    let (mut items, mut drained) = (Isolated::<Item>::new(), 0);
    lru.raw.drain(|drained_item| {
        // SAFETY: only links of an `Item` are on these lists, and `drain` gave the item up, marked
        // private.
        unsafe { items.push_links(drained_item) };
        drained += 1;
        if drained == 900 {
            // The table is more than four times too large by now, and the second sweep of the
            // root's list, which is empty but has children's, replaces it.
            let bytes = lru.footprint();
            (0..2).for_each(|_| sweep_group(tree.root(), &mut Swept::default()));
            assert!(lru.footprint() < bytes);
        }
    });
    assert_eq!((lru.pairs(), items.len()), (0, 1_000));
}

#[test]
fn threads_lose_no_item_during_sweeps_and_offlines() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let done = core::sync::atomic::AtomicUsize::new(0);
    /// Counts an end of a thread, also by a panic.
    struct Ended<'a>(&'a core::sync::atomic::AtomicUsize);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        }
    }
    std::thread::scope(|s| {
        for t in 0..3_usize {
            let (tree, lru, done) = (&tree, &lru, &done);
            s.spawn(move || {
                let _ended = Ended(done);
                for round in 0..300 {
                    let group = tree.root().create(&std::format!("t{t}")).unwrap();
                    let child = group.create("c").unwrap();
                    let items: Vec<_> = (0..4).map(item).collect();
                    for it in &items {
                        lru.add(it.clone(), if it.number % 2 == 0 { &group } else { &child }, N0).unwrap();
                    }
                    if round % 2 == 0 {
                        child.offline().unwrap();
                    }
                    assert!(items.iter().all(|it| lru.del(it).is_some()), "an item is on its list until removed");
                    if round % 2 != 0 {
                        child.offline().unwrap();
                    }
                    group.offline().unwrap();
                }
            });
        }
        while done.load(core::sync::atomic::Ordering::Relaxed) < 3 {
            sweep(tree.root());
        }
    });
    lru.assert_valid();
    while sweep(tree.root()) != Swept::default() {}
    assert_eq!((lru.pairs(), super::ids(&tree)), (0, 1));
}
