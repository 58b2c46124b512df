//! Shrinkers that are busy: another thread frees their objects ([`Scan::Busy`]).
//!
//! A change must ensure that memory of a busy shrinker is waited for, within bounds, before other
//! groups lose their protection, and that only a caller that rests waits.

#![cfg(all(feature = "std", not(lowwater_loom)))]

mod common;

use common::Shelf;
use lowwater_lru_core::{ByteSize, MemcgTree, NodeId};
use lowwater_shrinker::{DirectStop, Job, Reclaim, Registration, Registry, RegistryConfig, Scan, Step, Work};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;

const N0: NodeId = NodeId::ZERO;
/// More steps than a job waits.
const STEPS: usize = 10_000;

/// Objects of 100 bytes in a group below its `low`, and a busy shelf in the root.
struct World {
    tree: MemcgTree,
    registry: Registry,
    protected: (Arc<Shelf>, Registration),
    busy: (Arc<Shelf>, Registration),
    is_busy: Arc<AtomicBool>,
}

impl World {
    fn new() -> Self {
        let tree = MemcgTree::new(0);
        // Without a bound in time, which a busy machine may exceed before the first scan.
        let registry = Registry::with_config(&tree, RegistryConfig::new(1).direct_time_max_ns(u64::MAX));
        let shelf = || {
            let shelf = Arc::new(Shelf::of_bytes(100));
            let registration = shelf.register(registry.builder("shelf").alloc().unwrap());
            (shelf, registration)
        };
        let (protected, busy) = (shelf(), shelf());
        let group = tree.root().create("protected").unwrap();
        group.set_low(ByteSize::mib(1));
        let is_busy = Arc::new(AtomicBool::new(true));
        let busy_now = Arc::clone(&is_busy);
        busy.0.scan.set(Box::new(move |_| busy_now.load(Relaxed).then_some(Scan::Busy))).ok().unwrap();
        for (shelf, memcg) in [(&protected.0, &group), (&busy.0, tree.root())] {
            let _ = memcg.try_charge(ByteSize::new(100_000)).unwrap();
            shelf.add(memcg, N0, 1_000);
        }
        Self { tree, registry, protected, busy, is_busy }
    }

    /// Returns the objects of the protected and the busy shelf.
    fn left(&self) -> (u64, u64) {
        (self.protected.0.total(), self.busy.0.total())
    }
}

#[test]
fn a_protected_group_is_left_alone_while_another_shrinker_is_busy() {
    let world = World::new();
    let reclaim = || world.registry.direct_reclaim(world.tree.root(), Reclaim::FOREGROUND, &|| false);
    assert_eq!(reclaim().stopped, DirectStop::Busy);
    world.registry.shrink(world.tree.root(), N0, 0, Reclaim::KSWAPD, &mut Work::unlimited());
    assert_eq!(world.left(), (1_000, 1_000));
    // Without the busy one there is nothing else.
    drop(world.busy.1);
    world.registry.direct_reclaim(world.tree.root(), Reclaim::FOREGROUND, &|| world.protected.0.total() < 1_000);
    assert!(world.protected.0.total() < 1_000);
    drop(world.protected.1);
}

#[test]
fn a_job_waits_for_a_busy_shrinker_within_bounds() {
    let world = World::new();
    let mut job = Job::new(world.tree.root().clone(), ByteSize::new(150_000));
    // At a light pressure nothing is scanned yet.
    let waits = (0..STEPS).find(|_| job.step(&world.registry, N0, 4_096) == Step::BackOff);
    assert!(waits.is_some());
    let priority = job.priority();
    for _ in 0..100 {
        assert_eq!(job.step(&world.registry, N0, 4_096), Step::BackOff);
    }
    assert_eq!(job.priority(), priority);
    assert_eq!(world.left(), (1_000, 1_000));
    world.is_busy.store(false, Relaxed);
    let steps = (0..STEPS).take_while(|_| job.step(&world.registry, N0, 4_096) == Step::Again).count();
    assert!(steps < STEPS);
    assert_eq!(world.protected.0.total(), 1_000);
    assert!((400..=500).contains(&world.busy.0.total()), "{}", world.busy.0.total());

    world.is_busy.store(true, Relaxed);
    let mut job = Job::new(world.tree.root().clone(), ByteSize::new(100_000));
    let ends = (0..STEPS).find(|_| !matches!(job.step(&world.registry, N0, 4_096), Step::BackOff | Step::Again));
    assert!(ends.is_some(), "a shrinker that is busy for ever is given up");
}

/// A reclaim on the calling thread, which does not rest, gives up at once.
#[test]
fn a_manual_reclaim_does_not_wait_for_a_busy_shrinker() {
    let world = World::new();
    assert_eq!(world.registry.reclaim(world.tree.root(), ByteSize::new(50_000)), ByteSize::ZERO);
    let scans = world.busy.0.scans.load(Relaxed);
    assert!((1..50).contains(&scans), "{scans} scans");
    assert_eq!(world.left(), (1_000, 1_000));
}

/// Pressure rises where other shrinkers scan and free nothing yet.
#[test]
fn a_job_does_not_wait_where_others_scan() {
    let world = World::new();
    let shelf = Arc::new(Shelf::of_bytes(100));
    let _registration = shelf.register(world.registry.builder("chances").alloc().unwrap());
    shelf.scan.set(Box::new(|_| Some(Scan::Freed(0)))).ok().unwrap();
    shelf.add(world.tree.root(), N0, 100_000);
    let mut job = Job::new(world.tree.root().clone(), ByteSize::ZERO);
    assert_eq!(job.step(&world.registry, N0, 4_096), Step::Again);
    assert!(job.priority() < 12, "{}", job.priority());
}
