//! Objects of one tree, index or cell passed to another.
//!
//! Foreign parts are refused or find nothing; they must never be treated as the container's own.

use crate::common::within;
use crate::leaks::{item, put, Entry, Item};
use lowwater_lru_core::list_lru::baseline::EagerListLru;
use lowwater_lru_core::{ByteSize, ListLru, MemcgTree, NodeId, Protection};
use lowwater_rcu::{pin, RcuCell};
use lowwater_store::index::Cursor;
use lowwater_store::ExtendibleIndex;
use std::collections::BTreeSet;

#[test]
fn groups_of_another_tree_are_foreign() {
    let (ours, theirs) = (MemcgTree::new(1), MemcgTree::new(1));
    let (a, b) = (ours.root().create("group").unwrap(), theirs.root().create("group").unwrap());
    assert_eq!((a.id(), a.path()), (b.id(), b.path()));
    assert!(a != b && !a.is_in_tree_of(&b) && !a.is_descendant_of(theirs.root()) && !b.is_descendant_of(&a));
    a.set_min(ByteSize::mib(1));
    let _ = a.try_charge(ByteSize::mib(2)).unwrap();
    assert_eq!(a.protection(theirs.root()), Protection::default());
    assert_eq!(b.protection(ours.root()), Protection::default());
    assert_eq!((theirs.root().usage(), ours.root().usage()), (ByteSize::ZERO, ByteSize::mib(2)));
    // In the other tree the id belongs to another group.
    assert_eq!(theirs.get(a.id()), Some(b.clone()));
    drop(ours);
    assert_eq!(b.create("child").unwrap().parent(), Some(&b));
}

#[test]
fn a_cursor_of_another_index_ends() {
    within("walks over two indexes", || {
        let (large, small, empty) =
            (ExtendibleIndex::<Entry>::new(), ExtendibleIndex::<Entry>::new(), ExtendibleIndex::<Entry>::new());
        let mut slots: Vec<_> = (0..20_000).map(|n| put(&large, n)).collect();
        slots.extend((0..10).map(|n| put(&small, n)));
        let guard = pin();
        // Up to more steps than the large index has segments, 32: a step visits one segment.
        for first in 0..40 {
            let mut at = Cursor::new();
            for _ in 0..first {
                large.visit(&mut at, &guard, |_| ());
            }
            let mut seen = BTreeSet::new();
            for turn in 0.. {
                if at.is_done() {
                    break;
                }
                assert!(turn < 10_000, "it does not come to an end");
                match turn % 4 {
                    0 => small.visit(&mut at, &guard, |entry| assert!(entry.2 < 10)),
                    1 => empty.visit(&mut at, &guard, |_| panic!("it is empty")),
                    2 => small.visit_evacuating(&mut at, &guard, |entry, _| assert!(entry.2 < 10)),
                    _ => large.visit(&mut at, &guard, |entry| assert!(seen.insert(entry.2), "twice")),
                }
            }
            // A finished walk visits nothing more.
            large.visit(&mut at, &guard, |_| panic!("all was seen"));
        }
        drop(guard);
        drop((large, small, empty));
        drop(slots);
    });
}

#[test]
fn a_cell_replaces_only_its_current_value() {
    let (a, b) = (RcuCell::new(), RcuCell::new());
    let guard = pin();
    assert!(a.replace(None, 1, &guard) && b.replace(None, 1, &guard));
    assert!(!a.replace(b.load(&guard), 2, &guard) && !a.replace(Some(&1), 2, &guard) && !a.replace(None, 2, &guard));
    assert_eq!((a.load(&guard), b.load(&guard)), (Some(&1), Some(&1)));
    let before = a.load(&guard);
    assert!(a.replace(before, 2, &guard));
    assert!(!a.replace(before, 3, &guard), "that one was replaced");
    // Values of size zero have no address of their own: any is accepted as the current one.
    let nothing = RcuCell::new();
    assert!(nothing.replace(None, (), &guard));
    let there = nothing.load(&guard);
    assert!(nothing.replace(there, (), &guard));
    nothing.clear(&guard);
    assert!(nothing.load(&guard).is_none() && !nothing.replace(Some(&()), (), &guard));
}

#[test]
fn an_item_on_one_kind_of_list_is_not_found_on_another() {
    let tree = MemcgTree::new(0);
    let (lists, other, eager) = (ListLru::<Item>::new(), ListLru::<Item>::new(), EagerListLru::<Item>::new(1));
    let on_eager = item(1);
    eager.add(on_eager.clone(), tree.root(), NodeId::ZERO).unwrap();
    assert!(lists.del(&on_eager).is_none() && !lists.promote(&on_eager) && lists.memcg_of(&on_eager).is_none());
    assert!(lists.add(on_eager.clone(), tree.root(), NodeId::ZERO).is_err());
    let on_list = item(2);
    lists.add(on_list.clone(), tree.root(), NodeId::ZERO).unwrap();
    assert!(eager.del(&on_list).is_none() && other.del(&on_list).is_none());
    assert!(eager.add(on_list.clone(), tree.root(), NodeId::ZERO).is_err());
    assert!(eager.del(&on_eager).is_some() && lists.del(&on_list).is_some());
}
