//! Shrinkers with unusual or wrong results: 0 as a number of objects, more objects than exist,
//! progress without effect, permanent refusal. Each call ends (S21), and no other shrinker is
//! starved.
//!
//! Numbers such as S21 are those of docs/INVARIANTS.md.
//!
//! A new wrong result is added to `LIES`, beside which a correct shrinker must not be starved.

#![cfg(not(lowwater_loom))]
#![forbid(unsafe_code)]

mod common;

use common::{one_shelf, Shelf};
use lowwater_lru_core::{MemcgTree, NodeId};
use lowwater_shrinker::{
    Count, DirectStop, Progress, Reclaim, Registration, Registry, RegistryConfig, Scan, ShrinkControl, Work,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

const N0: NodeId = NodeId::ZERO;

fn pass(registry: &Registry, priority: u8, flags: Reclaim) -> Progress {
    registry.shrink(registry.root(), N0, priority, flags, &mut Work::unlimited())
}

/// Makes the shelf return the correct count, but 0 as a number like any other: `Objects(0)`.
fn count_as_number(shelf: &Arc<Shelf>) {
    let weak = Arc::downgrade(shelf);
    let count = move |sc: &ShrinkControl<'_>| Some(Count::Objects(weak.upgrade()?.len(sc.memcg(), sc.node())));
    shelf.count.set(Box::new(count)).ok().unwrap();
}

#[test]
fn s12_a_shrinker_with_0_objects_is_counted_once_more_and_then_after_occupied() {
    const GROUPS: u64 = 50;
    let (tree, registry, shelf, _registration) = one_shelf();
    count_as_number(&shelf);
    let groups: Vec<_> = (0..GROUPS).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    groups.iter().for_each(|group| shelf.add(group, N0, 1));
    assert_eq!(registry.drop_caches(), GROUPS);
    let calls = shelf.counts.load(Relaxed);
    assert_eq!((calls, registry.snapshot().live_pairs), (2 * GROUPS, 0));
    for _ in 0..100 {
        assert_eq!(pass(&registry, 0, Reclaim::KSWAPD), Progress::default());
    }
    assert_eq!(shelf.counts.load(Relaxed), calls, "the shrinker is not called in 100 passes");
    shelf.add(&groups[7], N0, 5);
    assert_eq!(registry.drop_caches(), 5);
}

#[test]
fn s11_an_object_added_between_both_counts_is_found() {
    let (tree, registry, shelf, _registration) = one_shelf();
    let (weak, root, calls) = (Arc::downgrade(&shelf), tree.root().clone(), AtomicU64::new(0));
    let count = move |_: &ShrinkControl<'_>| {
        let shelf = weak.upgrade()?;
        let len = shelf.len(&root, N0);
        if calls.fetch_add(1, Relaxed) == 0 {
            // Objects are added just after the first count. The bit is still set, so this add does
            // not set it.
            shelf.add(&root, N0, 3);
        }
        Some(Count::Objects(len))
    };
    shelf.count.set(Box::new(count)).ok().unwrap();
    shelf.occupied(tree.root(), N0);
    assert_eq!(pass(&registry, 0, Reclaim::KSWAPD), Progress { callbacks: 2, ..Progress::default() });
    assert_eq!((registry.snapshot().live_pairs, pass(&registry, 0, Reclaim::KSWAPD).freed), (1, 3));
}

#[test]
fn an_unaware_shrinker_with_0_objects_is_still_counted() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    // Its objects are never reported: the shelf gets no occupancy.
    let shelf = Arc::new(Shelf::new());
    count_as_number(&shelf);
    let prepared = registry.builder("plain").memcg_aware(false).numa_aware(false).alloc().unwrap();
    let _registration = prepared.register(Arc::clone(&shelf) as Arc<_>);
    for round in 1..=3 {
        assert_eq!(pass(&registry, 0, Reclaim::KSWAPD).callbacks, 1, "round {round}");
    }
    shelf.add(tree.root(), N0, 9);
    assert_eq!(registry.drop_caches(), 9);
}

type Lie = (&'static str, fn(&mut ShrinkControl<'_>) -> Scan);

const LIES: [Lie; 10] = [
    ("freed more than requested", |sc| Scan::Freed(sc.nr_to_scan() * 2)),
    ("freed more than there can be", |_| Scan::Freed(u64::MAX)),
    ("freed, and looked at nothing", |sc| {
        sc.set_nr_scanned(0);
        Scan::Freed(1)
    }),
    ("looked at nothing", |sc| {
        sc.set_nr_scanned(0);
        Scan::Freed(0)
    }),
    ("looked at one at a time", |sc| {
        sc.set_nr_scanned(1);
        Scan::Freed(1)
    }),
    ("looked at more than there can be", |sc| {
        sc.set_nr_scanned(u64::MAX);
        Scan::Freed(0)
    }),
    ("freed and looked at more than there can be", |sc| {
        sc.set_nr_scanned(u64::MAX);
        Scan::Freed(u64::MAX)
    }),
    ("stops for ever", |_| Scan::Stop),
    ("is busy for ever", |_| Scan::Busy),
    ("requests a back-off for ever", |sc| {
        sc.back_off();
        Scan::Stop
    }),
];

/// A shelf with wrong results, and a correct one of 2,000 objects, which each pass calls after it.
fn beside(
    scan: fn(&mut ShrinkControl<'_>) -> Scan,
    count: impl Fn() -> u64 + Send + Sync + 'static,
    config: RegistryConfig,
) -> (MemcgTree, Registry, [(Arc<Shelf>, Registration); 2]) {
    let tree = MemcgTree::new(0);
    let registry = Registry::with_config(&tree, config);
    let shelf = |name: &str| {
        let shelf = Arc::new(Shelf::new());
        let registration = shelf.register(registry.builder(name).alloc().unwrap());
        (shelf, registration)
    };
    let both = [shelf("liar"), shelf("honest")];
    both[0].0.count.set(Box::new(move |_| Some(Count::Objects(count())))).ok().unwrap();
    both[0].0.scan.set(Box::new(move |sc| Some(scan(sc)))).ok().unwrap();
    both[0].0.add(tree.root(), N0, 1);
    both[1].0.add(tree.root(), N0, 2_000);
    (tree, registry, both)
}

#[test]
fn s21_wrong_results_end_the_call_and_starve_no_shrinker() {
    for counted in [1, 100, u64::MAX] {
        for (lie, scan) in LIES {
            // No bound in time, as a busy machine could need more than 200 calls with one.
            let config = || RegistryConfig::new(1).direct_time_max_ns(u64::MAX);
            let says = || format!("{lie}, of {counted}");
            // Passes with a bound: if the wrong shelf uses it up, the next pass begins after that
            // shelf.
            let (_tree, registry, [_liar, (honest, _held)]) = beside(scan, move || counted, config());
            for _ in 0..3 {
                let mut work = Work::objects(4_096);
                registry.shrink(registry.root(), N0, 0, Reclaim::KSWAPD, &mut work);
            }
            assert_eq!(honest.total(), 0, "{}: passes", says());

            let (_tree, registry, [_liar, (honest, _held)]) = beside(scan, move || counted, config());
            for call in 0..200 {
                let outcome = registry.direct_reclaim(registry.root(), Reclaim::FOREGROUND, &|| honest.total() == 0);
                if outcome.stopped == DirectStop::Done || honest.total() == 0 {
                    break;
                }
                assert!(call < 199, "{}: direct reclaim, {} left", says(), honest.total());
            }

            // Debts in the background, and then a drop. At most 1,000 objects are counted, because
            // a visit without a bound would call the wrong shelf a million times.
            let (_tree, registry, [liar, (honest, _held)]) = beside(scan, move || counted.min(1_000), config());
            pass(&registry, 3, Reclaim::FOREGROUND);
            registry.pay_debts(registry.root(), N0, &mut Work::objects(1 << 16));
            registry.drop_caches();
            assert_eq!(honest.total(), 0, "{}: a drop", says());
            let owed = registry.owed(registry.root(), N0, liar.1.id());
            assert!(owed <= counted, "{}: {owed} are owed", says());
        }
    }
}

/// A busy shrinker leaves the caller's bound to the others, and no debt.
#[test]
fn a_busy_shrinker_uses_up_no_bound_and_owes_nothing() {
    let config = RegistryConfig::new(1).direct_time_max_ns(u64::MAX).direct_scan_max(u64::MAX);
    let (_tree, registry, [busy, (honest, _held)]) = beside(|_| Scan::Busy, || 1_000_000, config);
    let mut work = Work::objects(1_000);
    registry.shrink(registry.root(), N0, 0, Reclaim::KSWAPD, &mut work);
    assert_eq!((honest.total(), work.scan_left()), (1_000, 0));
    assert_eq!(registry.owed(registry.root(), N0, busy.1.id()), 0);
    registry.direct_reclaim(registry.root(), Reclaim::FOREGROUND, &|| honest.total() == 0);
    assert_eq!(honest.total(), 0);
    assert_eq!(registry.owed(registry.root(), N0, busy.1.id()), 0);
}

#[test]
fn s21_growing_counts_terminate() {
    for (lie, scan) in LIES {
        let calls = AtomicU64::new(0);
        let grows = move || 1 << calls.fetch_add(1, Relaxed).min(12);
        let (_tree, registry, [_liar, (honest, _held)]) = beside(scan, grows, RegistryConfig::new(1));
        for priority in [12, 3, 0, 0] {
            pass(&registry, priority, Reclaim::KSWAPD);
        }
        assert_eq!(honest.total(), 0, "{lie}");
        registry.drop_caches();
        registry.direct_reclaim(registry.root(), Reclaim::FOREGROUND, &|| false);
    }
}

#[test]
fn a_job_with_a_lying_shrinker_frees_all_of_the_honest_one() {
    use lowwater_lru_core::ByteSize;
    use lowwater_shrinker::{Job, Step};
    for (lie, scan) in LIES {
        let (tree, registry, [_liar, (honest, _held)]) = beside(scan, || u64::MAX, RegistryConfig::new(1));
        let _ = tree.root().try_charge(ByteSize::new(1)).unwrap();
        let mut job = Job::new(tree.root().clone(), ByteSize::ZERO);
        // The objects are not charged, so usage never falls: the job ends only when it gives up.
        for _ in 0..200 {
            if honest.total() == 0 || !matches!(job.step(&registry, N0, 4_096), Step::Again | Step::BackOff) {
                break;
            }
        }
        assert_eq!(honest.total(), 0, "{lie}");
    }
}

#[test]
fn a_job_gives_up_beside_uncharges_and_after_a_false_count() {
    use lowwater_lru_core::ByteSize;
    use lowwater_shrinker::{Job, Step};
    for false_counts in [0, 60] {
        let (tree, registry, shelf, _registration) = one_shelf();
        let (root, calls) = (tree.root().clone(), AtomicU64::new(0));
        let count = move |_: &ShrinkControl<'_>| match calls.fetch_add(1, Relaxed) < false_counts {
            true => Some(Count::Objects(u64::MAX)),
            false => Some(Count::Objects(100_000)),
        };
        shelf.count.set(Box::new(count)).ok().unwrap();
        shelf.add(&root, N0, 1);
        let _ = root.try_charge(ByteSize::mib(1)).unwrap();
        tree.drain_stock();
        let other = root.clone();
        // All objects stay, and meanwhile another thread uncharges a byte.
        let scan = move |_: &mut ShrinkControl<'_>| {
            other.uncharge(ByteSize::new(1));
            Some(Scan::Freed(0))
        };
        shelf.scan.set(Box::new(scan)).ok().unwrap();
        let mut job = Job::new(root, ByteSize::ZERO);
        let steps = (0..10_000).take_while(|_| job.step(&registry, N0, 4_096) == Step::Again).count();
        assert!(steps < 1_000, "{steps} steps after {false_counts} false counts");
    }
}

#[test]
fn direct_reclaim_without_bounds_ends_beside_false_progress() {
    let config = RegistryConfig::new(1).direct_scan_max(u64::MAX).direct_time_max_ns(u64::MAX);
    let tree = MemcgTree::new(0);
    let registry = Registry::with_config(&tree, config);
    let shelf = Arc::new(Shelf::new());
    let _registration = shelf.register(registry.builder("shelf").alloc().unwrap());
    shelf.add(tree.root(), N0, 1);
    shelf.count.set(Box::new(|_| Some(Count::Objects(1)))).ok().unwrap();
    shelf.scan.set(Box::new(|_| Some(Scan::Freed(1)))).ok().unwrap();
    let outcome = registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false);
    assert_eq!(outcome.stopped, DirectStop::NothingLeft);
}

#[test]
fn a_scan_bound_is_exact_for_shrinkers_that_scan_as_requested() {
    for batch in [1, 7, 128, u64::MAX] {
        for bound in [1, 10, 127, 129] {
            let tree = MemcgTree::new(0);
            let registry = Registry::new(&tree, 1);
            let shelves: Vec<_> = (0..3)
                .map(|_| {
                    let shelf = Arc::new(Shelf::new());
                    let registration = shelf.register(registry.builder("shelf").batch(batch).alloc().unwrap());
                    shelf.add(tree.root(), N0, 1_000);
                    (shelf, registration)
                })
                .collect();
            let mut work = Work::objects(bound);
            let progress = registry.shrink(tree.root(), N0, 0, Reclaim::KSWAPD, &mut work);
            assert_eq!((progress.scanned, work.scan_left()), (bound, 0), "batch {batch}");
            let most = shelves.iter().map(|(shelf, _)| shelf.scanned_most.load(Relaxed)).max();
            assert_eq!(most, Some(bound.min(batch)), "batch {batch}: no call is requested to scan more than is left");
            // The same for paying debts, and below for direct reclaim.
            let mut work = Work::objects(bound);
            let defer = Reclaim::MAY_BLOCK;
            shelves[0].0.scan.set(Box::new(|sc| (!sc.flags().contains(Reclaim::MAY_FS)).then_some(Scan::Stop))).ok();
            registry.shrink(tree.root(), N0, 2, defer, &mut Work::unlimited());
            let owed = registry.owed(tree.root(), N0, shelves[0].1.id());
            assert!(owed > bound);
            let (progress, left) = registry.pay_debts(tree.root(), N0, &mut work);
            assert_eq!((progress.scanned, left, work.scan_left()), (bound, owed - bound, 0), "batch {batch}");
        }
    }
    let tree = MemcgTree::new(0);
    let registry = Registry::with_config(&tree, RegistryConfig::new(1).direct_scan_max(10));
    let shelf = Arc::new(Shelf::new());
    let _registration = shelf.register(registry.builder("shelf").alloc().unwrap());
    shelf.add(tree.root(), N0, 1_000_000);
    let outcome = registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false);
    assert_eq!((outcome.scanned, outcome.stopped), (10, DirectStop::ScanBound));
}

#[test]
fn a_scan_bound_is_exceeded_by_the_last_call_only() {
    let (tree, registry, shelf, _registration) = one_shelf();
    // The shelf scans whole pages of 512 objects.
    shelf
        .scan
        .set(Box::new(|sc| {
            sc.set_nr_scanned(sc.nr_to_scan().next_multiple_of(512));
            Some(Scan::Freed(0))
        }))
        .ok()
        .unwrap();
    shelf.add(tree.root(), N0, 1_000_000);
    let mut work = Work::objects(600);
    let progress = registry.shrink(tree.root(), N0, 0, Reclaim::KSWAPD, &mut work);
    assert_eq!(
        (progress.scanned, work.scan_left()),
        (1_024, 0),
        "the second call is requested to scan the remaining 88"
    );
}

#[test]
fn extreme_options_terminate_and_free_all_objects() {
    for seeks in [0, 1, u32::MAX] {
        for batch in [0, 1, u64::MAX] {
            for priority in [0, 12, 13, 64, u8::MAX] {
                let tree = MemcgTree::new(0);
                let registry = Registry::new(&tree, 1);
                let shelf = Arc::new(Shelf::new());
                let builder = registry.builder("shelf").seeks(seeks).batch(batch);
                let _registration = shelf.register(builder.alloc().unwrap());
                shelf.add(tree.root(), N0, 1_000);
                let says = format!("seeks {seeks}, batch {batch}, priority {priority}");
                for flags in [Reclaim::KSWAPD, Reclaim::FOREGROUND, Reclaim::empty()] {
                    let progress = pass(&registry, priority, flags);
                    assert!(progress.freed == progress.scanned, "{says}");
                    let lightest = priority > 12 && seeks > 0;
                    assert!(!lightest || progress.freed <= 2, "{says}: beyond the lightest is the lightest");
                }
                let left = shelf.total();
                assert_eq!(registry.drop_caches(), left, "{says}");
            }
        }
    }
}
