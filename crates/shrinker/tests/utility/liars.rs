//! With shrinkers that lie, stop or panic, every call ends after a bounded number of callbacks, and
//! an honest shrinker is still reclaimed from.
//!
//! Without the bound, one faulty cache would block every insert of the process. A change must not
//! raise it ([`CALLBACKS_MAX`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use lowwater_lru_core::{ByteSize, Memcg, NodeId};
use lowwater_shrinker::{Count, Reclaim, Registry, Scan, ShrinkControl, Work};

use super::common::{CountFn, ScanFn, Shelf};
use super::{batch, batches, fill, honest_weight, shelf, weighed, world, Pool, N0, OBJECT};

/// The maximum number of callbacks of one shrinker in one call that scans 1,000 objects: one for
/// each object, and two counts with it.
const CALLBACKS_MAX: u64 = 3_000;

fn liar_in_count(count: impl Fn() -> Count + Send + Sync + 'static) -> Shelf {
    shelf(Some(Box::new(move |_| Some(count()))), None, honest_weight)
}

fn liar_in_scan(scan: impl Fn(&mut ShrinkControl<'_>) -> Scan + Send + Sync + 'static) -> Shelf {
    shelf(None, Some(Box::new(move |sc| Some(scan(sc)))), honest_weight)
}

fn liar_in_weight(weigh: impl Fn() -> Option<ByteSize> + Send + Sync + 'static) -> Shelf {
    shelf(None, None, move |_| weigh())
}

/// Runs calls with and without the bound of one batch, in the foreground and the background, with
/// `liars` of these shrinkers: each call ends, and some objects of an honest shrinker are freed.
fn honest_beside(liars: usize, liar: impl Fn() -> Shelf) {
    for flags in [Reclaim::FOREGROUND, Reclaim::KSWAPD] {
        let (tree, registry) = world(1);
        let liars: Vec<_> = (0..liars).map(|n| Pool::with(&tree, &registry, &format!("liar {n}"), liar())).collect();
        let honest = Pool::with(&tree, &registry, "honest", shelf(None, None, honest_weight));
        liars.iter().for_each(|liar| liar.shelf.add(tree.root(), N0, 1_000));
        honest.shelf.add(tree.root(), N0, 1_000);
        for one_batch in [true, false] {
            // A batch is 1/64 of a pool, but at most 8 objects: 4,000 batches empty seven pools.
            for _ in 0..if one_batch { 4_000 } else { 100 } {
                let callbacks: Vec<_> = liars.iter().map(Pool::callbacks).collect();
                let mut work = if one_batch { Work::one_batch(1_000) } else { Work::objects(1_000) };
                registry.shrink_least_useful(tree.root(), None, flags, &mut work);
                for (liar, before) in liars.iter().zip(callbacks) {
                    assert!(liar.callbacks() - before <= CALLBACKS_MAX, "{} callbacks", liar.callbacks() - before);
                }
            }
        }
        let left = honest.shelf.total();
        assert!(left < 1_000, "{} liars, {flags:?}: {left} are left", liars.len());
    }
}

#[test]
fn an_honest_shrinker_is_reclaimed_from_with_honest_ones() {
    honest_beside(1, || liar_in_weight(|| Some(ByteSize::new(1_000 * OBJECT))));
    honest_beside(6, || liar_in_weight(|| Some(ByteSize::new(1_000 * OBJECT))));
    honest_beside(6, Shelf::new);
}

#[test]
fn an_honest_shrinker_is_reclaimed_from_with_one_of_endless_count() {
    honest_beside(1, || liar_in_count(|| Count::Objects(u64::MAX)));
}

#[test]
fn an_honest_shrinker_is_reclaimed_from_with_six_of_endless_count() {
    honest_beside(6, || liar_in_count(|| Count::Objects(u64::MAX)));
}

#[test]
fn an_honest_shrinker_is_reclaimed_from_with_one_of_changing_count() {
    for liars in [1, 6] {
        honest_beside(liars, || {
            let calls = AtomicU64::new(0);
            let counts = [0, u64::MAX, 1, 1 << 40, 7];
            liar_in_count(move || Count::Objects(counts[calls.fetch_add(1, Relaxed) as usize % counts.len()]))
        });
    }
}

#[test]
fn an_honest_shrinker_is_reclaimed_from_with_one_of_unknown_count() {
    for liars in [1, 6] {
        honest_beside(liars, || liar_in_count(|| Count::Unknown));
    }
}

#[test]
fn an_honest_shrinker_is_reclaimed_from_with_one_that_panics_in_count() {
    for liars in [1, 6] {
        honest_beside(liars, || liar_in_count(|| panic!("a count that panics")));
    }
}

#[test]
fn an_honest_shrinker_is_reclaimed_from_with_one_that_overreports() {
    for liars in [1, 6] {
        honest_beside(liars, || liar_in_scan(|sc| Scan::Freed(sc.nr_to_scan() + 100)));
        honest_beside(liars, || liar_in_scan(|_| Scan::Freed(u64::MAX)));
    }
}

#[test]
fn an_honest_shrinker_is_reclaimed_from_with_one_that_frees_nothing() {
    for liars in [1, 6] {
        honest_beside(liars, || liar_in_scan(|_| Scan::Freed(0)));
        for scanned in [1, u64::MAX] {
            honest_beside(liars, move || {
                liar_in_scan(move |sc| {
                    sc.set_nr_scanned(scanned);
                    Scan::Freed(0)
                })
            });
        }
    }
}

#[test]
fn an_honest_shrinker_is_reclaimed_from_with_one_that_always_stops() {
    honest_beside(1, || liar_in_scan(|_| Scan::Stop));
}

#[test]
fn an_honest_shrinker_is_reclaimed_from_with_six_that_always_stop() {
    honest_beside(6, || liar_in_scan(|_| Scan::Stop));
}

#[test]
fn an_honest_shrinker_is_reclaimed_from_with_one_that_is_always_busy() {
    for liars in [1, 6] {
        honest_beside(liars, || liar_in_scan(|_| Scan::Busy));
    }
}

/// A shrinker that another thread scans proves nothing by that: it is selected again at once when
/// the other thread is done, however often it was busy.
#[test]
fn a_shrinker_that_was_busy_is_selected_again() {
    let (tree, registry) = world(1);
    let is_busy = Arc::new(AtomicBool::new(true));
    let busy_now = Arc::clone(&is_busy);
    let scan: ScanFn = Box::new(move |_| busy_now.load(Relaxed).then_some(Scan::Busy));
    let busy = Pool::with(&tree, &registry, "busy", shelf(None, Some(scan), honest_weight));
    let honest = Pool::with(&tree, &registry, "honest", shelf(None, None, honest_weight));
    // Of equal pairs the larger is the victim.
    busy.shelf.add(tree.root(), N0, 100_000);
    honest.shelf.add(tree.root(), N0, 10_000);
    let reclaim = || {
        let mut work = Work::one_batch(64);
        registry.shrink_least_useful(tree.root(), None, Reclaim::FOREGROUND, &mut work);
    };
    (0..200).for_each(|_| reclaim());
    assert_eq!((busy.shelf.total(), honest.shelf.total()), (100_000, 10_000 - 200 * 8));
    is_busy.store(false, Relaxed);
    reclaim();
    assert_eq!(busy.shelf.total(), 100_000 - 8);
}

/// The objects that a busy shrinker did not scan are scanned in another one.
#[test]
fn a_busy_shrinker_uses_up_no_bound() {
    let (tree, registry) = world(1);
    let busy = Pool::with(&tree, &registry, "busy", liar_in_scan(|_| Scan::Busy));
    let honest = Pool::with(&tree, &registry, "honest", shelf(None, None, honest_weight));
    for pool in [&busy, &honest] {
        pool.shelf.add(tree.root(), N0, 1_000);
    }
    for left in [992, 984] {
        let mut work = Work::one_batch(64);
        registry.shrink_least_useful(tree.root(), None, Reclaim::FOREGROUND, &mut work);
        assert_eq!(honest.shelf.total(), left);
    }
}

#[test]
fn an_honest_shrinker_is_reclaimed_from_with_one_that_panics_in_scan() {
    for liars in [1, 6] {
        honest_beside(liars, || liar_in_scan(|_| panic!("a scan that panics")));
    }
}

#[test]
fn an_honest_shrinker_is_reclaimed_from_with_one_of_wrong_weight() {
    for liars in [1, 6] {
        for weight in [None, Some(ByteSize::ZERO), Some(ByteSize::MAX)] {
            honest_beside(liars, move || liar_in_weight(move || weight));
        }
    }
}

#[test]
fn an_honest_shrinker_is_reclaimed_from_with_one_that_panics_in_weigh() {
    for liars in [1, 6] {
        honest_beside(liars, || liar_in_weight(|| panic!("a weight that panics")));
    }
}

/// Asserts that a call of reclaim by utility ends by itself. After `checks_max` checks of its bound
/// the call is stopped, so that the test ends.
fn assert_ends(registry: &Registry, memcg: &Memcg, checks_max: u64) {
    let checks = AtomicU64::new(0);
    let is_enough = || checks.fetch_add(1, Relaxed) > checks_max;
    let mut work = Work::unlimited().while_not(&is_enough);
    registry.shrink_least_useful(memcg, None, Reclaim::FOREGROUND, &mut work);
    assert!(checks.load(Relaxed) <= checks_max, "the call does not end by itself");
}

/// A call without any bound ends, whatever the only shrinker reports.
#[test]
fn an_unbounded_call_terminates() {
    const CHECKS_MAX: u64 = 1_000_000;
    let answers: [fn(&mut ShrinkControl<'_>) -> Scan; 5] =
        [|_| Scan::Freed(0), |_| Scan::Freed(1), |_| Scan::Freed(u64::MAX), |_| Scan::Stop, |_| Scan::Busy];
    for answer in answers {
        let (tree, registry) = world(1);
        let liar = Pool::with(&tree, &registry, "liar", liar_in_scan(answer));
        liar.shelf.add(tree.root(), N0, 1_000);
        assert_ends(&registry, tree.root(), CHECKS_MAX);
    }
}

/// A call without any bound also ends if usage falls in each scan, and rises when the objects are
/// weighed.
#[test]
fn an_unbounded_call_terminates_with_oscillating_usage() {
    const CHECKS_MAX: u64 = 2_000_000;
    let (tree, registry) = world(1);
    tree.root().set_max(ByteSize::new(1 << 50));
    std::mem::forget(tree.root().try_charge(ByteSize::mib(1 << 12)).unwrap());
    let (falls, rises) = (tree.root().clone(), tree.root().clone());
    let count: CountFn = Box::new(|_| Some(Count::Objects(1_000)));
    let scan: ScanFn = Box::new(move |_| {
        falls.uncharge(ByteSize::mib(1));
        Some(Scan::Freed(1))
    });
    let liar = shelf(Some(count), Some(scan), move |_| {
        // A count of 1,000 objects is repeated after 62 are freed, which is 62 scans of 1 MiB.
        std::mem::forget(rises.try_charge(ByteSize::mib(63)).unwrap());
        Some(ByteSize::new(1_000 * OBJECT))
    });
    let liar = Pool::with(&tree, &registry, "liar", liar);
    liar.shelf.add(tree.root(), N0, 1);
    assert_ends(&registry, tree.root(), CHECKS_MAX);
}

/// The pair of a shrinker that has objects, but is not registered yet, cannot be counted. The other
/// pairs must be.
#[test]
fn pairs_are_counted_with_one_of_an_unregistered_shrinker() {
    let (tree, registry) = world(1);
    let prepared = registry.builder("prepared").alloc().unwrap();
    prepared.occupancy().occupied(tree.root(), N0);
    let useful = weighed(&tree, &registry, "useful");
    fill(&useful.shelf, &tree, 4_000);
    batches(3, &registry, tree.root(), Reclaim::KSWAPD);
    useful.misses(tree.root(), 10_000);
    let scan = weighed(&tree, &registry, "scan");
    fill(&scan.shelf, &tree, 4_000);
    let before = [&useful, &scan].map(|pool| pool.shelf.total());
    batches(300, &registry, tree.root(), Reclaim::FOREGROUND);
    let paid = [before[0] - useful.shelf.total(), before[1] - scan.shelf.total()];
    assert!(paid[0] < 100 && paid[1] > 2_000, "{paid:?}");
}

/// Also of a count that only serves the random selection of a node.
#[test]
fn each_panic_of_a_count_is_recorded() {
    let (tree, registry) = world(2);
    let panics = Arc::new(AtomicU64::new(0));
    let (is_armed, seen) = (Arc::new(AtomicBool::new(false)), Arc::clone(&panics));
    let armed = Arc::clone(&is_armed);
    let count: CountFn = Box::new(move |sc| {
        if armed.load(Relaxed) && sc.node() == NodeId::new(1) {
            seen.fetch_add(1, Relaxed);
            panic!("a count that panics");
        }
        None
    });
    let pool = Pool::with(&tree, &registry, "pool", shelf(Some(count), None, honest_weight));
    [0, 1].into_iter().for_each(|node| pool.shelf.add(tree.root(), NodeId::new(node), 10_000));
    batches(3, &registry, tree.root(), Reclaim::KSWAPD);
    is_armed.store(true, Relaxed);
    batches(30, &registry, tree.root(), Reclaim::FOREGROUND);
    let stats = pool.registration.stats();
    assert_eq!((panics.load(Relaxed), stats.panics, stats.quarantined), (1, 1, true));
}

/// Also of the count that checks a report of more freed objects than a batch has.
#[test]
fn a_panic_of_the_count_after_a_scan_is_recorded() {
    let (tree, registry) = world(1);
    let panics = Arc::new(AtomicU64::new(0));
    let (is_armed, seen) = (Arc::new(AtomicBool::new(false)), Arc::clone(&panics));
    let armed = Arc::clone(&is_armed);
    let count: CountFn = Box::new(move |_| {
        if armed.load(Relaxed) {
            seen.fetch_add(1, Relaxed);
            panic!("a count that panics");
        }
        None
    });
    let scan: ScanFn = Box::new(move |_| {
        is_armed.store(true, Relaxed);
        Some(Scan::Freed(300))
    });
    let pool = Pool::with(&tree, &registry, "pool", shelf(Some(count), Some(scan), honest_weight));
    // So many that the scan does not make the pair due for a count.
    pool.shelf.add(tree.root(), N0, 100_000);
    assert_eq!(batch(&registry, tree.root(), Reclaim::FOREGROUND).freed, 300);
    let stats = pool.registration.stats();
    assert_eq!((panics.load(Relaxed), stats.panics, stats.quarantined), (1, 1, true));
}
