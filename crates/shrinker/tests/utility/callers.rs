//! Calls from inside callbacks, at the end of a thread, and through a leaked reporter.
//!
//! Inside a callback or scope nothing may be reclaimed, but a miss may be reported anywhere.
//!
//! A new callback, and a new kind of scope, is tried here.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use lowwater_lru_core::ByteSize;
use lowwater_shrinker::{Miss, Progress, Reclaim, Registry};

use super::common::{CountFn, ScanFn, Shelf};
use super::{batch, batches, hazard, shelf, two_pools, world, Pool, N0};

/// A shelf that calls `call` when it counts, scans and weighs.
fn calls_in_each_callback(call: impl Fn() + Send + Sync + 'static) -> Shelf {
    let call = Arc::new(call);
    let [in_count, in_scan] = [Arc::clone(&call), Arc::clone(&call)];
    let count: CountFn = Box::new(move |_| {
        in_count();
        None
    });
    let scan: ScanFn = Box::new(move |_| {
        in_scan();
        None
    });
    shelf(Some(count), Some(scan), move |_| {
        call();
        None
    })
}

#[test]
fn no_victim_is_selected_inside_a_callback_or_a_scope() {
    let (tree, registry) = world(1);
    let registry = Arc::new(registry);
    let other = Pool::new(&tree, &registry, "other");
    other.shelf.add(tree.root(), N0, 1_000);
    let inside = |registry: &Arc<Registry>| {
        let (registry, root) = (Arc::downgrade(registry), tree.root().clone());
        let calls = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&calls);
        let call = move || {
            seen.fetch_add(1, Relaxed);
            let registry = registry.upgrade().unwrap();
            assert_eq!(batch(&registry, &root, Reclaim::KSWAPD), Progress::default());
            assert_eq!(batch(&registry, &root, Reclaim::FOREGROUND), Progress::default());
        };
        (calls, call)
    };
    let (calls, call) = inside(&registry);
    let caller = Pool::with(&tree, &registry, "caller", calls_in_each_callback(call));
    caller.shelf.add(tree.root(), N0, 1_000);
    other.misses(tree.root(), 100);
    batches(10, &registry, tree.root(), Reclaim::KSWAPD);
    // The shelf counts its counts and scans only; the other calls are those of the weigher.
    assert!(calls.load(Relaxed) > caller.callbacks() && caller.shelf.total() < 1_000, "each callback was called");
    assert_eq!(caller.registration.stats().panics, 0);
    let before = (caller.callbacks() + other.callbacks(), other.shelf.total());
    let scope = registry.no_reclaim_scope();
    assert_eq!(batch(&registry, tree.root(), Reclaim::FOREGROUND), Progress::default());
    // A miss may be reported inside the scope.
    other.misses(tree.root(), 1);
    drop(scope);
    assert_eq!((caller.callbacks() + other.callbacks(), other.shelf.total()), before);
    assert!(batch(&registry, tree.root(), Reclaim::FOREGROUND).freed > 0);
}

#[test]
fn a_reporter_may_be_used_and_dropped_in_each_callback() {
    let (tree, registry) = world(1);
    let other = Pool::new(&tree, &registry, "other");
    other.shelf.add(tree.root(), N0, 1_000);
    // Reporters of a shrinker that has ended, and of one that has not.
    let ended = Pool::new(&tree, &registry, "ended");
    let reporters = Arc::new(Mutex::new(vec![ended.reporter, other.reporter]));
    drop(ended.registration);
    let used = Arc::new(AtomicU64::new(0));
    let (root, in_callback, seen) = (tree.root().clone(), Arc::clone(&reporters), Arc::clone(&used));
    let call = move || {
        let mut reporters = in_callback.lock().unwrap();
        if let Some(reporter) = reporters.last() {
            reporter.miss(&root, Miss::at(ByteSize::ZERO));
            reporter.set_mean_cost(3);
            if seen.fetch_add(1, Relaxed) % 20 == 19 {
                reporters.pop();
            }
        }
    };
    let caller = Pool::with(&tree, &registry, "caller", calls_in_each_callback(call));
    caller.shelf.add(tree.root(), N0, 10_000);
    batches(100, &registry, tree.root(), Reclaim::KSWAPD);
    // Each of the two reporters was used 20 times, the last time just before it was dropped.
    assert!(reporters.lock().unwrap().is_empty() && used.load(Relaxed) == 40);
    assert_eq!(caller.registration.stats().panics, 0);
}

#[test]
fn a_reporter_may_be_dropped_late_on_a_thread() {
    hazard::at_the_end_of_a_thread("a reporter that is used and dropped", || {
        let (tree, registry) = world(1);
        let [first, second] = two_pools(&tree, &registry, tree.root());
        Box::new(move || {
            first.misses(tree.root(), 10);
            assert!(batch(&registry, tree.root(), Reclaim::FOREGROUND).freed > 0);
            drop((second.registration, registry));
            second.reporter.miss(tree.root(), Miss::at(ByteSize::ZERO));
            drop(first);
            drop((second.reporter, tree));
        })
    });
}

#[test]
fn a_leaked_reporter_blocks_no_other_code() {
    hazard::in_a_process("callers::a_leaked_reporter_blocks_no_other_code", || {
        let (tree, registry) = world(1);
        let [first, second] = two_pools(&tree, &registry, tree.root());
        let (id, left) = (first.registration.id(), first.shelf.total());
        std::mem::forget(first.reporter);
        first.registration.unregister().unwrap();
        batches(10, &registry, tree.root(), Reclaim::FOREGROUND);
        assert!(first.shelf.total() == left && second.shelf.total() < 1_000);
        assert_eq!(Pool::new(&tree, &registry, "next").registration.id(), id, "its number is free");
        std::mem::forget(second.reporter);
        drop((second.registration, registry));
    });
}
