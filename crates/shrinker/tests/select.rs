//! Selections: a group with its descendants, one node, one shrinker, one kind; everything else is
//! unaffected.
//!
//! Most tests compare what is left in every (shelf, group, node) with the expected table.
//!
//! A new restriction gets a table of its own.

#![cfg(not(lowwater_loom))]

mod common;

use common::Shelf;
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId};
use lowwater_shrinker::{Caches, Reclaim, Registration, Registry, RegistryConfig, Select, Work};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

const NODES: u16 = 2;
const OBJECTS: u64 = 100;
const OBJECT_BYTES: u64 = 10;

/// Three groups (the third below the second), two nodes, a shelf of `Caches::DATA` and a shelf of
/// `Caches::OBJECTS`; 100 objects for each shelf, group and node.
struct World {
    _tree: MemcgTree,
    registry: Registry,
    groups: [Memcg; 3],
    shelves: [(Arc<Shelf>, Registration); 2],
}

impl World {
    fn new() -> Self {
        Self::with_config(RegistryConfig::new(NODES.into()))
    }

    fn with_config(config: RegistryConfig) -> Self {
        let tree = MemcgTree::new(0);
        let registry = Registry::with_config(&tree, config);
        let (a, b) = (tree.root().create("a").unwrap(), tree.root().create("b").unwrap());
        let groups = [a, b.clone(), b.create("c").unwrap()];
        let shelves = [Caches::DATA, Caches::OBJECTS].map(|caches| {
            let shelf = Arc::new(Shelf::of_bytes(OBJECT_BYTES));
            let registration = shelf.register(registry.builder("shelf").caches(caches).alloc().unwrap());
            for memcg in &groups {
                for node in 0..NODES {
                    let _ = memcg.try_charge(ByteSize::new(OBJECTS * OBJECT_BYTES)).unwrap();
                    shelf.add(memcg, NodeId::new(node), OBJECTS);
                }
            }
            (shelf, registration)
        });
        Self { _tree: tree, registry, groups, shelves }
    }

    /// The remaining objects, by shelf, group, node.
    fn left(&self) -> [[[u64; 2]; 3]; 2] {
        [0, 1].map(|s| [0, 1, 2].map(|g| [0, 1].map(|n| self.shelves[s].0.len(&self.groups[g], NodeId::new(n)))))
    }

    fn calls(&self) -> [u64; 2] {
        [0, 1].map(|s| self.shelves[s].0.counts.load(Relaxed))
    }
}

const FULL: [[u64; 2]; 3] = [[OBJECTS; 2]; 3];

#[test]
fn select_memcg_includes_its_subtree() {
    let world = World::new();
    let freed = world.registry.drop_selected(&Select::all().memcg(&world.groups[1]));
    assert_eq!(freed, 8 * OBJECTS);
    assert_eq!(world.left(), [[[OBJECTS; 2], [0; 2], [0; 2]]; 2]);
}

#[test]
fn select_node_excludes_other_nodes() {
    let world = World::new();
    assert_eq!(world.registry.drop_selected(&Select::all().node(NodeId::new(1))), 6 * OBJECTS);
    assert_eq!(world.left(), [[[OBJECTS, 0]; 3]; 2]);
}

#[test]
fn select_shrinker_calls_no_other_shrinker() {
    let world = World::new();
    let select = Select::all().shrinker(world.shelves[1].1.id());
    assert_eq!(world.registry.drop_selected(&select), 6 * OBJECTS);
    assert_eq!(world.left(), [FULL, [[0; 2]; 3]]);
    assert_eq!(world.calls()[0], 0);
}

#[test]
fn caches_masks_equal_the_kernels_numbers() {
    let world = World::new();
    // As in /proc/sys/vm/drop_caches: 1 for data, 2 for objects, 3 for both.
    assert_eq!(world.registry.drop_selected(&Select::all().caches(Caches::from_bits(1).unwrap())), 6 * OBJECTS);
    assert_eq!(world.left(), [[[0; 2]; 3], FULL]);
    assert_eq!(world.registry.drop_selected(&Select::all().caches(Caches::empty())), 0);
    assert_eq!(world.calls()[1], 0);
    assert_eq!(world.registry.drop_selected(&Select::all().caches(Caches::from_bits(3).unwrap())), 6 * OBJECTS);
}

#[test]
fn reclaim_by_bytes_stays_within_the_selection() {
    let world = World::new();
    let select = Select::all().memcg(&world.groups[1]).node(NodeId::ZERO).shrinker(world.shelves[0].1.id());
    let asked = 50 * OBJECT_BYTES;
    let fell = world.registry.reclaim_selected(&select, ByteSize::new(asked)).get();
    assert!((asked..2 * asked).contains(&fell), "{fell} bytes for {asked}");
    // More than exists: all of the selection is freed, and nothing else.
    let rest = world.registry.reclaim_selected(&select, ByteSize::mib(1)).get();
    assert_eq!(fell + rest, 2 * OBJECTS * OBJECT_BYTES);
    assert_eq!(world.left(), [[[OBJECTS; 2], [0, OBJECTS], [0, OBJECTS]], FULL]);
    assert_eq!(world.calls()[1], 0);
}

#[test]
fn reclaim_by_bytes_stays_on_its_node_if_victims_are_selected_by_utility() {
    let world = World::with_config(RegistryConfig::new(NODES.into()).by_utility(true));
    let fell = world.registry.reclaim_selected(&Select::all().node(NodeId::new(1)), ByteSize::mib(1)).get();
    assert_eq!(fell, 6 * OBJECTS * OBJECT_BYTES);
    assert_eq!(world.left(), [[[OBJECTS, 0]; 3]; 2]);
    assert_eq!(
        world.registry.reclaim_selected(&Select::all().node(NodeId::new(NODES)), ByteSize::mib(1)),
        ByteSize::ZERO
    );
    assert_eq!(world.left(), [[[OBJECTS, 0]; 3]; 2], "there is no such node");
}

#[test]
fn a_selected_pass_scans_its_share_at_that_priority() {
    let world = World::new();
    let select = Select::all().caches(Caches::DATA);
    let progress = world.registry.shrink_selected(&select, 3, Reclaim::KSWAPD, &mut Work::unlimited());
    // A quarter of each of the six lists: 4 / (2 << 3).
    assert_eq!(progress.freed, 6 * OBJECTS / 4);
    assert_eq!(world.left()[1], FULL);
}

#[test]
fn a_drop_frees_objects_of_any_seeks() {
    // Above `seeks` 4 the policy's part at the highest pressure would be less than all objects.
    for seeks in [0, 1, 4, 5, 100, u32::MAX] {
        for objects in [1, 2, 1_000] {
            let tree = MemcgTree::new(0);
            let registry = Registry::new(&tree, 1);
            let shelf = Arc::new(Shelf::of_bytes(0));
            let _registration = shelf.register(registry.builder("dear").seeks(seeks).alloc().unwrap());
            shelf.add(tree.root(), NodeId::ZERO, objects);
            assert_eq!(registry.drop_caches(), objects, "seeks {seeks}");
            assert_eq!(shelf.len(tree.root(), NodeId::ZERO), 0);
        }
    }
}
