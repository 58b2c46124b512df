//! Handles that are dropped, and used, after a thread's thread-locals are destroyed.
//!
//! The library's thread-locals are gone then, so every access to them must have a fallback.

use crate::common::at_the_end_of_a_thread;
use crate::leaks::{entry, item, name, put, Entry, Hook, Item, Name};
use lowwater_base::compact_bytes::CompactBytes;
use lowwater_base::ZeroedAtomics;
use lowwater_lru_core::list_lru::baseline::EagerListLru;
use lowwater_lru_core::topology::{Fixed, Topology as _};
use lowwater_lru_core::{ByteSize, Isolated, ListLru, MemcgTree, NodeId};
use lowwater_rcu::{pin, RcuCell};
use lowwater_store::hash_chains::{HashChains, Reader};
use lowwater_store::{ExtendibleIndex, Slab};
use std::sync::Arc;

const N0: NodeId = NodeId::ZERO;

#[test]
fn handles_may_be_dropped_late_on_a_thread() {
    at_the_end_of_a_thread("groups", || {
        let tree = MemcgTree::new(2);
        let group = tree.root().create("group").unwrap();
        let _ = group.try_charge(ByteSize::kib(1)).unwrap();
        let mut walk = tree.root().descendants();
        walk.next();
        tree.add_hook(Arc::new(Hook));
        Box::new(move || {
            let late = group.create("late").unwrap();
            let _ = late.try_charge(ByteSize::kib(1)).unwrap();
            late.uncharge(ByteSize::kib(1));
            assert_eq!(walk.next(), Some(group.clone()));
            let over = {
                late.set_max(ByteSize::ZERO);
                late.try_charge(ByteSize::new(1)).unwrap_err()
            };
            late.offline().unwrap();
            tree.drain_stock();
            drop((walk, over, late));
            drop(tree);
            group.uncharge(ByteSize::kib(1));
        })
    });
    at_the_end_of_a_thread("structures read without a lock", || {
        let (cell, index, table) = (RcuCell::new(), ExtendibleIndex::<Entry>::new(), HashChains::<Name>::new(4));
        assert!(cell.replace(None, String::from("early"), &pin()));
        let mut slots = vec![put(&index, 1)];
        table.insert(1, name()).ok().unwrap();
        let (slab, early) = (Slab::<Entry>::new(), name());
        let slot = slab.alloc(entry(7), N0).ok().expect("memory");
        table.insert(2, early.clone()).ok().unwrap();
        let inside = (pin(), Reader::enter());
        Box::new(move || {
            let guard = pin();
            assert!(cell.replace(cell.load(&guard), String::from("late"), &guard));
            assert_eq!(cell.load(&guard).unwrap(), "late");
            drop(guard);
            for n in 0..500 {
                slots.push(put(&index, n));
            }
            assert!(index.get(499, &pin(), |entry| entry.2 == 499).is_some());
            let reader = Reader::enter();
            assert!(table.find(2, &reader, |_| true).is_some());
            drop(reader);
            drop(inside);
            assert!(table.remove(2, &early));
            let late = slab.alloc(entry(8), N0).ok().expect("memory");
            assert_eq!(slot.2 + late.2, 15);
            drop((slab, slot, late));
            drop((cell, index, table));
            drop(slots);
        })
    });
    at_the_end_of_a_thread("lists", || {
        let tree = MemcgTree::new(0);
        let (lists, eager) = (ListLru::<Item>::new(), EagerListLru::<Item>::new(1));
        for n in 0..10 {
            lists.add(item(n), tree.root(), N0).unwrap();
            eager.add(item(n), tree.root(), N0).unwrap();
        }
        let mut some = Isolated::new();
        lists.walk_one(tree.root(), N0, &mut 3, |it| it.isolate(&mut some));
        Box::new(move || {
            lists.walk_one(tree.root(), N0, &mut 3, |it| it.isolate(&mut some));
            let twice = some.pop().unwrap();
            lists.add(twice.clone(), tree.root(), N0).unwrap();
            assert!(lists.add(twice, tree.root(), N0).is_err());
            drop(some);
            drop(tree);
            drop((lists, eager));
        })
    });
    at_the_end_of_a_thread("memory and topologies", || {
        let values = (ZeroedAtomics::try_new(100_000), CompactBytes::share(Arc::new(1_u64), 1), Fixed::new(2));
        Box::new(move || {
            assert_eq!(values.2.current(), N0);
            drop((values.1.clone(), ZeroedAtomics::try_new(100)));
            drop(values);
        })
    });
}
