//! `Registry::footprint` compared with a counting allocator: exact to the byte, at every step of a
//! map's life. The tests of S25 (memory in proportion to live pairs) depend on it.
//!
//! A new allocation of the map must be added to `footprint`, or this test fails.
//!
//! Numbers such as S25 are those of docs/INVARIANTS.md.

#![cfg(all(feature = "std", not(lowwater_loom)))]

mod common;

use allocation_counter::measure;
use common::Shelf;
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId};
use lowwater_shrinker::{Reclaim, Registry, RegistryConfig, Scan, Work};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;

/// More than one word of a bitmap.
const SHRINKERS: u64 = 70;

/// Bytes that `run` allocates and does not free.
fn grown(run: impl FnOnce()) -> i64 {
    measure(run).bytes_current
}

fn footprint(registry: &Registry) -> i64 {
    registry.footprint().get() as i64
}

#[test]
fn s25_footprint_is_what_is_allocated() {
    let tree = MemcgTree::new(0);
    // Four levels below the root, whose children's ids (up to 100) are in two words of a bitmap.
    let mut groups: Vec<Memcg> = Vec::new();
    for n in 0..100 {
        let above = if n % 4 == 0 { tree.root() } else { &groups[n - 1] };
        groups.push(above.create(&n.to_string()).unwrap());
    }
    for nodes in [1, 3] {
        // Not measured: the configuration belongs to the caller.
        let config = RegistryConfig::new(nodes);
        let mut made = None;
        let in_tree = tree.footprint().get() as i64;
        let allocated = grown(|| made = Some(Registry::with_config(&tree, config)));
        let made = made.unwrap();
        let in_tree = tree.footprint().get() as i64 - in_tree;
        assert_eq!(footprint(&made) + in_tree, allocated, "{nodes} nodes");
        life(&tree, &made, &groups);
    }
}

/// Compares after each step from the first pair to the last, with debts, visits and bounded passes.
fn life(tree: &MemcgTree, registry: &Registry, groups: &[Memcg]) {
    let stuck = Arc::new(AtomicBool::new(false));
    let shelves: Vec<_> = (0..SHRINKERS)
        .map(|n| {
            let shelf = Arc::new(Shelf::new());
            let stuck = Arc::clone(&stuck);
            shelf.scan.set(Box::new(move |_| stuck.load(Relaxed).then_some(Scan::Stop))).ok().unwrap();
            let name = format!("shelf {n}");
            let before = footprint(registry);
            let mut registration = None;
            let registered = grown(|| registration = Some(shelf.register(registry.builder(&name).alloc().unwrap())));
            // The occupancy handle belongs to the shelf: two counts and a pointer.
            let allocated = registered - 3 * size_of::<usize>() as i64;
            assert_eq!(footprint(registry) - before, allocated, "{name}");
            (shelf, registration.unwrap())
        })
        .collect();
    let nodes = registry.nodes() as u16;
    let node = |n: usize| NodeId::new(n as u16 % nodes);
    // The shelves allocate their own memory before the measurement.
    for (shelf, _) in &shelves {
        for group in groups {
            (0..nodes).for_each(|n| shelf.add(group, NodeId::new(n), 1));
        }
    }
    registry.drop_caches();
    let (before, allocated) = (footprint(registry), Cell::new(0));
    let same = |what: &str, run: &dyn Fn()| {
        allocated.set(allocated.get() + grown(run));
        assert_eq!(footprint(registry) - before, allocated.get(), "{what}");
    };

    // Most groups get one shrinker; the first seven get ten, most of them in both words.
    for (n, (shelf, _)) in shelves.iter().enumerate() {
        same("the first of a shrinker", &|| {
            shelf.add(&groups[n % 7], node(n), 5_000);
        });
        same("another", &|| {
            shelf.add(&groups[n * 7 % groups.len()], node(n / 2), 5_000);
        });
    }
    stuck.store(true, Relaxed);
    for n in 0..nodes {
        same("debts and visits", &|| {
            registry.shrink(tree.root(), NodeId::new(n), 6, Reclaim::FOREGROUND, &mut Work::unlimited());
        });
    }
    assert!(shelves.iter().any(|(_, registration)| registry.owed(&groups[1], node(1), registration.id()) > 0));
    stuck.store(false, Relaxed);
    for _ in 0..20 {
        for root in [tree.root(), &groups[0], &groups[5]] {
            same("a pass that stops on its way", &|| {
                registry.shrink(root, node(0), 6, Reclaim::FOREGROUND, &mut Work::objects(30));
            });
        }
        same("direct reclaim", &|| {
            registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| true);
        });
    }
    same("after a drop", &|| {
        registry.drop_caches();
    });
    assert_eq!(registry.snapshot().live_pairs, 0);
    assert!(registry.snapshot().map_bytes > ByteSize::ZERO);
}
