//! Direct reclaim: its shares, its end, and its bound in time.
//!
//! Its cost beside debts, S23 of docs/INVARIANTS.md, is in `invariants.rs` and `debts.rs`.
//!
//! A change must ensure that a call ends at its bounds, whether objects are freed, used or
//! deferred.

#![cfg(not(lowwater_loom))]

mod common;

use common::{shelf_on, Shelf};
use lowwater_lru_core::{MemcgTree, NodeId};
use lowwater_shrinker::{DirectStop, Reclaim, Registry, RegistryConfig, Scan};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

const N0: NodeId = NodeId::ZERO;

#[test]
fn direct_reclaim_takes_small_shares_round_robin_and_stops_when_done() {
    let (tree, registry, shelf, _registration) = shelf_on(2, Shelf::new());
    let groups: Vec<_> = (0..4).map(|g| tree.root().create(&g.to_string()).unwrap()).collect();
    for (n, group) in groups.iter().enumerate() {
        shelf.add(group, NodeId::new((n % 2) as u16), 160);
    }
    assert_eq!(
        registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| true).stopped,
        DirectStop::Done,
        "nothing to do"
    );
    let outcome = registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| shelf.total() <= 600);
    assert_eq!(outcome.stopped, DirectStop::Done);
    assert_eq!(outcome.freed, 40, "a sixteenth of each of the four");
    let outcome = registry.direct_reclaim(&groups[2], Reclaim::FOREGROUND, &|| false);
    assert_eq!((outcome.freed, outcome.stopped), (150, DirectStop::NothingLeft));
    assert_eq!(groups.iter().enumerate().map(|(n, g)| shelf.len(g, NodeId::new((n % 2) as u16))).sum::<u64>(), 450);
}

#[test]
fn direct_reclaim_gives_up_on_objects_that_are_all_in_use() {
    let tree = MemcgTree::new(0);
    let config = RegistryConfig::new(1).direct_scan_max(u64::MAX).direct_time_max_ns(u64::MAX);
    let registry = Registry::with_config(&tree, config);
    let shelf = Arc::new(Shelf::new());
    shelf.scan.set(Box::new(|_| Some(Scan::Freed(0)))).ok().unwrap();
    let _registration = shelf.register(registry.builder("shelf").alloc().unwrap());
    shelf.add(tree.root(), N0, 1_000);
    let outcome = registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false);
    // Three laps (`IDLE_LAPS_MAX`), each over a sixteenth of the objects.
    assert_eq!((outcome.scanned, outcome.stopped), (3 * 62, DirectStop::NothingLeft));
}

/// Another thread may charge again what it uncharged just before.
#[test]
fn direct_reclaim_gives_up_if_it_was_done_for_a_moment() {
    for at in 0..40 {
        let tree = MemcgTree::new(0);
        let config = RegistryConfig::new(1).direct_scan_max(100_000).direct_time_max_ns(u64::MAX);
        let registry = Registry::with_config(&tree, config);
        let shelf = Arc::new(Shelf::new());
        shelf.scan.set(Box::new(|_| Some(Scan::Freed(0)))).ok().unwrap();
        let _registration = shelf.register(registry.builder("shelf").alloc().unwrap());
        shelf.add(tree.root(), N0, 1_000);
        let calls = std::sync::atomic::AtomicU64::new(0);
        let outcome = registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| calls.fetch_add(1, Relaxed) == at);
        assert!(outcome.scanned <= 4 * 62, "{} objects, done at question {at}", outcome.scanned);
    }
}

/// A clock that each reading advances by 100 us.
#[derive(Default)]
struct Ticks(std::sync::atomic::AtomicU64);

impl lowwater_shrinker::Clock for Ticks {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(100_000, Relaxed)
    }
}

#[test]
fn direct_reclaim_is_bounded_in_time() {
    let tree = MemcgTree::new(0);
    let config = RegistryConfig::new(1).clock(Arc::new(Ticks::default())).direct_scan_max(u64::MAX);
    let registry = Registry::with_config(&tree, config);
    let shelf = Arc::new(Shelf::new());
    let _registration = shelf.register(registry.builder("shelf").alloc().unwrap());
    shelf.add(tree.root(), N0, 1_000_000);
    let outcome = registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false);
    assert_eq!(outcome.stopped, DirectStop::TimeBound);
    assert!(shelf.scans.load(Relaxed) <= 5, "the default bound of 500 us is five ticks");
}

/// Visits that only defer scan nothing, so the bound of objects does not end them.
#[test]
fn direct_reclaim_is_bounded_in_time_if_all_visits_defer() {
    let tree = MemcgTree::new(0);
    let config = RegistryConfig::new(1).clock(Arc::new(Ticks::default()));
    let registry = Registry::with_config(&tree, config);
    let shelf = Arc::new(Shelf::new());
    shelf
        .count
        .set(Box::new(|sc| {
            sc.will_defer();
            None
        }))
        .ok()
        .unwrap();
    let _registration = shelf.register(registry.builder("shelf").alloc().unwrap());
    let groups: Vec<_> = (0..100).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    groups.iter().for_each(|group| shelf.add(group, N0, 1));
    let outcome = registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false);
    assert_eq!((outcome.scanned, outcome.stopped), (0, DirectStop::TimeBound));
    assert!(outcome.callbacks <= 5, "{} visits in five ticks", outcome.callbacks);
}
