//! A leaked value costs its own memory, and blocks no other code.
//!
//! `mem::forget` is safe code, so no guarantee may depend on a drop.
//!
//! A change must ensure that other values are used after the leak, and not only before it.

use crate::common::{in_a_process, within};
use lowwater_base::compact_bytes::CompactBytes;
use lowwater_base::ZeroedAtomics;
use lowwater_lru_core::list_lru::baseline::EagerListLru;
use lowwater_lru_core::topology::Fixed;
use lowwater_lru_core::{linked, ByteSize, Isolated, Links, ListLru, Memcg, MemcgTree, NodeId, OfflineHook};
use lowwater_rcu::{pin, RcuCell};
use lowwater_store::hash_chains::{HashChains, HashLink, Reader};
use lowwater_store::slab::{Slab, SlotState};
use lowwater_store::{hash_node, slotted, CompressedLinks, ExtendibleIndex, Slot};
use std::mem::forget;
use std::sync::Arc;

const N0: NodeId = NodeId::ZERO;

pub struct Item(pub Links, pub u64);
linked!(impl[] for Item { 0, handle: Arc<Item> });

pub fn item(n: u64) -> Arc<Item> {
    Arc::new(Item(Links::new(), n))
}

pub struct Name {
    link: HashLink<Name>,
}
hash_node!(impl[] for Name { link });

pub fn name() -> Arc<Name> {
    Arc::new(Name { link: HashLink::new() })
}

pub struct Entry(CompressedLinks, SlotState, pub u64);
slotted!(impl[] for Entry { 0, 1, weight: |entry| size_of_val(entry) as u64 });

pub fn entry(n: u64) -> Entry {
    Entry(CompressedLinks::new(), SlotState::new(0), n)
}

/// Inserts an object and returns its handle. The object is freed when it has no handle and is in no
/// index.
pub fn put(index: &ExtendibleIndex<Entry>, n: u64) -> Slot<Entry> {
    let slot = index.slab().alloc(entry(n), N0).ok().expect("memory");
    let (is, hasher) = (|there: &Entry, new: &Entry| there.2 == new.2, |entry: &Entry| entry.2);
    index.insert(slot, n, &pin(), is, &hasher, |slot, _| Ok(slot)).expect("memory").1
}

pub struct Hook;

impl OfflineHook for Hook {
    fn offline(&self, _: &Memcg, _: &Memcg) {}
}

#[test]
fn leaks_cost_only_their_own_memory() {
    in_a_process("leaks::leaks_cost_only_their_own_memory", || {
        within("use beside leaks", || {
            let tree = MemcgTree::new(2);
            let group = tree.root().create("leaked").unwrap();
            for round in 0..3 {
                // Handles, and errors that contain handles.
                forget(group.clone());
                group.set_high(ByteSize::ZERO);
                group.set_max(ByteSize::MAX);
                forget(group.try_charge(ByteSize::new(1)).unwrap());
                group.set_max(ByteSize::new(2));
                forget(group.try_charge(ByteSize::mib(1)).unwrap_err());
                forget(Arc::new(Hook));
                let other = MemcgTree::new(2);
                other.add_hook(Arc::new(Hook));
                forget(other.root().create("child").unwrap());
                forget(other);

                // Values that are read without a lock.
                let cell = RcuCell::new();
                assert!(cell.replace(None, vec![round; 100], &pin()));
                assert!(cell.replace(cell.load(&pin()), vec![round; 100], &pin()));
                forget(cell);
                let (index, table, slab) =
                    (ExtendibleIndex::<Entry>::new(), HashChains::<Name>::new(4), Slab::<Entry>::new());
                forget((put(&index, 1), put(&index, 1)));
                let kept = name();
                assert!(table.insert(1, kept.clone()).is_ok() && table.insert(2, name()).is_ok());
                let reader = Reader::enter();
                assert!(table.find(1, &reader, |_| true).is_some());
                drop(reader);
                assert!(table.remove(1, &kept));
                forget(slab.alloc(entry(1), N0).ok().expect("memory"));
                drop(slab);
                forget(index.slab().alloc(entry(2), N0));
                forget((index, table));

                // Lists with items.
                let lists = ListLru::<Item>::new();
                for n in 0..10 {
                    lists.add(item(n), &group, N0).unwrap();
                }
                let mut some = Isolated::new();
                lists.walk_one(&group, N0, &mut 5, |it| it.isolate(&mut some));
                assert_eq!((some.len(), lists.count_one(&group, N0)), (5, 5));
                let twice = item(10);
                lists.add(twice.clone(), &group, N0).unwrap();
                forget(lists.add(twice, &group, N0).unwrap_err());
                forget((some, lists));
                let eager = EagerListLru::<Item>::new(1);
                eager.add(item(0), &group, N0).unwrap();
                forget(eager);

                // Memory.
                forget((ZeroedAtomics::try_new(100_000), Fixed::new(3), CompactBytes::share(Arc::new(1_u64), 2)));
                forget(CompactBytes::<u64>::own(Box::from(*b"bytes"), 1));
            }
            // All other code continues: a leaked handle keeps its group and its id.
            let lists = ListLru::<Item>::new();
            lists.add(item(1), &group, N0).unwrap();
            group.offline().unwrap();
            assert_eq!(lists.count_one(tree.root(), N0), 1);
            let (id, again) = (group.id(), tree.root().create("leaked").unwrap());
            drop(group);
            assert_ne!(again.id(), id);
            assert_eq!(tree.get(id).as_ref(), Some(tree.root()), "it is dying, and stands for its parent");
        });
    });
}

#[test]
fn a_leaked_group_walk_keeps_only_its_group() {
    in_a_process("leaks::a_leaked_group_walk_keeps_only_its_group", || {
        within("ending groups", || {
            let tree = MemcgTree::new(0);
            let top = tree.root().create("top").unwrap();
            let children: Vec<_> = (0..4).map(|n| top.create(&n.to_string()).unwrap()).collect();
            let ids: Vec<_> = children.iter().map(Memcg::id).collect();
            for steps in 0..5 {
                let mut walk = top.descendants();
                assert_eq!(walk.by_ref().take(steps).count(), steps);
                forget(walk);
            }
            for child in children {
                child.offline().unwrap();
            }
            assert!(top.children().is_empty());
            assert_eq!(top.descendants().count(), 1);
            let new = top.create("new").unwrap();
            assert_eq!(top.descendants().last(), Some(new.clone()));
            // The walks of 2, 3 and 4 steps have leaked a handle on the child that they stood on.
            assert_eq!(ids.iter().filter(|id| tree.get(**id).is_some_and(|group| group != new)).count(), 3);
            new.offline().unwrap();
            top.offline().unwrap();
            assert_eq!((tree.len(), tree.root().descendants().count()), (1, 1));
        });
    });
}
