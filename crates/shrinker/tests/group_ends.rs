//! Groups that end during a round of reclaim: their objects move to a parent that may have been
//! visited already, so a round in which a group ended does not prove that nothing is left. Each
//! verdict that needs a whole round is checked here, and so is its bound.
//!
//! A callback of a shelf ends a group at the most harmful moment: when the round has counted the
//! parent, and not finished the group. A change must keep this moment, and a bound on each loop.

#![cfg(not(lowwater_loom))]
#![forbid(unsafe_code)]

mod common;

use common::{one_shelf, shelf_on, Shelf};
use lowwater_lru_core::{ByteSize, Memcg, NodeId};
use lowwater_shrinker::baseline::FullScan;
use lowwater_shrinker::{
    Count, DirectStop, Job, Reclaim, Registration, Registry, RegistryConfig, Scan, ShrinkControl, Step, Work,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const N0: NodeId = NodeId::ZERO;

/// Returns a function that takes the group offline when it is first called.
fn once(group: &Memcg) -> impl Fn() + Send + Sync {
    let group = Mutex::new(Some(group.clone()));
    move || {
        let group = group.lock().unwrap().take();
        group.into_iter().for_each(|group| group.offline().unwrap());
    }
}

#[test]
fn drop_caches_frees_objects_that_move_behind_it_to_a_parent() {
    for full_scan in [false, true] {
        let (tree, registry, shelf, _registration) = one_shelf();
        shelf.add(tree.root(), N0, 1);
        // The root is visited first, and its one object is freed. The child ends while the next
        // group is counted, which returns `Empty` in spite of its object.
        let empty = tree.root().create("empty").unwrap();
        let child = tree.root().create("child").unwrap();
        shelf.add(&empty, N0, 1);
        shelf.add(&child, N0, 100_000);
        let end = once(&child);
        let count = move |sc: &ShrinkControl<'_>| {
            let is_empty = *sc.memcg() == empty;
            if is_empty {
                end();
            }
            is_empty.then_some(Count::Empty)
        };
        shelf.count.set(Box::new(count)).ok().unwrap();
        let freed = if full_scan { FullScan::new(&registry).drop_caches() } else { registry.drop_caches() };
        assert_eq!((freed, shelf.total()), (100_001, 1), "all but the object of the group that is counted as empty");
        assert_eq!(registry.drop_caches(), 0);
    }
}

#[test]
fn drop_caches_frees_the_rest_of_a_group_that_ends_in_its_scan() {
    for full_scan in [false, true] {
        let (tree, registry, shelf, _registration) = one_shelf();
        let child = tree.root().create("child").unwrap();
        shelf.add(tree.root(), N0, 1);
        shelf.add(&child, N0, 100_000);
        let (end, root) = (once(&child), tree.root().clone());
        let scan = move |sc: &mut ShrinkControl<'_>| {
            if *sc.memcg() != root {
                end();
            }
            None
        };
        shelf.scan.set(Box::new(scan)).ok().unwrap();
        let freed = if full_scan { FullScan::new(&registry).drop_caches() } else { registry.drop_caches() };
        assert_eq!((freed, shelf.total()), (100_001, 0));
    }
}

#[test]
fn drop_caches_follows_objects_that_move_up_a_level_in_each_round() {
    let (tree, registry, shelf, _registration) = one_shelf();
    let mut way = vec![tree.root().clone()];
    for depth in 0..8 {
        let below = way[depth].create("below").unwrap();
        way.push(below);
    }
    way.iter().for_each(|group| shelf.add(group, N0, 1));
    shelf.add(&way[8], N0, 10_000);
    // When a group is scanned whose child is the deepest remaining group, this child ends.
    let (left, weak) = (Mutex::new(way.clone()), Arc::downgrade(&shelf));
    let scan = move |sc: &mut ShrinkControl<'_>| {
        let mut left = left.lock().unwrap();
        let parent = left.len().checked_sub(2).map(|at| left[at].clone());
        if parent.as_ref() == Some(sc.memcg()) {
            let shelf = weak.upgrade().unwrap();
            let deepest = left.pop().unwrap();
            // And the parent of the scanned group, which the pass has visited, gets an object.
            left.last().unwrap().parent().into_iter().for_each(|above| shelf.add(above, N0, 1));
            deepest.offline().unwrap();
        }
        None
    };
    shelf.scan.set(Box::new(scan)).ok().unwrap();
    registry.drop_caches();
    assert_eq!(shelf.total(), 0);
}

#[test]
fn drop_caches_terminates_while_groups_keep_ending() {
    for full_scan in [false, true] {
        let (tree, registry, shelf, _registration) = one_shelf();
        shelf.add(tree.root(), N0, 1);
        let (root, rounds) = (tree.root().clone(), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&rounds);
        let scan = move |_: &mut ShrinkControl<'_>| {
            let round = counted.fetch_add(1, Relaxed);
            root.create(&round.to_string()).unwrap().offline().unwrap();
            Some(Scan::Freed(0))
        };
        shelf.scan.set(Box::new(scan)).ok().unwrap();
        if full_scan {
            FullScan::new(&registry).drop_caches()
        } else {
            registry.drop_caches()
        };
        // A round has one scan. It is repeated three times as it frees nothing (`IDLE_PASSES_MAX`),
        // and then 16 times (`OVERLOOKED_MAX`).
        assert_eq!(rounds.load(Relaxed), 20);
    }
}

#[test]
fn direct_reclaim_does_not_give_up_in_a_lap_in_which_a_group_ends() {
    let (tree, registry, shelf, _registration) = one_shelf();
    let child = tree.root().create("child").unwrap();
    shelf.add(tree.root(), N0, 1);
    shelf.add(&child, N0, 1_000);
    let (end, first) = (once(&child), AtomicBool::new(true));
    // The first count is that of the root. The child ends during it, and the first lap finds
    // nothing to scan.
    let count = move |_: &ShrinkControl<'_>| {
        end();
        first.swap(false, Relaxed).then_some(Count::Unknown)
    };
    shelf.count.set(Box::new(count)).ok().unwrap();
    let outcome = registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| shelf.total() < 500);
    assert_eq!(outcome.stopped, DirectStop::Done, "{outcome:?}");
}

/// A registry whose direct reclaim has no bound in objects or time: it ends only when it gives up.
fn unbounded() -> (lowwater_lru_core::MemcgTree, Registry, Arc<Shelf>, Registration) {
    let tree = lowwater_lru_core::MemcgTree::new(0);
    let config = RegistryConfig::new(1).direct_scan_max(u64::MAX).direct_time_max_ns(u64::MAX);
    let registry = Registry::with_config(&tree, config);
    let shelf = Arc::new(Shelf::new());
    let registration = shelf.register(registry.builder("shelf").alloc().unwrap());
    (tree, registry, shelf, registration)
}

#[test]
fn direct_reclaim_and_a_job_give_up_although_groups_end_all_the_time() {
    let (tree, registry, shelf, _registration) = unbounded();
    shelf.add(tree.root(), N0, 1_000);
    let (root, scans) = (tree.root().clone(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&scans);
    let scan = move |_: &mut ShrinkControl<'_>| {
        let n = counted.fetch_add(1, Relaxed);
        root.create(&n.to_string()).unwrap().offline().unwrap();
        Some(Scan::Freed(0))
    };
    shelf.scan.set(Box::new(scan)).ok().unwrap();
    let outcome = registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false);
    assert_eq!(outcome.stopped, DirectStop::NothingLeft);
    assert!(scans.load(Relaxed) <= 64, "{} laps", scans.load(Relaxed));

    let _ = tree.root().try_charge(ByteSize::new(1)).unwrap();
    let mut job = Job::new(tree.root().clone(), ByteSize::ZERO);
    let steps = (0..1_000).take_while(|_| job.step(&registry, N0, u64::MAX) == Step::Again).count();
    assert!(steps < 100, "{steps} steps");
    assert_eq!(job.step(&registry, N0, u64::MAX), Step::Exhausted);
}

#[test]
fn s18_a_visit_of_a_group_that_ends_in_it_keeps_the_parents_debt() {
    // At priority 12 the visit of the child's ten objects leaves a fraction of an object, and at
    // priority 0 it owes all of them.
    for (priority, added) in [(12, 0), (0, 10)] {
        let (tree, registry, shelf, registration) = one_shelf();
        shelf.scan.set(Box::new(|_| Some(Scan::Stop))).ok().unwrap();
        shelf.add(tree.root(), N0, 200_000);
        registry.shrink(tree.root(), N0, 2, Reclaim::FOREGROUND, &mut Work::unlimited());
        let owed = || registry.owed(tree.root(), N0, registration.id());
        assert_eq!(owed(), 100_000);
        let child = tree.root().create("child").unwrap();
        shelf.add(&child, N0, 10);
        let (end, ends) = (once(&child), child.clone());
        let count = move |sc: &ShrinkControl<'_>| {
            let is_child = *sc.memcg() == ends;
            if is_child {
                end();
            }
            is_child.then_some(Count::Objects(10))
        };
        shelf.count.set(Box::new(count)).ok().unwrap();
        registry.shrink(&child, N0, priority, Reclaim::FOREGROUND, &mut Work::unlimited());
        assert_eq!(shelf.len(tree.root(), N0), 200_010, "the child has ended");
        assert_eq!(owed(), 100_000 + added, "priority {priority}");
    }
}

/// Makes scans of the shelf stop, or free nothing once the flag is false.
fn stop_scans(shelf: &Shelf) -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(true));
    let stops = Arc::clone(&stop);
    let scan = move |_: &mut ShrinkControl<'_>| Some(if stops.load(Relaxed) { Scan::Stop } else { Scan::Freed(0) });
    shelf.scan.set(Box::new(scan)).ok().unwrap();
    stop
}

#[test]
fn s18_a_visit_of_a_group_whose_child_ends_in_it_keeps_the_childs_debt() {
    for priority in [12, 0] {
        let (tree, registry, shelf, registration) = one_shelf();
        let child = tree.root().create("child").unwrap();
        let stop = stop_scans(&shelf);
        shelf.add(&child, N0, 200_000);
        registry.shrink(&child, N0, 2, Reclaim::FOREGROUND, &mut Work::unlimited());
        let owed = |memcg| registry.owed(memcg, N0, registration.id());
        assert_eq!(owed(&child), 100_000);
        stop.store(false, Relaxed);
        // The ten objects of the root are counted, and then the child ends.
        let (end, first, root) = (once(&child), AtomicBool::new(true), tree.root().clone());
        shelf.add(tree.root(), N0, 10);
        let count = move |sc: &ShrinkControl<'_>| {
            let counts_ten = *sc.memcg() == root && first.swap(false, Relaxed);
            if counts_ten {
                end();
            }
            counts_ten.then_some(Count::Objects(10))
        };
        shelf.count.set(Box::new(count)).ok().unwrap();
        registry.shrink(tree.root(), N0, priority, Reclaim::FOREGROUND, &mut Work::unlimited());
        assert_eq!(shelf.len(tree.root(), N0), 200_010, "the child has ended");
        assert_eq!(owed(tree.root()), 100_000, "priority {priority}");
    }
}

/// The debt of a child that ends after the count of the root, and before the visit takes the root's
/// debt, is neither taken nor reduced to the objects that were counted.
#[test]
fn s18_a_visit_takes_no_debt_of_a_child_that_ended_since_its_count() {
    for pays in [false, true] {
        let (tree, registry, shelf, registration) = one_shelf();
        let child = tree.root().create("child").unwrap();
        let stop = stop_scans(&shelf);
        shelf.add(tree.root(), N0, 10);
        shelf.add(&child, N0, 200_000);
        registry.shrink(tree.root(), N0, 2, Reclaim::FOREGROUND, &mut Work::unlimited());
        let owed = |memcg| registry.owed(memcg, N0, registration.id());
        assert_eq!((owed(tree.root()), owed(&child)), (5, 100_000));
        let (end, first) = (once(&child), AtomicBool::new(true));
        let count = move |_: &ShrinkControl<'_>| {
            // The first count is that of the root.
            end();
            first.swap(false, Relaxed).then_some(Count::Objects(10))
        };
        shelf.count.set(Box::new(count)).ok().unwrap();
        if pays {
            stop.store(false, Relaxed);
            registry.pay_debts(tree.root(), N0, &mut Work::unlimited());
        } else {
            registry.shrink(tree.root(), N0, 12, Reclaim::KSWAPD, &mut Work::unlimited());
        }
        assert_eq!(shelf.len(tree.root(), N0), 200_010, "the child has ended");
        assert!(owed(tree.root()) >= 99_990, "{} objects are owed; pays: {pays}", owed(tree.root()));
    }
}

#[test]
fn s3_a_debt_is_at_most_the_objects_although_other_groups_end() {
    let (tree, registry, shelf, registration) = one_shelf();
    shelf.scan.set(Box::new(|_| Some(Scan::Stop))).ok().unwrap();
    shelf.add(tree.root(), N0, 1_000);
    let root = tree.root().clone();
    let count = move |_: &ShrinkControl<'_>| {
        root.create("short").unwrap().offline().unwrap();
        None
    };
    shelf.count.set(Box::new(count)).ok().unwrap();
    for _ in 0..5 {
        registry.shrink(tree.root(), N0, 2, Reclaim::FOREGROUND, &mut Work::unlimited());
        assert!((1..=1_000).contains(&registry.owed(tree.root(), N0, registration.id())));
    }
}

/// Runs the steps of a job at the root until it ends. The root has `kept` objects that cannot be
/// freed, and a child with 1,000 objects that are counted as unknown. In step `ends_in` the child
/// ends, just after the root was counted; from the next step on, all objects can be freed.
/// Returns the steps, and the child's usage at the end.
fn job(kept: u64, ends_in: u64) -> (Vec<Step>, u64) {
    let (tree, registry, shelf, _registration) = shelf_on(1, Shelf::of_bytes(1));
    let child = tree.root().create("child").unwrap();
    let _ = child.try_charge(ByteSize::new(1_000)).unwrap();
    let _ = tree.root().try_charge(ByteSize::new(kept)).unwrap();
    shelf.add(tree.root(), N0, kept.max(1));
    shelf.add(&child, N0, 1_000);
    let (step, end) = (Arc::new(AtomicU64::new(0)), once(&child));
    let (now, ended) = (Arc::clone(&step), Arc::new(AtomicBool::new(false)));
    let (moved, root) = (Arc::clone(&ended), tree.root().clone());
    let count = move |sc: &ShrinkControl<'_>| {
        if *sc.memcg() != root {
            return Some(Count::Unknown);
        }
        let can_go = moved.load(Relaxed);
        if now.load(Relaxed) == ends_in && !can_go {
            end();
            moved.store(true, Relaxed);
        }
        // In the step in which the child ends, the root is still counted without the objects of the
        // child.
        match (can_go, kept) {
            (true, _) => None,
            (false, 0) => Some(Count::Unknown),
            (false, kept) => Some(Count::Objects(kept)),
        }
    };
    shelf.count.set(Box::new(count)).ok().unwrap();
    let (moved, now) = (ended, Arc::clone(&step));
    let scan = move |_: &mut ShrinkControl<'_>| {
        let is_kept = !moved.load(Relaxed) || now.load(Relaxed) == ends_in;
        is_kept.then_some(Scan::Freed(0))
    };
    shelf.scan.set(Box::new(scan)).ok().unwrap();
    let mut job = Job::new(tree.root().clone(), ByteSize::ZERO);
    let mut steps = Vec::new();
    loop {
        step.fetch_add(1, Relaxed);
        steps.push(job.step(&registry, N0, u64::MAX));
        assert!(steps.len() < 1_000);
        if steps.last() != Some(&Step::Again) {
            return (steps, child.usage().get());
        }
    }
}

#[test]
fn a_job_does_not_give_up_in_a_step_in_which_a_group_ends() {
    // With 0, a job gives up when a step scans nothing; with 100, when it has scanned them often
    // enough.
    for kept in [0, 100] {
        let (steps, _) = job(kept, u64::MAX);
        assert_eq!(steps.last(), Some(&Step::Exhausted));
        let last = steps.len() as u64;
        let (steps, _) = job(kept, last);
        assert!(
            steps.len() as u64 > last,
            "{kept} kept: given up in step {last} although a group ended in it: {steps:?}"
        );
        assert_eq!(steps[last as usize - 1], Step::Again);
    }
}
