//! Tests of single guarantees of [`ListLru`](crate::ListLru), without threads. The prefix of a
//! name, such as `l4_`, is the number of the guarantee in docs/INVARIANTS.md; most tests without a
//! prefix check behaviour that only the documentation of a method promises.
//!
//! A change must ensure that each guarantee of the page that one thread can show has a test here,
//! or in another module of the table in `tests.rs`.

use super::{ids, item, numbers, Item};
use crate::list_lru::refusable::fault;
use crate::{AddError, Isolated, ListLru, Memcg, MemcgTree, NodeId, Occupancy};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const N0: NodeId = NodeId::ZERO;
const N1: NodeId = NodeId::new(1);

#[test]
fn a_pair_never_used_costs_nothing() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let empty = lru.footprint();
    let _groups: Vec<_> = (0..100).map(|i| tree.root().create(&std::format!("g{i}")).unwrap()).collect();
    assert_eq!((lru.footprint(), lru.pairs()), (empty, 0));
}

#[test]
fn l4_a_second_add_returns_the_handle() {
    let tree = MemcgTree::default();
    let (a, b) = (ListLru::<Item>::new(), ListLru::<Item>::new());
    let it = item(1);
    a.add(it.clone(), tree.root(), N0).unwrap();
    let AddError::Linked(back) = a.add(it.clone(), tree.root(), N0).unwrap_err() else { panic!("it is linked") };
    drop(back);
    assert!(matches!(b.add(it.clone(), tree.root(), N0), Err(AddError::Linked(_))), "on a list, though not on this");
    assert_eq!(Arc::strong_count(&it), 2, "ours and the list's");
    assert!(a.del(&it).is_some());
    assert!(a.del(&it).is_none());
    assert_eq!(Arc::strong_count(&it), 1);
}

#[test]
fn l15_del_cannot_hit_another_list() {
    let tree = MemcgTree::default();
    let (a, b) = (ListLru::<Item>::new(), ListLru::<Item>::new());
    let it = item(1);
    a.add(it.clone(), tree.root(), N0).unwrap();
    assert!(b.del(&it).is_none());
    assert_eq!(a.count_one(tree.root(), N0), 1);
    a.assert_valid();
}

#[test]
fn l2_a_count_is_that_of_the_groups_own_list_and_0_after_its_offline() {
    let tree = MemcgTree::default();
    let child = tree.root().create("child").unwrap();
    let lru = ListLru::<Item>::new();
    assert_eq!(lru.count_one(&child, N0), 0);
    for i in 0..3 {
        lru.add(item(i), &child, N1).unwrap();
    }
    assert_eq!((lru.count_one(&child, N0), lru.count_one(&child, N1), lru.count_node(N1)), (0, 3, 3));
    child.offline().unwrap();
    assert_eq!((lru.count_one(&child, N1), lru.count_one(tree.root(), N1), lru.count_node(N1)), (0, 3, 3));
}

#[test]
fn l7_l8_a_dying_group_gets_no_list_and_its_items_go_to_the_parent() {
    let tree = MemcgTree::default();
    let parent = tree.root().create("parent").unwrap();
    let child = parent.create("child").unwrap();
    let lru = ListLru::<Item>::new();
    child.offline().unwrap();
    drop(lru.prepare(&child, N0).unwrap());
    lru.add(item(1), &child, N0).unwrap();
    assert_eq!((lru.count_one(&child, N0), lru.count_one(&parent, N0)), (0, 1));
    assert_eq!(lru.pairs(), 2, "the parent's and the root's");
    lru.assert_valid();
}

#[test]
fn l9_offline_moves_items_in_order_to_the_cold_end_of_the_parents_list() {
    let tree = MemcgTree::default();
    let child = tree.root().create("child").unwrap();
    let lru = ListLru::<Item>::new();
    let items: Vec<_> = (0..6).map(item).collect();
    for it in &items[..2] {
        lru.add(it.clone(), tree.root(), N0).unwrap();
    }
    for it in &items[2..] {
        lru.add(it.clone(), &child, N0).unwrap();
    }
    child.offline().unwrap();
    assert_eq!(numbers(&lru, tree.root(), N0), [2, 3, 4, 5, 0, 1]);
    assert!(lru.del(&items[3]).is_some());
    assert!(lru.del(&items[0]).is_some());
    assert_eq!(numbers(&lru, tree.root(), N0), [2, 4, 5, 1]);
    lru.assert_valid();
}

#[test]
fn l18_items_of_a_chain_of_dead_groups_are_found_and_its_ids_released() {
    let tree = MemcgTree::default();
    let a = tree.root().create("a").unwrap();
    let b = a.create("b").unwrap();
    let c = b.create("c").unwrap();
    let lru = ListLru::<Item>::new();
    let items: Vec<_> = (0..3).map(item).collect();
    for (it, group) in items.iter().zip([&a, &b, &c]) {
        lru.add(it.clone(), group, N0).unwrap();
    }
    for group in [c, b, a] {
        group.offline().unwrap();
    }
    assert_eq!(numbers(&lru, tree.root(), N0), [2, 1, 0]);
    assert_eq!(ids(&tree), 4, "the items still name their groups");
    assert!(lru.del(&items[1]).is_some());
    lru.assert_valid();
    assert!(lru.del(&items[2]).is_some());
    assert!(lru.del(&items[0]).is_some());
    assert_eq!(ids(&tree), 1, "the last item that named them is gone");
    lru.assert_valid();
}

#[test]
fn l11_a_walk_lowers_nr_to_walk_and_returns_the_removed_items() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    for i in 0..10 {
        lru.add(item(i), tree.root(), N0).unwrap();
    }
    let mut private = Isolated::new();
    let mut nr_to_walk = 6;
    let removed = lru.walk_one(tree.root(), N0, &mut nr_to_walk, |it| match it.item().number % 3 {
        0 => it.isolate(&mut private),
        1 => it.rotate(),
        _ => it.skip(),
    });
    assert_eq!((removed, nr_to_walk), (2, 0));
    assert_eq!(private.by_ref().map(|it| it.number).collect::<Vec<_>>(), [0, 3]);
    assert_eq!(numbers(&lru, tree.root(), N0), [2, 5, 6, 7, 8, 9, 1, 4]);
    let mut nr_to_walk = 100;
    assert_eq!(lru.walk_one(tree.root(), N0, &mut nr_to_walk, |it| it.rotate()), 0);
    assert_eq!(nr_to_walk, 92, "a full turn shows every item once, rotated or not");
    lru.assert_valid();
}

#[test]
fn l12_a_walk_whose_callback_always_retries_ends() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    lru.add(item(0), tree.root(), N0).unwrap();
    let mut shown = 0;
    let removed = lru.walk_one(tree.root(), N0, &mut 50, |it| {
        shown += 1;
        it.unlock().retry()
    });
    assert_eq!((removed, shown), (0, 50));
}

#[test]
fn unlock_and_remove_release_the_lists_lock() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    for i in 0..3 {
        lru.add(item(i), tree.root(), N0).unwrap();
    }
    let mut gone = vec![];
    let removed = lru.walk_one(tree.root(), N0, &mut 10, |it| {
        if it.item().number == 0 {
            let kept = it.arc();
            let unlocked = it.unlock();
            assert!(lru.del(&kept).is_some(), "del needs the lock that was released");
            return unlocked.retry();
        }
        let (item, unlocked) = it.remove();
        gone.push(item.number);
        lru.add(super::item(9), tree.root(), N1).unwrap();
        if gone.len() < 2 {
            unlocked.retry()
        } else {
            unlocked.stop()
        }
    });
    assert_eq!((removed, gone), (2, vec![1, 2]));
    lru.assert_valid();
}

#[test]
fn a_stop_ends_the_walk_over_all_groups_of_a_node() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    for i in 0..3 {
        lru.add(item(i), &tree.root().create(&std::format!("g{i}")).unwrap(), N0).unwrap();
    }
    let (mut shown, mut left, mut gone) = (0, 10, vec![]);
    let removed = lru.walk_node(N0, &mut left, |it| {
        shown += 1;
        let (item, unlocked) = it.remove();
        gone.push(item);
        unlocked.stop()
    });
    assert_eq!((removed, shown, left), (1, 1, 9));
    assert_eq!(lru.count_node(N0), 2, "the other groups keep their items");
    lru.assert_valid();
}

#[test]
#[cfg_attr(panic = "abort", ignore = "it catches a panic")]
fn a_panicking_callback_releases_the_lock() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let it = item(0);
    lru.add(it.clone(), tree.root(), N0).unwrap();
    let walk = core::panic::AssertUnwindSafe(|| {
        lru.walk_one(tree.root(), N0, &mut 1, |_| -> crate::LruStatus<'_> { panic!("the callback's own fault") })
    });
    assert!(std::panic::catch_unwind(walk).is_err());
    assert!(lru.del(&it).is_some());
}

#[test]
fn an_isolated_item_cannot_be_added_or_removed() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let it = item(0);
    lru.add(it.clone(), tree.root(), N0).unwrap();
    let mut private = Isolated::new();
    lru.walk_one(tree.root(), N0, &mut 1, |it| it.isolate(&mut private));
    assert!(lru.del(&it).is_none());
    assert!(matches!(lru.add(it.clone(), tree.root(), N0), Err(AddError::Linked(_))));
    let other = ListLru::<Item>::new();
    let add = || other.add(it.clone(), tree.root(), N0).map_err(|error| matches!(error, AddError::Linked(_)));
    assert_eq!(fault::after(0, add), (Err(true), false), "refused before a list is allocated");
    assert_eq!(private.len(), 1);
    drop(private.pop());
    lru.add(it.clone(), tree.root(), N0).unwrap();
    drop(private);
    assert_eq!(Arc::strong_count(&it), 2);
}

#[test]
fn l20_dropping_the_lists_drops_the_items_and_frees_the_groups() {
    let tree = MemcgTree::default();
    let a = tree.root().create("a").unwrap();
    let b = a.create("b").unwrap();
    let lru = ListLru::<Item>::new();
    let items: Vec<_> = (0..6).map(item).collect();
    for (i, it) in items.iter().enumerate() {
        lru.add(it.clone(), [tree.root(), &a, &b][i % 3], NodeId::new((i / 3) as u16)).unwrap();
    }
    b.offline().unwrap();
    drop(b);
    assert_eq!(ids(&tree), 3);
    drop(lru);
    assert!(items.iter().all(|it| Arc::strong_count(it) == 1 && !it.links.is_linked()));
    assert_eq!(ids(&tree), 2, "b's id came back with its last item");
    a.offline().unwrap();
    drop(a);
    assert_eq!(ids(&tree), 1);
}

#[test]
fn a_list_owns_and_drops_its_boxes() {
    struct Big {
        links: crate::Links,
        dropped: Arc<core::sync::atomic::AtomicUsize>,
    }
    crate::linked!(impl[] for Big { links, handle: Box<Big> });
    impl Drop for Big {
        fn drop(&mut self) {
            self.dropped.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(core::sync::atomic::AtomicUsize::new(0));
    let tree = MemcgTree::default();
    let lru = ListLru::<Big>::new();
    for _ in 0..4 {
        lru.add(Box::new(Big { links: crate::Links::new(), dropped: dropped.clone() }), tree.root(), N0).unwrap();
    }
    let mut private = Isolated::new();
    lru.walk_one(tree.root(), N0, &mut 1, |it| it.isolate(&mut private));
    let seen = || dropped.load(core::sync::atomic::Ordering::Relaxed);
    assert_eq!(seen(), 0);
    drop(private);
    assert_eq!(seen(), 1);
    drop(lru);
    assert_eq!(seen(), 4);
}

#[test]
fn the_listener_is_called_once_when_the_effective_groups_list_becomes_non_empty() {
    #[derive(Default)]
    struct Ear(crate::sync::Mutex<Vec<(alloc::string::String, NodeId)>>);
    impl Occupancy for Ear {
        fn occupied(&self, memcg: &crate::Memcg, node: NodeId) {
            self.0.lock().push((memcg.path(), node));
        }
    }
    let ear = Arc::new(Ear::default());
    let tree = MemcgTree::default();
    let a = tree.root().create("a").unwrap();
    let lru = ListLru::<Item>::with_occupancy(ear.clone());
    let heard = || core::mem::take(&mut *ear.0.lock());
    let (x, y) = (item(0), item(1));
    lru.add(x.clone(), &a, N1).unwrap();
    lru.add(y.clone(), &a, N1).unwrap();
    assert_eq!(heard(), [("/a".into(), N1)]);
    lru.del(&x).unwrap();
    lru.del(&y).unwrap();
    assert_eq!(heard(), []);
    lru.add(x.clone(), &a, N1).unwrap();
    assert_eq!(heard(), [("/a".into(), N1)]);
    a.offline().unwrap();
    assert_eq!(heard(), [("/".into(), N1)], "the items came to the root (R3)");
    lru.add(y.clone(), &a, N0).unwrap();
    assert_eq!(heard(), [("/".into(), N0)], "a late add with a dying group's handle");
}

#[test]
fn l10_offline_calls_the_listener_if_the_parents_list_becomes_non_empty() {
    struct Ear(AtomicUsize);
    impl Occupancy for Ear {
        fn occupied(&self, _: &Memcg, _: NodeId) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let (tree, ear) = (MemcgTree::default(), Arc::new(Ear(AtomicUsize::new(0))));
    let lru = ListLru::<Item>::with_occupancy(ear.clone());
    // Returns how often the listener is called for the offline of a group with `of` items whose
    // parent has `to` items.
    let told = |of: usize, to: usize| {
        let child = tree.root().create("c").unwrap();
        drop(lru.prepare(&child, N0).unwrap());
        let items: Vec<_> = (0..of + to).map(item).collect();
        let groups = core::iter::repeat_n(&child, of).chain(core::iter::repeat_n(tree.root(), to));
        items.iter().zip(groups).for_each(|(it, group)| lru.add(it.clone(), group, N0).unwrap());
        ear.0.store(0, Relaxed);
        child.offline().unwrap();
        let told = ear.0.swap(0, Relaxed);
        items.iter().for_each(|it| assert!(lru.del(it).is_some()));
        told
    };
    assert_eq!([told(0, 0), told(0, 2), told(2, 0), told(2, 2)], [0, 0, 1, 0]);
}

#[test]
fn l17_an_add_without_memory_creates_no_list() {
    let tree = MemcgTree::default();
    let group = tree.root().create("a").unwrap().create("b").unwrap();
    let lru = ListLru::<Item>::new();
    assert_eq!(lru.count_one(&group, N0), 0, "the memory of this thread is allocated");
    let (added, refused) = fault::after(0, || lru.add(item(0), &group, N0));
    assert!(refused && matches!(added, Err(AddError::NoMemory(_))), "no ancestor has a list");
    assert_eq!(lru.pairs(), 0);
    let (made, _) = fault::after(0, ListLru::<Item>::try_new);
    assert!(made.is_err());
}

#[test]
fn all_lists_are_found_after_the_table_has_grown() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    let groups: Vec<_> = (0..500).map(|i| tree.root().create(&std::format!("g{i}")).unwrap()).collect();
    for (i, group) in groups.iter().enumerate() {
        lru.add(item(i), group, NodeId::new((i % 3) as u16)).unwrap();
    }
    for (i, group) in groups.iter().enumerate() {
        assert_eq!(numbers(&lru, group, NodeId::new((i % 3) as u16)), [i]);
    }
    lru.assert_valid();
    for group in groups {
        group.offline().unwrap();
    }
    assert_eq!(lru.pairs(), 3, "the root's, one a node (L16)");
    assert_eq!((0..3).map(|n| lru.count_node(NodeId::new(n))).sum::<u64>(), 500);
    lru.assert_valid();
}

#[test]
fn the_table_stays_small_while_groups_come_and_go() {
    let tree = MemcgTree::default();
    let lru = ListLru::<Item>::new();
    drop(lru.prepare(tree.root(), N0).unwrap());
    let mut largest = 0;
    for i in 0..10_000 {
        let group = tree.root().create("g").unwrap();
        let it = item(i);
        lru.add(it.clone(), &group, N0).unwrap();
        lru.del(&it).unwrap();
        largest = largest.max(lru.footprint().get());
        group.offline().unwrap();
    }
    let two_pairs = {
        let fresh = ListLru::<Item>::new();
        let group = tree.root().create("g").unwrap();
        fresh.add(item(0), &group, N0).unwrap();
        fresh.footprint().get()
    };
    assert_eq!(largest, two_pairs, "a table keeps no slot for a removed list");
}

#[test]
fn l5_an_item_is_on_at_most_one_list() {
    let tree = MemcgTree::default();
    let group = tree.root().create("g").unwrap();
    let (a, b) = (ListLru::<Item>::new(), ListLru::<Item>::new());
    let it = item(7);
    a.add(it.clone(), &group, N0).unwrap();
    for (lru, memcg, node) in [(&a, &group, N0), (&a, &group, N1), (&a, tree.root(), N0), (&b, &group, N0)] {
        assert!(lru.add(it.clone(), memcg, node).is_err());
    }
    let everywhere = |it_is: usize| {
        let lists = [(&a, &group, N0), (&a, &group, N1), (&a, tree.root(), N0), (&b, &group, N0)];
        let shown: usize = lists.iter().map(|(lru, memcg, node)| numbers(lru, memcg, *node).len()).sum();
        assert_eq!((shown, it.links.is_linked()), (it_is, it_is != 0));
    };
    everywhere(1);
    assert!(a.del(&it).is_some());
    everywhere(0);
    b.add(it.clone(), &group, N0).unwrap();
    everywhere(1);
    let mut private = Isolated::new();
    b.walk_one(&group, N0, &mut 1, |it| it.isolate(&mut private));
    drop(private);
    everywhere(0);
}

#[test]
fn isolated_counts_its_items() {
    let mut isolated = Isolated::<Item>::new();
    for n in 0..4 {
        assert_eq!((isolated.len(), isolated.is_empty(), isolated.size_hint()), (n, n == 0, (n, Some(n))));
        isolated.push(item(n)).unwrap();
    }
    for left in (0..4).rev() {
        assert!(isolated.pop().is_some());
        assert_eq!((isolated.len(), isolated.is_empty(), isolated.size_hint()), (left, left == 0, (left, Some(left))));
    }
    assert!(isolated.pop().is_none());
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "it counts the bytes of 64-bit pointers")]
fn lists_created_with_try_new_call_their_listener() {
    struct Heard(AtomicUsize);
    impl Occupancy for Heard {
        fn occupied(&self, _: &Memcg, _: NodeId) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let (tree, heard) = (MemcgTree::default(), Arc::new(Heard(AtomicUsize::new(0))));
    let lru = ListLru::<Item>::try_with_occupancy(heard.clone()).unwrap();
    lru.add(item(1), tree.root(), N0).unwrap();
    assert_eq!(heard.0.load(Relaxed), 1);
    let quiet = ListLru::<Item>::try_new().unwrap();
    // A list of 64 bytes, and a table of a few words.
    let before = quiet.footprint().get();
    quiet.add(item(2), tree.root(), N0).unwrap();
    assert!((64 + 8..64 + 64).contains(&(quiet.footprint().get() - before)));
    assert_eq!(before, (size_of::<ListLru<Item>>() + size_of::<crate::list_lru::RawListLru>()) as u64);
}

#[test]
fn l5_a_replacement_keeps_the_items_age_and_list() {
    let tree = MemcgTree::default();
    let group = tree.root().create("g").unwrap();
    let (lru, others) = (ListLru::<Item>::new(), ListLru::<Item>::new());
    let items: Vec<_> = (0..3).map(item).collect();
    items.iter().for_each(|it| lru.add(it.clone(), &group, N0).unwrap());
    for (at, by) in [(0, 10), (1, 11), (2, 12)] {
        assert!(others.replace(&items[at], item(by)).is_err(), "it is on another's list");
        assert_eq!(lru.replace(&items[at], item(by)).ok().unwrap().number, at);
        assert!(lru.replace(&items[at], item(by)).is_err(), "it is on no list any more");
        assert_eq!(lru.count_one(&group, N0), 3);
        lru.assert_valid();
    }
    assert_eq!(numbers(&lru, &group, N0), [10, 11, 12]);
    // An item whose home is a dead list, on which it still counts.
    let it = item(20);
    lru.add(it.clone(), &group, N0).unwrap();
    group.offline().unwrap();
    let by = item(21);
    assert_eq!(lru.replace(&it, by.clone()).ok().unwrap().number, 20);
    assert_eq!(numbers(&lru, tree.root(), N0), [10, 11, 12, 21]);
    assert_eq!(lru.del_with_memcg(&by).map(|(_, whose)| whose), Some(tree.root().clone()));
    lru.assert_valid();
    // An isolated item belongs to the `Isolated` alone.
    let mut private = Isolated::new();
    lru.walk_one(tree.root(), N0, &mut 1, |it| it.isolate(&mut private));
    let oldest = private.pop().unwrap();
    assert!(private.push(oldest.clone()).is_ok() && lru.replace(&oldest, by).is_err());
}
