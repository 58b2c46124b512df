//! Objects of a registry that are used and dropped inside callbacks, and in bounds of [`Work`].
//!
//! No call may wait for the callback in which it is made.
//!
//! A new public type gets a field in `World`.

use crate::common::{one_shelf, Shelf};
use crate::hazard::within;
use crate::{reclaimer, tree_and_registry};
use lowwater_lru_core::{ByteSize, MemcgTree, NodeId};
use lowwater_shrinker::baseline::FullScan;
use lowwater_shrinker::{
    Bound, Clock, Job, Prepared, Progress, Reclaim, ReclaimReason, Reclaimer, Registration, Registry, RegistryConfig,
    RegistryStats, Scan, ShrinkControl, Step, Work,
};
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const N0: NodeId = NodeId::ZERO;

/// One object of each public type: of `registry`, of the registry of another tree, or one of each.
#[expect(dead_code, reason = "it is there to be dropped")]
struct World {
    stats: RegistryStats,
    job: Job,
    prepared: [Prepared; 2],
    registrations: [Registration; 2],
    reclaimers: [Arc<Reclaimer>; 2],
    config: RegistryConfig,
    registries: [Registry; 2],
    tree: MemcgTree,
}

fn world(registry: &Registry) -> World {
    let (tree, other) = tree_and_registry();
    let of = [registry, &other];
    let reclaimers = of.map(reclaimer);
    World {
        stats: other.snapshot(),
        job: Job::debts(registry.root().clone()),
        prepared: of.map(|registry| registry.builder("prepared").alloc().unwrap()),
        registrations: of.map(|registry| Arc::new(Shelf::new()).register(registry.builder("made").alloc().unwrap())),
        reclaimers,
        config: RegistryConfig::new(3),
        registries: [registry.clone(), other],
        tree,
    }
}

/// The callbacks run on this thread, in `drop_caches`, and on the reclaimer's thread.
#[test]
fn all_parts_of_a_registry_may_be_used_and_dropped_in_a_callback() {
    within("the end of all inside of a callback", || {
        let (tree, registry, shelf, registration) = one_shelf();
        let threads = reclaimer(&registry);
        let worlds = Arc::new(Mutex::new((0..8).map(|_| world(&registry)).collect::<Vec<_>>()));
        let (theirs, calls) = (Arc::clone(&worlds), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&calls);
        let uses_and_drops = move || {
            count.fetch_add(1, Relaxed);
            let Some(mut world) = theirs.lock().unwrap().pop() else { return };
            for registry in &world.registries {
                // Reclaim inside a callback does nothing, so a job sees no debts.
                assert_eq!(world.job.step(registry, N0, 100), Step::Done);
                let mut job = Job::new(registry.root().clone(), ByteSize::ZERO);
                assert!((0..1_000).any(|_| matches!(job.step(registry, N0, 100), Step::Done | Step::Exhausted)));
            }
            for reclaimer in &world.reclaimers {
                reclaimer.wake(world.registries[1].root(), ReclaimReason::Limit);
                reclaimer.charged(world.registries[0].root());
                let _ = (reclaimer.stats(), reclaimer.watermarks());
            }
            drop(world);
        };
        let uses_and_drops = Arc::new(uses_and_drops);
        let again = Arc::clone(&uses_and_drops);
        assert!(shelf
            .scan
            .set(Box::new(move |_| {
                uses_and_drops();
                None
            }))
            .is_ok());
        assert!(shelf
            .count
            .set(Box::new(move |_| {
                again();
                None
            }))
            .is_ok());
        let _ = tree.root().try_charge(ByteSize::kib(1)).unwrap();
        while !worlds.lock().unwrap().is_empty() {
            shelf.add(tree.root(), N0, 10);
            let before = calls.load(Relaxed);
            registry.drop_caches();
            shelf.add(tree.root(), N0, 10);
            threads.wake(tree.root(), ReclaimReason::Manual(ByteSize::kib(1)));
            while calls.load(Relaxed) < before + 2 {
                std::thread::yield_now();
            }
        }
        drop(threads);
        assert_eq!(registration.stats().panics, 0);
        registration.unregister().unwrap();
        let left = registry.snapshot();
        assert_eq!((left.shrinkers.len(), left.live_pairs), (0, 0));
        assert_eq!(registry.builder("next").alloc().unwrap().id().get(), 0, "all ids came back");
    });
}

/// A clock that returns a different value each time, and uses the registry.
struct Wild(Registry, AtomicU64);

impl Clock for Wild {
    fn now_ns(&self) -> u64 {
        let _ = (self.0.drop_caches(), self.0.footprint());
        [0, u64::MAX, 7][self.1.fetch_add(1, Relaxed) as usize % 3]
    }
}

#[test]
fn a_bound_that_panics_lies_or_reenters_terminates() {
    within("bounds", || {
        let (tree, registry, shelf, registration) = one_shelf();
        let root = tree.root();
        let in_background =
            |sc: &mut ShrinkControl<'_>| (!sc.flags().contains(Reclaim::BACKGROUND)).then_some(Scan::Stop);
        assert!(shelf.scan.set(Box::new(in_background)).is_ok());
        let ways: [&dyn Fn(&mut Work<'_>) -> Progress; 3] = [
            &|work| registry.shrink(root, N0, 0, Reclaim::KSWAPD, work),
            &|work| FullScan::new(&registry).shrink(root, N0, 0, Reclaim::FOREGROUND, work),
            &|work| registry.pay_debts(root, N0, work).0,
        ];
        let clock = Wild(registry.clone(), AtomicU64::new(0));
        for (way, calls) in ways.iter().zip([0, 0, 0_u32].map(Cell::new)) {
            shelf.add(root, N0, 1_000);
            // Leaves debts.
            registry.shrink(root, N0, 0, Reclaim::FOREGROUND, &mut Work::unlimited());
            let panics = || panic!("the bound's own fault");
            assert!(catch_unwind(AssertUnwindSafe(|| way(&mut Work::unlimited().while_not(&panics)))).is_err());
            // The nested call of reclaim does nothing, because the thread is in a pass.
            let wild = || {
                calls.set(calls.get() + 1);
                let inside = registry.drop_caches();
                let other = Arc::new(Shelf::new()).register(registry.builder("other").alloc().unwrap());
                drop(other);
                inside > 0 || calls.get() % 3 == 0
            };
            for deadline in [0, 1, u64::MAX] {
                for most in [0, 1, 10, u64::MAX] {
                    let mut work = Work::objects(most).until(&clock, deadline).while_not(&wild);
                    let progress = way(&mut work);
                    let is_bound = most < u64::MAX;
                    assert!(!is_bound || work.scan_left() == most - progress.scanned, "{most}: {progress:?}, {work:?}");
                    assert!(most > 0 || work.bound() == Some(Bound::Scan));
                }
            }
            // The same bound for two registries.
            let (_tree, other) = tree_and_registry();
            let mut work = Work::objects(10);
            assert_eq!(other.shrink(other.root(), N0, 0, Reclaim::KSWAPD, &mut work), Progress::default());
            assert!(way(&mut work).scanned <= 10);
        }
        assert!(registry.drop_caches() > 0);
        assert_eq!(registration.stats().in_flight, 0);
        registration.unregister().unwrap();
    });
}

#[test]
fn a_job_with_extreme_numbers_terminates() {
    within("jobs", || {
        let ends = [0, 1, u64::MAX - 1, u64::MAX];
        for target in ends {
            for scan_max in ends {
                let (tree, registry, shelf, registration) = one_shelf();
                shelf.add(tree.root(), N0, 300);
                let _ = tree.root().try_charge(ByteSize::mib(1)).unwrap();
                let root = || tree.root().clone();
                for mut job in [Job::new(root(), ByteSize::new(target)), Job::debts(root())] {
                    // A step that may scan nothing makes no progress.
                    let most = if scan_max == 0 { 100 } else { 10_000 };
                    let ends = |step| matches!(step, Step::Done | Step::Exhausted);
                    let ended = (0..most).any(|_| ends(job.step(&registry, N0, scan_max)));
                    assert!(ended || scan_max == 0, "a target of {target}, {scan_max} in a step");
                }
                registration.unregister().unwrap();
            }
        }
    });
}
