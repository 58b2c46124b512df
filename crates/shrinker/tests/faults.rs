//! Faults around reclaim: callbacks that block, panic or lie, clocks that jump, limits below the
//! usage, threads that cannot be started. Each leads to a clear error or none, loses nothing, and
//! everything else continues.
//!
//! Faults in other files: callbacks that panic or re-enter without a reclaimer thread
//! (`invariants.rs`), wrong results (`answers.rs`), failed allocations (`alloc.rs`), the sources of
//! pressure (`lowwater-pressure`).
//!
//! A change must ensure that each fault is followed by a call that must still work.

#![cfg(all(feature = "std", not(lowwater_loom)))]

mod common;

use common::{one_shelf, Shelf};
use lowwater_lru_core::topology::Fixed;
use lowwater_lru_core::{ByteSize, MemcgTree, NodeId};
use lowwater_shrinker::Watermarks;
use lowwater_shrinker::{Clock, Count, Reclaim, Reclaimer, Registry, RegistryConfig, Scan, Work};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{mpsc, Arc, Mutex};
use std::time::{Duration, Instant};

const N0: NodeId = NodeId::ZERO;
/// Longer than any machine takes, unless the event never happens.
const PATIENCE: Duration = Duration::from_secs(60);
/// No gaps below a limit: the reclaimer starts above a limit, or by `wake`, and stops at the limit.
const MARKS: Watermarks = Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO };

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "it did not happen that {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn shelf_in(registry: &Registry, tree: &MemcgTree, name: &str) -> (Arc<Shelf>, lowwater_shrinker::Registration) {
    let shelf = Arc::new(Shelf::new());
    shelf.hear_of_deaths(tree);
    let registration = shelf.register(registry.builder(name).alloc().unwrap());
    (shelf, registration)
}

/// The channels of a callback that is stuck.
struct Gate {
    entered: mpsc::Receiver<()>,
    leave: mpsc::Sender<()>,
}

/// Makes the shelf's next scan report that it has begun, and block; all later scans are normal.
fn stuck(shelf: &Shelf) -> Gate {
    let (tell, entered) = mpsc::channel();
    let (leave, wait) = mpsc::channel();
    let once = Mutex::new(Some((tell, wait)));
    let scan = move |_: &mut lowwater_shrinker::ShrinkControl<'_>| {
        let gate = once.lock().unwrap().take();
        if let Some((tell, wait)) = gate {
            tell.send(()).unwrap();
            wait.recv().unwrap();
        }
        None
    };
    assert!(shelf.scan.set(Box::new(scan)).is_ok());
    Gate { entered, leave }
}

#[test]
fn a_blocking_callback_delays_only_its_caller() {
    let (tree, registry, slow, slow_registration) = one_shelf();
    let (other, other_registration) = shelf_in(&registry, &tree, "other");
    let gate = stuck(&slow);
    slow.add(tree.root(), N0, 10);
    other.add(tree.root(), N0, 10);
    std::thread::scope(|s| {
        let caller = s.spawn(|| registry.drop_caches());
        gate.entered.recv_timeout(PATIENCE).unwrap();

        // Everything that does not depend on the callback in flight: other registrations, groups,
        // passes, statistics.
        let (third, third_registration) = shelf_in(&registry, &tree, "third");
        let group = tree.root().create("g").unwrap();
        third.add(&group, N0, 5);
        group.offline().unwrap();
        assert_eq!(third.len(tree.root(), N0), 5);
        assert_eq!(slow_registration.stats().in_flight, 1);
        // A second thread that calls the slow shrinker does not wait for the first one.
        let freed = registry.drop_caches();
        assert!((15..=25).contains(&freed), "{freed}: all of the other two, and the slow one's from its second call");
        assert_eq!((third.total(), other.total()), (0, 0));
        third_registration.unregister().unwrap();
        other_registration.unregister().unwrap();
        assert!(registry.snapshot().shrinkers.len() == 1);

        gate.leave.send(()).unwrap();
        caller.join().unwrap();
    });
    assert_eq!(slow.total(), 0, "nothing is lost");
    slow_registration.unregister().unwrap();
}

#[test]
fn a_callback_that_blocks_the_reclaimer_leaves_direct_reclaim() {
    let (tree, registry, slow, _slow_registration) = one_shelf();
    let (other, _other_registration) = shelf_in(&registry, &tree, "other");
    let reclaimer = Reclaimer::start(&registry, Arc::new(Fixed::new(1)), MARKS).unwrap();
    let gate = stuck(&slow);
    slow.add(tree.root(), N0, 1_000);
    let _charged = tree.root().try_charge(ByteSize::new(1_000)).unwrap();
    reclaimer.wake(tree.root(), lowwater_shrinker::ReclaimReason::Manual(ByteSize::new(1_000)));
    gate.entered.recv_timeout(PATIENCE).unwrap();

    other.add(tree.root(), N0, 1_000);
    let enough = || other.total() < 1_000;
    let outcome = registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &enough);
    assert!(outcome.freed > 0 && other.total() < 1_000, "{outcome:?}");
    gate.leave.send(()).unwrap();
    drop(reclaimer); // Stops: the callback has returned.
    registry.drop_caches();
    assert_eq!((slow.total(), other.total()), (0, 0));
}

#[test]
fn a_callback_that_panics_on_the_reclaimers_thread_does_not_end_it() {
    let (tree, registry, bad, bad_registration) = one_shelf();
    let (good, _good_registration) = shelf_in(&registry, &tree, "good");
    bad.count.set(Box::new(|_| std::panic::panic_any("the callback's own fault"))).ok().unwrap();
    let reclaimer = Reclaimer::start(&registry, Arc::new(Fixed::new(1)), MARKS).unwrap();
    for round in 1..=3 {
        bad.add(tree.root(), N0, 10);
        good.add(tree.root(), N0, 10);
        let _charged = tree.root().try_charge(ByteSize::new(1)).unwrap();
        reclaimer.wake(tree.root(), lowwater_shrinker::ReclaimReason::Manual(ByteSize::new(round)));
        until("the good one frees all", || good.total() == 0);
    }
    assert_eq!((bad_registration.stats().panics, bad_registration.stats().quarantined), (1, true));
    drop(reclaimer); // Would panic if its thread had panicked.
    bad_registration.unregister().unwrap();
    assert_eq!(bad.total(), 30, "the quarantined shrinker keeps its objects");
}

#[test]
fn a_shrinker_that_reports_more_than_all_does_not_end_the_reclaimers_thread() {
    let (tree, registry, liar, _registration) = one_shelf();
    liar.scan.set(Box::new(|_| Some(Scan::Freed(u64::MAX)))).ok().unwrap();
    let groups = ["a", "b"].map(|name| tree.root().create(name).unwrap());
    for group in &groups {
        liar.add(group, N0, 1_000);
        std::mem::forget(group.try_charge(ByteSize::mib(1)).unwrap());
    }
    let reclaimer = Reclaimer::start(&registry, Arc::new(Fixed::new(1)), MARKS).unwrap();
    // Mostly the thread takes both requests together, and adds up what they freed.
    until("the sum is at its end", || {
        let wake = |group| reclaimer.wake(group, lowwater_shrinker::ReclaimReason::Manual(ByteSize::kib(512)));
        groups.iter().for_each(wake);
        reclaimer.stats()[0].freed == u64::MAX && reclaimer.stats()[0].steps > 100
    });
    drop(reclaimer); // Would panic if its thread had panicked.
}

#[test]
fn a_thread_that_panics_between_two_calls_keeps_no_lock() {
    // A panic of a callback is caught, but a panic of the thread's own code is not: here the thread
    // panics wherever its own code runs while it uses the registry.
    let (tree, registry, shelf, registration) = one_shelf();
    shelf.add(tree.root(), N0, 100);
    let dies = |f: &(dyn Fn() + Sync)| {
        std::thread::scope(|s| assert!(s.spawn(f).join().is_err(), "it was to die"));
    };
    dies(&|| {
        let _scope = registry.no_reclaim_scope();
        panic!("inside of a scope");
    });
    dies(&|| {
        let _prepared = registry.builder("never registered").alloc().unwrap();
        panic!("between alloc and register");
    });
    dies(&|| {
        let enough = || -> bool { panic!("in the caller's own condition") };
        registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &enough);
    });
    dies(&|| {
        let enough = || -> bool { panic!("in the caller's own bound") };
        let mut work = Work::unlimited().while_not(&enough);
        registry.shrink(tree.root(), N0, 0, Reclaim::KSWAPD, &mut work);
    });
    assert_eq!(registration.stats().in_flight, 0);
    let next = registry.builder("next").alloc().unwrap().id();
    assert_eq!(next.get(), registration.id().get() + 1, "the id that was never registered is back");
    assert_eq!(registry.drop_caches(), 100);
    registration.unregister().unwrap();
}

/// A clock that returns the given times.
struct Jumps {
    times: Vec<u64>,
    next: AtomicUsize,
}

impl Clock for Jumps {
    fn now_ns(&self) -> u64 {
        self.times[self.next.fetch_add(1, Relaxed) % self.times.len()]
    }
}

#[test]
fn a_jumping_clock_breaks_only_the_time_bound() {
    let jumps: [&[u64]; 5] = [
        &[0, u64::MAX, 0, 1, u64::MAX - 1],
        &[u64::MAX],
        &[u64::MAX / 2, 0],
        &[1_000_000_000, 999_999_999, 0, 2_000_000_000],
        &[0],
    ];
    for times in jumps {
        let tree = MemcgTree::new(0);
        let clock = Arc::new(Jumps { times: times.to_vec(), next: AtomicUsize::new(0) });
        let registry = Registry::with_config(&tree, RegistryConfig::new(2).clock(clock));
        let (shelf, registration) = shelf_in(&registry, &tree, "shelf");
        let groups: Vec<_> = (0..5).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
        for (n, group) in groups.iter().enumerate() {
            shelf.add(group, NodeId::new((n % 2) as u16), 1_000);
        }
        let before = shelf.total();
        let outcome = registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false);
        let progress = registry.shrink(tree.root(), N0, 4, Reclaim::KSWAPD, &mut Work::objects(500));
        let (_, left) = registry.pay_debts(tree.root(), N0, &mut Work::unlimited());
        assert!(before - shelf.total() >= outcome.freed + progress.freed, "no more objects are reported than freed");
        assert_eq!(left, 0, "no time bounds the background");
        let _ = (registry.snapshot(), registry.survey(), registration.stats());
        while registry.drop_caches() > 0 {}
        assert_eq!(shelf.total(), 0, "every object can be freed at any time");
    }
}

#[test]
fn a_count_above_the_real_one_starves_no_other_shrinker() {
    let (tree, registry, liar, liar_registration) = one_shelf();
    let (honest, _registration) = shelf_in(&registry, &tree, "honest");
    liar.count.set(Box::new(|_| Some(Count::Objects(u64::MAX)))).ok().unwrap();
    liar.scan.set(Box::new(|sc| Some(Scan::Freed(sc.nr_to_scan())))).ok().unwrap();
    liar.add(tree.root(), N0, 1);
    honest.add(tree.root(), N0, 10_000);
    let reclaimer = Reclaimer::start(&registry, Arc::new(Fixed::new(1)), MARKS).unwrap();
    let _charged = tree.root().try_charge(ByteSize::new(10)).unwrap();
    reclaimer.wake(tree.root(), lowwater_shrinker::ReclaimReason::Manual(ByteSize::new(10)));
    let left = || honest.total();
    until("the honest one is called, too", || left() < 10_000);
    drop(reclaimer);
    liar_registration.unregister().unwrap();
    registry.drop_caches();
    assert_eq!(honest.total(), 0);
}

/// Without a reclaimer, which may lower the usage at any time.
#[test]
fn a_group_above_a_lowered_limit_is_charged_no_more() {
    let tree = MemcgTree::new(0);
    let tenant = tree.root().create("tenant").unwrap();
    let _charged = tenant.try_charge(ByteSize::new(10_000)).unwrap();
    for max in [4_000, 0] {
        tenant.set_max(ByteSize::new(max));
        assert!(tenant.try_charge(ByteSize::new(1)).is_err(), "no more until it is below {max}");
    }
    assert_eq!(tenant.usage(), ByteSize::new(10_000));
}

#[test]
fn limits_below_the_usage_are_reached_in_the_background() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    let shelf = Arc::new(Shelf::of_bytes(1));
    shelf.hear_of_deaths(&tree);
    let _registration = shelf.register(registry.builder("bytes").alloc().unwrap());
    let reclaimer = Reclaimer::start(&registry, Arc::new(Fixed::new(1)), MARKS).unwrap();
    let tenant = tree.root().create("tenant").unwrap();
    let neighbour = tree.root().create("neighbour").unwrap();
    for group in [&tenant, &neighbour] {
        let _charged = group.try_charge(ByteSize::new(10_000)).unwrap();
        shelf.add(group, N0, 10_000);
    }
    for (max, high) in [(4_000, u64::MAX), (1_000, 1_000), (0, 0)] {
        tenant.set_max(ByteSize::new(max));
        tenant.set_high(ByteSize::new(high));
        reclaimer.charged(&tenant);
        until("the tenant is below its new limit", || tenant.usage() <= ByteSize::new(max));
        assert_eq!(tenant.usage().get(), shelf.len(&tenant, N0), "the usage is the number of objects");
    }
    assert_eq!(neighbour.usage(), ByteSize::new(10_000), "no other group paid");
    tenant.set_max(ByteSize::MAX);
    tenant.set_high(ByteSize::MAX);
    let _charged = tenant.try_charge(ByteSize::new(10)).unwrap();
}

/// The system provides no thread. The limit cannot be removed from a process again, so each test
/// runs in a child process: this test's own binary, whose threads request more stack than there is
/// address space.
#[cfg(target_os = "linux")]
mod no_threads {
    use super::*;
    use lowwater_shrinker::StartError;
    use std::process::Command;

    const CHILD: &str = "LOWWATER_FAULTS_CHILD";

    /// Returns true in the child. Otherwise runs the test `test` in a child, after the shell
    /// commands `shell`, asserts that it passes, and returns false.
    fn in_child(test: &str, shell: &str) -> bool {
        if std::env::var_os(CHILD).is_some() {
            return true;
        }
        let this = std::env::current_exe().unwrap();
        let script = format!("{shell}; exec \"$0\" --exact {test} --test-threads=1 --nocapture");
        let out = Command::new("sh").args(["-c", &script]).arg(this).env(CHILD, "1").output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && text.contains("1 passed"), "{}: {text}", out.status);
        false
    }

    fn threads_alive() -> usize {
        std::fs::read_dir("/proc/self/task").unwrap().count()
    }

    #[test]
    fn a_reclaimer_without_a_thread_is_an_error_and_manual_reclaim_works() {
        let name = "no_threads::a_reclaimer_without_a_thread_is_an_error_and_manual_reclaim_works";
        if !in_child(name, "export RUST_MIN_STACK=4611686018427387904") {
            return;
        }
        let (tree, registry, shelf, _registration) = one_shelf();
        shelf.add(tree.root(), N0, 100);
        let error = Reclaimer::start(&registry, Arc::new(Fixed::new(1)), MARKS).unwrap_err();
        let StartError::Thread { node: N0, .. } = &error else { panic!("{error}") };
        let text = error.to_string();
        assert!(text.contains("no reclaimer thread for node 0") && text.contains("ulimit -u"), "{text}");
        // The lists, the map and manual reclaim do not need a thread.
        assert_eq!(registry.drop_caches(), 100);
        shelf.add(tree.root(), N0, 7);
        assert_eq!(registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| shelf.total() == 0).freed, 7);
    }

    #[test]
    fn a_partial_start_stops_its_threads_again() {
        let name = "no_threads::a_partial_start_stops_its_threads_again";
        if std::env::var_os("LOWWATER_SANITIZER").is_some() {
            return println!("skipped: a sanitizer needs more address space than the limit");
        }
        // 1.4 GiB of address space: enough for a few stacks of 64 MiB, not for 64 of them.
        if !in_child(name, "export RUST_MIN_STACK=67108864; ulimit -v 1500000") {
            return;
        }
        let tree = MemcgTree::new(0);
        let registry = Registry::new(&tree, 64);
        let before = threads_alive();
        let error = Reclaimer::start(&registry, Arc::new(Fixed::new(64)), MARKS).unwrap_err();
        let StartError::Thread { node, .. } = &error else { panic!("{error}") };
        assert!(node.index() > 1 && node.index() < 64, "some had started: {error}");
        until("those are gone", || threads_alive() == before);
    }
}
