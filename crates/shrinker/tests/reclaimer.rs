//! The reclaimer threads, and the steps that they run.
//!
//! Tests of a `Job` step it without a thread, and so do not depend on time; tests of the threads
//! wait for a state.
//!
//! A change must ensure that a slow machine fails no test: a test that expects an event waits for
//! its state, and only a test that expects no event sleeps.

#![cfg(all(feature = "std", not(lowwater_loom)))]

mod common;

use common::{shelf_on, Shelf};
use lowwater_lru_core::topology::{Fixed, Topology};
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId};
use lowwater_shrinker::{Job, Reclaimer, Registration, Registry, Scan, ShrinkControl, StartError, Step};
use lowwater_shrinker::{ReclaimReason, Watermarks};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

const N0: NodeId = NodeId::ZERO;
/// Gaps in bytes. They apply to a `max` of 1,600,000 or more; a smaller `max` caps them at a
/// sixteenth and an eighth of it ([`Watermarks`]).
const MARKS: Watermarks = Watermarks { low_gap: ByteSize::new(100_000), high_gap: ByteSize::new(200_000) };

fn world(nodes: usize) -> (MemcgTree, Registry, Arc<Shelf>, Registration) {
    shelf_on(nodes, Shelf::of_bytes(100))
}

fn start(registry: &Registry) -> Reclaimer {
    Reclaimer::start(registry, Arc::new(Fixed::new(registry.nodes())), MARKS).unwrap()
}

/// Puts objects of 100 bytes on the shelf, charged.
fn fill(shelf: &Shelf, memcg: &Memcg, node: NodeId, objects: u64) {
    let _ = memcg.try_charge(ByteSize::new(objects * 100)).unwrap();
    shelf.add(memcg, node, objects);
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "still waiting until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_group_near_its_max_is_reclaimed_to_the_high_gap() {
    let (tree, registry, shelf, _registration) = world(1);
    let root = tree.root();
    root.set_max(ByteSize::new(2_000_000));
    let group = root.create("g").unwrap();
    let reclaimer = start(&registry);
    fill(&shelf, &group, N0, 18_900);
    reclaimer.charged(&group);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(root.usage(), ByteSize::new(1_890_000), "not near yet");

    fill(&shelf, &group, N0, 200);
    reclaimer.charged(&group);
    wait_until("usage is at the high mark", || root.usage() <= ByteSize::new(1_800_000));
    std::thread::sleep(Duration::from_millis(20));
    // Reclaim goes beyond the mark by less than a batch, which is 128 objects by default.
    assert!(root.usage() > ByteSize::new(1_800_000 - 128 * 100), "{} are left", root.usage());
    assert_eq!(reclaimer.stats()[0].exhausted, 0);
}

#[test]
fn high_and_max_of_a_group_are_enforced_in_the_background() {
    let (tree, registry, shelf, _registration) = world(2);
    let group = tree.root().create("g").unwrap();
    group.set_high(ByteSize::new(50_000));
    let reclaimer = start(&registry);
    fill(&shelf, &group, N0, 600);
    fill(&shelf, &group, NodeId::new(1), 600);
    reclaimer.charged(&group);
    wait_until("usage is within high", || group.usage() <= ByteSize::new(50_000));

    group.set_high(ByteSize::MAX);
    group.set_max(ByteSize::new(16_000));
    reclaimer.wake(&group, ReclaimReason::Limit);
    // This limit is so small that it caps the gaps: reclaim stops an eighth below it.
    wait_until("usage is an eighth below max", || group.usage() <= ByteSize::new(14_000));

    let before = group.usage();
    reclaimer.wake(&group, ReclaimReason::Manual(ByteSize::new(5_000)));
    wait_until("5,000 bytes are gone", || group.usage() <= before.saturating_sub(ByteSize::new(5_000)));
}

#[test]
fn bytes_in_stock_wake_no_reclaimer() {
    let tree = MemcgTree::new(1);
    let registry = Registry::new(&tree, 1);
    let group = tree.root().create("g").unwrap();
    // Near the limit including the stock, far from it without.
    tree.root().set_max(ByteSize::new(33_000));
    for _ in 0..2 {
        let _ = group.try_charge(ByteSize::new(100)).unwrap();
    }
    // The first charge added 32 KiB to this processor's stock, and the second took 100 bytes of it.
    assert_eq!((group.usage(), group.in_stock()), (ByteSize::new(32_868), ByteSize::new(32_668)));
    let reclaimer = start(&registry);
    reclaimer.charged(&group);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(reclaimer.stats()[0].wakeups, 0);
    // A sixteenth below `max` the reclaimer starts.
    assert!(group.try_charge_from_stock(ByteSize::new(33_000 - 33_000 / 16 - 200 + 1)));
    reclaimer.charged(&group);
    wait_until("the thread has woken: a byte more than the low mark is in use", || reclaimer.stats()[0].wakeups > 0);
}

#[test]
fn every_tenant_loses_the_same_share() {
    let (tree, registry, shelf, _registration) = world(1);
    let root = tree.root();
    root.set_max(ByteSize::new(2_000_000));
    let groups: Vec<_> = (0..100).map(|n| root.create(&n.to_string()).unwrap()).collect();
    for group in &groups {
        fill(&shelf, group, N0, 199);
    }
    let reclaimer = start(&registry);
    reclaimer.charged(root);
    wait_until("usage is at the high mark", || root.usage() <= ByteSize::new(1_800_000));
    let lens: Vec<_> = groups.iter().map(|group| shelf.len(group, N0)).collect();
    let (least, most) = (lens.iter().min().unwrap(), lens.iter().max().unwrap());
    // Usage reaches the mark during a pass, which has then visited only some of the groups. A pass
    // at the priority of this job takes at most an eighth of a group.
    assert!(most - least <= 199 / 8, "between {least} and {most} of 199 are left");
}

/// A job may take minutes, for which the metrics would show steps that free nothing.
#[test]
fn freed_objects_are_counted_while_a_job_goes_on() {
    let (tree, registry, shelf, _registration) = world(1);
    let (batches, is_held) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
    let (their_batches, held_now) = (Arc::clone(&batches), Arc::clone(&is_held));
    // A step scans 32 batches at most (`SCAN_MAX` in `src/reclaimer/thread.rs`), so at least one
    // step that has freed objects ends before batch number 40.
    let scan = move |_: &mut ShrinkControl<'_>| {
        if their_batches.fetch_add(1, Relaxed) == 39 {
            wait_until("the test has read the statistics", || !held_now.load(Relaxed));
        }
        None
    };
    shelf.scan.set(Box::new(scan)).ok().unwrap();
    fill(&shelf, tree.root(), N0, 10_000);
    let reclaimer = start(&registry);
    reclaimer.wake(tree.root(), ReclaimReason::Manual(ByteSize::new(1_000_000)));
    wait_until("the thread is in batch number 40", || batches.load(Relaxed) >= 40);
    let stats = reclaimer.stats()[0];
    is_held.store(false, Relaxed);
    assert!(stats.steps > 0 && stats.freed > 0, "{stats:?}");
    wait_until("all objects are counted", || reclaimer.stats()[0].freed == 10_000);
}

#[test]
fn the_reclaimer_rests_if_nothing_can_be_freed() {
    let (tree, registry, shelf, _registration) = world(1);
    tree.root().set_max(ByteSize::new(1_000_000));
    shelf.scan.set(Box::new(|_| Some(Scan::Stop))).ok().unwrap();
    fill(&shelf, tree.root(), N0, 10_000);
    let reclaimer = start(&registry);
    reclaimer.charged(tree.root());
    wait_until("the first round gives up", || reclaimer.stats()[0].exhausted > 0);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(300) {
        reclaimer.charged(tree.root());
    }
    let stats = reclaimer.stats()[0];
    // Rests of 1, 2, 4, ... ms: eight or nine rounds, each of a step per priority from 12 to 0.
    assert!(stats.wakeups <= 12, "{} rounds in 300 ms", stats.wakeups);
}

/// No charge follows that would request the reclaim again, as in a process that becomes idle.
#[test]
fn a_limit_is_reached_after_its_job_was_given_up() {
    let node = NodeId::new(1);
    // Busy for longer than a job waits, and objects that are all in use for a while.
    for answer in [Scan::Busy, Scan::Stop] {
        let (tree, registry, shelf, _registration) = world(2);
        let group = tree.root().create("g").unwrap();
        let is_held = Arc::new(AtomicBool::new(true));
        let held_now = Arc::clone(&is_held);
        shelf.scan.set(Box::new(move |_| held_now.load(Relaxed).then_some(answer))).ok().unwrap();
        fill(&shelf, &group, node, 1_000);
        let reclaimer = start(&registry);
        let stats = || reclaimer.stats()[node.index()];
        // This wakes the threads.
        group.set_max(ByteSize::new(16_000));
        // Twice: it is also given up again.
        wait_until("the job was given up twice", || stats().exhausted >= 2);
        assert_eq!(group.usage(), ByteSize::new(100_000));
        is_held.store(false, Relaxed);
        wait_until("usage is an eighth below max", || group.usage() <= ByteSize::new(14_000));
    }
}

#[test]
fn a_dropped_reclaimer_leaves_no_hook() {
    let (tree, registry, _shelf, _registration) = world(1);
    let before = tree.footprint();
    drop(start(&registry));
    assert_eq!(tree.footprint(), before);
}

#[test]
fn a_job_raises_its_priority_only_if_progress_is_too_slow() {
    let (tree, registry, shelf, _registration) = world(1);
    fill(&shelf, tree.root(), N0, 1_000_000);
    let mut job = Job::new(tree.root().clone(), ByteSize::new(100_000_000 - 100 * 1000));
    let mut steps = 0;
    while job.step(&registry, N0, 4096) == Step::Again {
        steps += 1;
        assert!(steps < 20);
    }
    // A step at priority 12 frees 1/2048 of the objects, 488: more than an eighth of the target's
    // 1,000, so the pressure need not rise.
    assert_eq!(job.priority(), 12);
    let freed = 1_000_000 - shelf.total();
    assert!((1000..1128).contains(&freed), "{freed} objects for 1,000");

    let mut job = Job::new(tree.root().clone(), ByteSize::ZERO);
    while job.step(&registry, N0, u64::MAX) == Step::Again {}
    assert_eq!((job.priority() < 12, shelf.total()), (true, 0));
    // Charged, but not for objects that can be freed: one step per priority from 12 to 0.
    let _ = tree.root().try_charge(ByteSize::new(1)).unwrap();
    let mut job = Job::new(tree.root().clone(), ByteSize::ZERO);
    let mut steps = 1;
    while job.step(&registry, N0, u64::MAX) == Step::Again {
        steps += 1;
    }
    assert_eq!((job.step(&registry, N0, u64::MAX), steps), (Step::Exhausted, 13));
}

/// A higher pressure does not help a step that its bound on objects cuts short. If such a step
/// freed nothing, the pressure rises all the same.
#[test]
fn a_step_that_is_cut_short_keeps_its_priority_if_it_freed_something() {
    let (tree, registry, shelf, _registration) = world(1);
    fill(&shelf, tree.root(), N0, 1_000_000);
    // A step frees 128 objects of a million, far fewer than the target asks of one.
    let mut job = Job::new(tree.root().clone(), ByteSize::ZERO);
    for _ in 0..20 {
        assert_eq!(job.step(&registry, N0, 128), Step::Again);
    }
    assert_eq!(job.priority(), 12);
    assert!(shelf.total() < 1_000_000 && shelf.total() >= 1_000_000 - 20 * 128, "{} are left", shelf.total());
    // The bound lets no object through.
    assert_eq!(job.step(&registry, N0, 0), Step::Again);
    assert_eq!(job.priority(), 11);
}

#[test]
fn a_job_is_given_up_if_its_steps_may_scan_nothing() {
    let (tree, registry, shelf, _registration) = world(1);
    fill(&shelf, tree.root(), N0, 1_000);
    let mut job = Job::new(tree.root().clone(), ByteSize::ZERO);
    // The visit of the first step counts the objects.
    let last = (0..1_000).find(|&n| job.step(&registry, N0, u64::from(n == 0)) != Step::Again);
    // One step per priority from 12 to 0.
    assert_eq!((last, job.step(&registry, N0, 0)), (Some(12), Step::Exhausted));
    assert!(shelf.total() > 0);
}

#[test]
fn a_step_without_work_calls_no_shrinker() {
    let (tree, registry, shelf, _registration) = world(1);
    fill(&shelf, tree.root(), N0, 1_000);
    let mut reached = Job::new(tree.root().clone(), tree.root().usage());
    assert_eq!(reached.step(&registry, N0, u64::MAX), Step::Done);

    let ended = tree.root().create("g").unwrap();
    fill(&shelf, &ended, N0, 1_000);
    let mut job = Job::new(ended.clone(), ByteSize::ZERO);
    ended.offline().unwrap();
    assert_eq!(job.step(&registry, N0, u64::MAX), Step::Done);
    assert_eq!((shelf.counts.load(Relaxed), shelf.total()), (0, 2_000));
    assert_eq!((job.freed(), reached.freed()), (0, 0));
}

#[test]
fn a_job_continues_until_all_second_chances_are_used() {
    const OBJECTS: u64 = 100_000;
    let (tree, registry, shelf, _registration) = world(1);
    fill(&shelf, tree.root(), N0, OBJECTS);
    // Each object is kept three times: fewer than the four rounds without progress after which a
    // job gives up (`IDLE_ROUNDS_MAX` in `src/reclaimer/step.rs`). A step scans only some of them.
    let chances = AtomicU64::new(3 * OBJECTS);
    let scan = move |sc: &mut ShrinkControl<'_>| {
        let nr = sc.nr_to_scan();
        let kept = chances.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(nr)).is_ok();
        kept.then(|| {
            sc.set_nr_scanned(nr);
            Scan::Freed(0)
        })
    };
    shelf.scan.set(Box::new(scan)).ok().unwrap();
    let mut job = Job::new(tree.root().clone(), ByteSize::new(OBJECTS * 100 / 10));
    let end = loop {
        match job.step(&registry, N0, 4096) {
            Step::Again => {}
            end => break end,
        }
    };
    assert_eq!(end, Step::Done);
    assert!(shelf.total() <= OBJECTS / 10);
}

#[test]
fn a_job_ends_if_every_object_is_always_kept() {
    const OBJECTS: u64 = 100_000;
    let (tree, registry, shelf, _registration) = world(1);
    fill(&shelf, tree.root(), N0, OBJECTS);
    let scanned = Arc::new(AtomicU64::new(0));
    let counts = scanned.clone();
    let scan = move |sc: &mut ShrinkControl<'_>| {
        counts.fetch_add(sc.nr_to_scan(), Relaxed);
        sc.set_nr_scanned(sc.nr_to_scan());
        Some(Scan::Freed(0))
    };
    shelf.scan.set(Box::new(scan)).ok().unwrap();
    let mut job = Job::new(tree.root().clone(), ByteSize::ZERO);
    while job.step(&registry, N0, 4096) == Step::Again {}
    assert_eq!(job.step(&registry, N0, 4096), Step::Exhausted);
    // The job gives up after four rounds (`IDLE_ROUNDS_MAX`) at priority 0. The steps before them
    // scan less than one.
    let rounds = scanned.load(Relaxed) / OBJECTS;
    assert!((4..=5).contains(&rounds), "{rounds} rounds");
}

/// All objects are kept, except for one, which is freed in the step in which the job would give up.
/// After that step the job must scan as much as if it had just begun to be idle.
#[test]
fn progress_restarts_the_idle_count_of_a_job() {
    // Steps that scan all objects, and steps that their bound cuts short.
    for (objects, scan_max) in [(100, u64::MAX), (1_000, 500)] {
        // Frees an object in step number `freeing_step`. Returns the number of all steps, and the
        // idle steps and scanned objects after that one.
        let run = |freeing_step: u64| {
            let (tree, registry, shelf, _registration) = world(1);
            fill(&shelf, tree.root(), N0, objects);
            let (step, scanned) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let (now, counts) = (step.clone(), scanned.clone());
            let scan = move |sc: &mut ShrinkControl<'_>| {
                if now.load(Relaxed) == freeing_step && sc.nr_to_scan() == 1 {
                    // The shelf frees the object.
                    return None;
                }
                counts.fetch_add(sc.nr_to_scan(), Relaxed);
                Some(Scan::Freed(0))
            };
            shelf.scan.set(Box::new(scan)).ok().unwrap();
            let mut job = Job::new(tree.root().clone(), ByteSize::ZERO);
            let (mut idle, mut scanned_after) = (0, 0);
            loop {
                step.fetch_add(1, Relaxed);
                let is_freeing = step.load(Relaxed) == freeing_step;
                let verdict = job.step(&registry, N0, if is_freeing { 1 } else { scan_max });
                if is_freeing {
                    assert_eq!(shelf.total(), objects - 1);
                    (idle, scanned_after) = (0, scanned.load(Relaxed));
                } else if job.priority() == 0 {
                    idle += 1;
                }
                if verdict != Step::Again {
                    assert_eq!(verdict, Step::Exhausted);
                    return (step.load(Relaxed), idle, scanned.load(Relaxed) - scanned_after);
                }
            }
        };
        let (last, ..) = run(u64::MAX);
        let (_, idle, scanned) = run(last);
        // `IDLE_STEPS_MAX` and `IDLE_ROUNDS_MAX` of `src/reclaimer/step.rs`.
        assert!(idle >= 3, "{idle} idle steps after the one that got on, of {objects}");
        assert!(scanned >= 4 * (objects - 1), "{scanned} looked at after the step that got on, of {objects}");
    }
}

#[test]
fn manual_reclaim_frees_the_requested_bytes_from_all_nodes() {
    let (tree, registry, shelf, _registration) = world(2);
    let (group, other) = (tree.root().create("g").unwrap(), tree.root().create("h").unwrap());
    for node in [N0, NodeId::new(1)] {
        fill(&shelf, &group, node, 1000);
        fill(&shelf, &other, node, 1000);
    }
    let freed = registry.reclaim(&group, ByteSize::new(60_000)).get();
    assert!((60_000..60_000 + 12_800).contains(&freed), "{freed} bytes");
    assert_eq!(other.usage(), ByteSize::new(200_000));
    assert_eq!(registry.reclaim(&group, ByteSize::new(1_000_000)).get(), 200_000 - freed);
    assert_eq!(registry.reclaim(&group, ByteSize::new(1)), ByteSize::ZERO);
}

#[test]
fn a_reclaimer_stops_promptly_and_holds_nothing() {
    let (tree, registry, shelf, registration) = world(2);
    let reclaimer = start(&registry);
    fill(&shelf, tree.root(), N0, 10);
    reclaimer.wake(tree.root(), ReclaimReason::Manual(ByteSize::new(100)));
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(reclaimer);
        let _ = sender.send(());
    });
    assert!(receiver.recv_timeout(Duration::from_secs(60)).is_ok(), "a thread does not stop");
    registration.unregister().unwrap();
    assert_eq!(Arc::strong_count(&shelf), 1);
    drop(registry);
    // The shelf outlives the registry.
    shelf.counts.load(Relaxed);
}

#[test]
fn a_topology_with_another_node_count_is_refused() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 2);
    let topology: Arc<dyn Topology> = Arc::new(Fixed::new(3));
    let error = Reclaimer::start(&registry, topology, MARKS).unwrap_err();
    assert!(matches!(error, StartError::Nodes { topology: 3, registry: 2 }));
    assert!(error.to_string().contains("from the same topology"));
}
