//! The pass compared with the baseline (`FullScan`), which calls every shrinker: both always free
//! the same objects.
//!
//! Two equal worlds run the same random operations. A difference means that a bit or a debt was
//! lost, or that a pass visited too little. Calls are not compared: the pass makes fewer.
//!
//! A new way to call shrinkers is compared in the same way.

#![cfg(not(lowwater_loom))]

mod common;

use common::Shelf;
use lowwater_lru_core::{Memcg, MemcgTree, NodeId};
use lowwater_shrinker::baseline::FullScan;
use lowwater_shrinker::{Progress, Reclaim, Registration, Registry, Work};
use proptest::prelude::*;
use std::sync::Arc;

const NODES: u16 = 2;
const SHELVES: usize = 3;

/// A tree of 1 + 2 + 4 groups, and three shelves: one aware of groups and nodes, one of nodes only,
/// one of groups only.
struct World {
    _tree: MemcgTree,
    registry: Registry,
    groups: Vec<Memcg>,
    shelves: Vec<(Arc<Shelf>, Registration)>,
}

impl World {
    fn new() -> Self {
        let tree = MemcgTree::new(0);
        let shelves: Vec<_> = (0..SHELVES).map(|_| Arc::new(Shelf::new())).collect();
        shelves.iter().for_each(|shelf| shelf.hear_of_deaths(&tree));
        let registry = Registry::new(&tree, NODES.into());
        let mut groups = vec![tree.root().clone()];
        for a in ["a", "b"] {
            let above = tree.root().create(a).unwrap();
            groups.push(above.clone());
            groups.extend(["a", "b"].map(|b| above.create(b).unwrap()));
        }
        let shelves = shelves
            .into_iter()
            .enumerate()
            .map(|(n, shelf)| {
                let builder = registry.builder("shelf").batch(16).memcg_aware(n != 1).numa_aware(n != 2);
                let registration = shelf.register(builder.alloc().unwrap());
                (shelf, registration)
            })
            .collect();
        Self { _tree: tree, registry, groups, shelves }
    }

    fn add(&self, shelf: usize, group: usize, node: u16, objects: u64) {
        // A shelf that is not aware of groups or nodes is called for the root or node 0 only, so
        // its objects are there.
        let group = if shelf == 1 { 0 } else { group };
        let node = if shelf == 2 { 0 } else { node };
        self.shelves[shelf].0.add(&self.groups[group], NodeId::new(node), objects);
    }

    fn lens(&self) -> Vec<u64> {
        let mut lens = Vec::new();
        for (shelf, _) in &self.shelves {
            for group in &self.groups {
                lens.extend((0..NODES).map(|node| shelf.len(group, NodeId::new(node))));
            }
        }
        lens
    }

    fn owed(&self) -> Vec<u64> {
        let mut owed = Vec::new();
        for (_, registration) in &self.shelves {
            for group in &self.groups {
                owed.extend((0..NODES).map(|node| self.registry.owed(group, NodeId::new(node), registration.id())));
            }
        }
        owed
    }
}

#[derive(Clone, Debug)]
enum Op {
    Add { shelf: usize, group: usize, node: u16, objects: u64 },
    Pass { group: usize, node: u16, priority: u8, background: bool },
    Drop,
    Offline(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let add = (0..SHELVES, 0..7_usize, 0..NODES, prop_oneof![1..4_u64, 1..500_u64]);
    let pass = (prop_oneof![Just(0_usize), 0..7_usize], 0..NODES, 0..=12_u8, any::<bool>());
    prop_oneof![
        4 => add.prop_map(|(shelf, group, node, objects)| Op::Add { shelf, group, node, objects }),
        5 => pass.prop_map(|(group, node, priority, background)| Op::Pass { group, node, priority, background }),
        1 => Just(Op::Drop),
        1 => (1..7_usize).prop_map(Op::Offline),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 400 }, ..ProptestConfig::default() })]

    #[test]
    fn s10_s11_a_pass_frees_the_same_objects_as_the_baseline(ops in proptest::collection::vec(op(), 1..60)) {
        let (bits, plain) = (World::new(), World::new());
        for op in &ops {
            match *op {
                Op::Add { shelf, group, node, objects } => {
                    bits.add(shelf, group, node, objects);
                    plain.add(shelf, group, node, objects);
                }
                Op::Pass { group, node, priority, background } => {
                    let flags = if background { Reclaim::KSWAPD } else { Reclaim::FOREGROUND };
                    let (node, mut work) = (NodeId::new(node), Work::unlimited());
                    let ours = bits.registry.shrink(&bits.groups[group], node, priority, flags, &mut work);
                    let full_scan = FullScan::new(&plain.registry);
                    let theirs = full_scan.shrink(&plain.groups[group], node, priority, flags, &mut work);
                    let freed = |progress: Progress| (progress.freed, progress.scanned);
                    prop_assert_eq!(freed(ours), freed(theirs));
                }
                Op::Drop => prop_assert_eq!(bits.registry.drop_caches(), FullScan::new(&plain.registry).drop_caches()),
                Op::Offline(group) => {
                    prop_assert_eq!(bits.groups[group].offline(), plain.groups[group].offline());
                }
            }
            prop_assert_eq!(bits.lens(), plain.lens());
            prop_assert_eq!(bits.owed(), plain.owed());
        }
        bits.registry.drop_caches();
        prop_assert_eq!(bits.lens().iter().sum::<u64>(), 0, "nothing is hidden");
        prop_assert_eq!(bits.registry.snapshot().live_pairs, 0, "and no bit is left");
    }
}

#[test]
fn drop_caches_frees_all_objects_whatever_the_seeks() {
    for seeks in [0, 100] {
        for is_full_scan in [false, true] {
            let tree = MemcgTree::new(0);
            let registry = Registry::new(&tree, 1);
            let shelf = Arc::new(Shelf::new());
            let _registration = shelf.register(registry.builder("shelf").seeks(seeks).alloc().unwrap());
            shelf.add(tree.root(), NodeId::ZERO, 1_000);
            let freed = if is_full_scan { FullScan::new(&registry).drop_caches() } else { registry.drop_caches() };
            assert_eq!((freed, shelf.total()), (1_000, 0), "seeks {seeks}, full scan: {is_full_scan}");
        }
    }
}
