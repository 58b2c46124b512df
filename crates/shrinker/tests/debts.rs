//! Debts from beginning to end: left by threads that may not reclaim, reported to the background,
//! paid there.
//!
//! - S24: deferred objects are owed exactly, and nothing is scanned;
//! - S23: foreground reclaim does not pay;
//! - S5: no owed object is paid twice;
//! - a debt is paid without any pressure, a large one at once, a small one soon;
//! - a shrinker that requests a back-off gets one, a bounded number of times.
//!
//! Numbers such as S24 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that debts are compared exactly, but for a carried fraction of an object.

#![cfg(all(feature = "std", not(lowwater_loom)))]

mod common;

use common::{shelf_on, CountFn, Shelf};
use lowwater_lru_core::topology::Fixed;
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId};
use lowwater_shrinker::budget::Kick;
use lowwater_shrinker::Watermarks;
use lowwater_shrinker::{
    Count, DebtListener, Job, Reclaim, Reclaimer, Registration, Registry, Scan, ShrinkControl, Step, Work,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{mpsc, Arc, Mutex};
use std::time::{Duration, Instant};

const N0: NodeId = NodeId::ZERO;
/// A caller inside a file system: it may not take the caches' locks.
const NOFS: Reclaim = Reclaim::MAY_BLOCK.union(Reclaim::MAY_IO);

/// A registry and a shelf that defers the scan if the caller lacks [`Reclaim::MAY_FS`].
fn world(nodes: usize) -> (MemcgTree, Registry, Arc<Shelf>, Registration) {
    let world = shelf_on(nodes, Shelf::new());
    world
        .2
        .count
        .set(Box::new(|sc| {
            if !sc.flags().contains(Reclaim::MAY_FS) {
                sc.will_defer();
            }
            None
        }))
        .ok()
        .unwrap();
    world
}

/// Leaves a debt: a pass at this priority that may not scan.
fn defer(registry: &Registry, memcg: &Memcg, node: NodeId, priority: u8) {
    registry.shrink(memcg, node, priority, NOFS, &mut Work::unlimited());
}

fn start(registry: &Registry) -> Reclaimer {
    let marks = Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO };
    Reclaimer::start(registry, Arc::new(Fixed::new(registry.nodes())), marks).unwrap()
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "still waiting until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[derive(Default)]
struct Recorder(Mutex<Vec<(Memcg, NodeId, Kick)>>);

impl DebtListener for Recorder {
    fn notify_debt(&self, memcg: &Memcg, node: NodeId, kick: Kick) {
        self.0.lock().unwrap().push((memcg.clone(), node, kick));
    }
}

#[test]
fn the_debt_listener_is_notified_at_once_of_large_debts() {
    let (tree, registry, shelf, _registration) = world(2);
    let (group, node) = (tree.root().create("g").unwrap(), NodeId::new(1));
    let recorder = Arc::new(Recorder::default());
    registry.set_debt_listener(Some(Arc::clone(&recorder) as Arc<dyn DebtListener>));
    shelf.add(&group, node, 100_000);
    defer(&registry, tree.root(), node, 12);
    assert_eq!(recorder.0.lock().unwrap().pop(), Some((group.clone(), node, Kick::Soon)), "48 objects of 100,000");
    defer(&registry, tree.root(), node, 3);
    assert_eq!(recorder.0.lock().unwrap().pop(), Some((group.clone(), node, Kick::Now)), "a quarter of all");
    registry.shrink(tree.root(), node, 3, Reclaim::FOREGROUND, &mut Work::objects(1000));
    assert!(recorder.0.lock().unwrap().is_empty(), "a thread that scans leaves no debt");
    // The background is not notified of debts that it leaves itself.
    registry.shrink(tree.root(), node, 3, NOFS | Reclaim::BACKGROUND, &mut Work::unlimited());
    assert!(recorder.0.lock().unwrap().is_empty());
}

#[test]
fn the_debt_listener_is_not_notified_of_a_visit_that_owes_nothing_new() {
    let (tree, registry, shelf, registration) = world(1);
    let recorder = Arc::new(Recorder::default());
    registry.set_debt_listener(Some(Arc::clone(&recorder) as Arc<dyn DebtListener>));
    shelf.add(tree.root(), N0, 1000);
    defer(&registry, tree.root(), N0, 3);
    assert!(recorder.0.lock().unwrap().pop().is_some());
    // Less than half an object, which is carried.
    defer(&registry, tree.root(), N0, 12);
    assert_eq!(registry.owed(tree.root(), N0, registration.id()), shelf_part(1000, 3));
    assert!(recorder.0.lock().unwrap().is_empty());
}

#[test]
fn s24_debts_are_paid_in_the_background_without_any_pressure_and_exactly() {
    let (tree, registry, shelf, registration) = world(2);
    let (group, node) = (tree.root().create("g").unwrap(), NodeId::new(1));
    shelf.add(&group, node, 100_000);
    shelf.add(tree.root(), N0, 100_000);
    let _reclaimer = start(&registry);
    let owed = || registry.owed(&group, node, registration.id());
    for priority in [12, 4, 8] {
        let before = shelf.total();
        defer(&registry, &group, node, priority);
        // Exactly the part, plus at most a carried fraction. Objects are taken from the debt before
        // they are scanned, so the test waits for both.
        let exact = shelf_part(before - 100_000, priority);
        wait_until("all is scanned", || owed() == 0 && before - shelf.total() + 1 >= exact);
        let freed = before - shelf.total();
        assert!(freed.abs_diff(exact) <= 1, "{freed} objects for {exact} owed at priority {priority}");
    }
    assert_eq!(shelf.len(tree.root(), N0), 100_000, "without a debt nothing is paid");
}

/// Returns the part of a cache that a pass scans or defers, at `seeks` 2.
fn shelf_part(freeable: u64, priority: u8) -> u64 {
    freeable * 4 / (2 << priority)
}

#[test]
fn s17_a_second_count_that_panics_leaves_no_debt_to_the_next_owner_of_the_id() {
    let (tree, registry, other, _registration) = world(1);
    other.add(tree.root(), N0, 1);
    let shelf = Arc::new(Shelf::new());
    let registration = shelf.register(registry.builder("panics").alloc().unwrap());
    let id = registration.id();
    let calls = AtomicU64::new(0);
    let count: CountFn = Box::new(move |sc| match calls.fetch_add(1, Relaxed) {
        0 => {
            sc.will_defer();
            Some(Count::Objects(1000))
        }
        1 => Some(Count::Empty),
        _ => std::panic::panic_any("the callback's own fault"),
    });
    shelf.count.set(count).ok().unwrap();
    shelf.occupied(tree.root(), N0);
    defer(&registry, tree.root(), N0, 4);
    assert!(registry.owed(tree.root(), N0, id) > 0);
    defer(&registry, tree.root(), N0, 4);
    assert!(registration.stats().quarantined);
    registration.unregister().unwrap();
    let prepared = registry.builder("next").alloc().unwrap();
    assert_eq!(prepared.id(), id, "the id is reused");
    prepared.occupancy().occupied(tree.root(), N0);
    assert_eq!(registry.owed(tree.root(), N0, id), 0);
    let snapshot = registry.snapshot();
    let pair = snapshot.pairs.iter().find(|pair| pair.shrinker == id).unwrap();
    assert_eq!((pair.count, pair.deferred), (None, 0));
}

/// A visit defers objects while another one, which freed all that it counted, has the bit clear for
/// its second count.
#[test]
fn s6_a_debt_is_kept_beside_a_visit_that_counts_again() {
    let (tree, registry, shelf, registration) = shelf_on(1, Shelf::new());
    shelf.add(tree.root(), N0, 1_000);
    let (tell, entered) = mpsc::channel();
    let (leave, wait) = mpsc::channel();
    let (finish, finished) = mpsc::channel();
    let (second, counts) = (Mutex::new((leave, finished)), AtomicU64::new(0));
    // The first count is that of the visit that defers, the others are those of the other visit.
    let count: CountFn = Box::new(move |_| match counts.fetch_add(1, Relaxed) {
        0 => Some(Count::Objects(1_000)),
        1 => Some(Count::Objects(10)),
        _ => {
            let second = second.lock().unwrap();
            second.0.send(()).unwrap();
            second.1.recv().unwrap();
            Some(Count::Objects(990))
        }
    });
    shelf.count.set(count).ok().unwrap();
    let (stuck, first) = (Mutex::new((tell, wait)), AtomicBool::new(true));
    let scan = move |_: &mut ShrinkControl<'_>| {
        if !first.swap(false, Relaxed) {
            return Some(Scan::Freed(10));
        }
        let stuck = stuck.lock().unwrap();
        stuck.0.send(()).unwrap();
        stuck.1.recv().unwrap();
        Some(Scan::Stop)
    };
    shelf.scan.set(Box::new(scan)).ok().unwrap();
    let visit = |priority| registry.shrink(tree.root(), N0, priority, Reclaim::FOREGROUND, &mut Work::unlimited());
    std::thread::scope(|s| {
        s.spawn(|| {
            visit(2);
            finish.send(()).unwrap();
        });
        entered.recv().unwrap();
        visit(0);
    });
    assert_eq!(registry.owed(tree.root(), N0, registration.id()), 500);
}

#[test]
fn s5_a_debt_is_paid_once_by_concurrent_payers() {
    let (tree, registry, shelf, registration) = world(1);
    shelf.add(tree.root(), N0, 1_000_000);
    for _ in 0..4 {
        defer(&registry, tree.root(), N0, 6);
    }
    let debt = registry.owed(tree.root(), N0, registration.id());
    assert_eq!(debt, 4 * shelf_part(1_000_000, 6));
    let paid = AtomicU64::new(0);
    let pay = || {
        let (progress, left) = registry.pay_debts(tree.root(), N0, &mut Work::objects(512));
        paid.fetch_add(progress.scanned, Relaxed);
        left
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| while pay() > 0 {});
        }
    });
    // A thread that pays while another has taken the last objects sees no debt, and returns;
    // objects that the other thread puts back are paid here.
    while pay() > 0 {}
    assert_eq!((1_000_000 - shelf.total(), paid.into_inner()), (debt, debt));
}

#[test]
fn s23_direct_reclaim_pays_no_debts() {
    let (tree, registry, shelf, registration) = world(1);
    shelf.add(tree.root(), N0, 1_000_000);
    defer(&registry, tree.root(), N0, 3);
    let before = registry.owed(tree.root(), N0, registration.id());
    registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false);
    assert_eq!(registry.owed(tree.root(), N0, registration.id()), before);
}

#[test]
fn a_protected_groups_debts_wait() {
    let (tree, registry, shelf, registration) = shelf_on(1, Shelf::of_bytes(100));
    let group = tree.root().create("g").unwrap();
    let _ = group.try_charge(ByteSize::new(100_000)).unwrap();
    shelf.add(&group, N0, 1000);
    let stop = Arc::new(AtomicBool::new(true));
    let stops = Arc::clone(&stop);
    shelf.scan.set(Box::new(move |_| stops.load(Relaxed).then_some(Scan::Stop))).ok().unwrap();
    registry.shrink(tree.root(), N0, 4, Reclaim::FOREGROUND, &mut Work::unlimited());
    stop.store(false, Relaxed);
    let owed = registry.owed(&group, N0, registration.id());
    assert_eq!(owed, shelf_part(1000, 4));
    group.set_low(ByteSize::new(100_000));
    assert_eq!(registry.pay_debts(&group, N0, &mut Work::unlimited()).0.scanned, 0);
    group.set_low(ByteSize::ZERO);
    let (progress, left) = registry.pay_debts(&group, N0, &mut Work::unlimited());
    assert_eq!((progress.freed, left), (owed, 0));
}

#[test]
fn a_debt_job_terminates_with_any_shrinker() {
    let (tree, registry, shelf, _registration) = world(1);
    shelf.add(tree.root(), N0, 10_000);
    let answers: [fn(&mut lowwater_shrinker::ShrinkControl<'_>) -> Scan; 3] = [
        |_| Scan::Stop,
        |sc| {
            sc.back_off();
            Scan::Stop
        },
        |_| Scan::Freed(0),
    ];
    let which = Arc::new(AtomicU64::new(0));
    let answer = Arc::clone(&which);
    shelf.scan.set(Box::new(move |sc| Some(answers[answer.load(Relaxed) as usize](sc)))).ok().unwrap();
    for (n, end) in [Step::Exhausted, Step::Exhausted, Step::Done].into_iter().enumerate() {
        which.store(n as u64, Relaxed);
        defer(&registry, tree.root(), N0, 2);
        let mut job = Job::debts(tree.root().clone());
        let mut steps = 1;
        let last = loop {
            match job.step(&registry, N0, 4096) {
                Step::Again | Step::BackOff => steps += 1,
                last => break last,
            }
            assert!(steps < 100, "answer {n} keeps the job for ever");
        };
        assert_eq!(last, end, "answer {n}");
    }
}

#[test]
fn a_back_off_keeps_the_priority_a_bounded_number_of_times() {
    let (tree, registry, shelf, registration) = shelf_on(1, Shelf::of_bytes(100));
    let _ = tree.root().try_charge(ByteSize::new(1_000_000)).unwrap();
    shelf.add(tree.root(), N0, 10_000);
    shelf
        .count
        .set(Box::new(|sc| {
            sc.back_off();
            None
        }))
        .ok()
        .unwrap();
    shelf.scan.set(Box::new(|_| Some(Scan::Stop))).ok().unwrap();
    let mut job = Job::new(tree.root().clone(), ByteSize::ZERO);
    // `BACK_OFFS_MAX` of `reclaimer/step.rs`.
    for _ in 0..8 {
        assert_eq!(job.step(&registry, N0, 4096), Step::BackOff);
        assert_eq!(job.priority(), 12);
    }
    assert_eq!(job.step(&registry, N0, 4096), Step::Again, "the ninth request in a row is ignored");
    assert_eq!(job.priority(), 11);
    assert_eq!(registration.stats().back_offs, 9);
}

#[test]
fn the_reclaimer_rests_after_a_back_off_and_continues() {
    let (tree, registry, shelf, registration) = world(1);
    shelf.add(tree.root(), N0, 100_000);
    let busy = Arc::new(AtomicBool::new(true));
    let is_busy = Arc::clone(&busy);
    shelf
        .scan
        .set(Box::new(move |sc| {
            if is_busy.load(Relaxed) {
                sc.back_off();
                return Some(Scan::Stop);
            }
            None
        }))
        .ok()
        .unwrap();
    let _reclaimer = start(&registry);
    defer(&registry, tree.root(), N0, 3);
    wait_until("a back-off is requested", || registration.stats().back_offs > 0);
    busy.store(false, Relaxed);
    // Whether the job was given up or not: the next debt starts it again.
    defer(&registry, tree.root(), N0, 12);
    wait_until("all is paid", || registry.owed(tree.root(), N0, registration.id()) == 0);
}

#[test]
fn a_small_debt_is_paid_soon_and_not_at_the_next_sweep() {
    let (tree, registry, shelf, registration) = world(1);
    shelf.add(tree.root(), N0, 1_000_000);
    let _reclaimer = start(&registry);
    for _ in 0..3 {
        // By the end of this sleep the reclaimer waits for its next sweep, in an hour.
        std::thread::sleep(Duration::from_millis(20));
        defer(&registry, tree.root(), N0, 12);
        wait_until("a small debt is paid", || registry.owed(tree.root(), N0, registration.id()) == 0);
    }
}

#[test]
fn the_end_of_one_reclaimer_leaves_the_debts_to_the_other() {
    let (tree, registry, shelf, registration) = world(1);
    shelf.add(tree.root(), N0, 100_000);
    let first = start(&registry);
    let _second = start(&registry);
    drop(first);
    defer(&registry, tree.root(), N0, 12);
    wait_until("the debt is paid", || registry.owed(tree.root(), N0, registration.id()) == 0);
}
