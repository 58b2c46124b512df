//! Requests and jobs of a reclaimer thread: which requests become a job of their own (`add`), when
//! a job ends (`Job::step`), and when the thread rests (`NodeThread::serve`).
//!
//! A request that gets no job of its own must not have a lower target than the job that covers it.

use super::*;
use crate::control::ShrinkControl;
use crate::shrinker::{Count, Scan, Shrinker};
use lowwater_lru_core::MemcgTree;

const MARKS: Watermarks = Watermarks { low_gap: ByteSize::new(100), high_gap: ByteSize::new(200) };

/// Adds these requests, and returns the targets of the resulting jobs; `None` for a job that pays
/// debts.
fn targets(requests: &[(&Memcg, ReclaimReason, u64)]) -> Vec<Option<u64>> {
    let mut jobs = Vec::new();
    for &(memcg, reason, target) in requests {
        add(&mut jobs, WakeRequest { memcg: memcg.clone(), reason, target: ByteSize::new(target) }, &MARKS);
    }
    jobs.iter().map(|job| job.target().map(ByteSize::get)).collect()
}

#[test]
fn the_last_request_for_pressure_counts() {
    let tree = MemcgTree::new(0);
    let [a, b] = ["a", "b"].map(|name| tree.root().create(name).unwrap());
    // A job for pressure has the target of its request, whatever the limits are.
    let pressure = ReclaimReason::Pressure(ByteSize::ZERO);
    assert_eq!(targets(&[(&a, pressure, 500), (&a, pressure, 500), (&a, pressure, 501)]), [Some(501)]);
    assert_eq!(targets(&[(&a, pressure, 500), (&a, pressure, 499)]), [Some(499)]);
    assert_eq!(targets(&[(&a, pressure, 500), (&b, pressure, 500)]), [Some(500), Some(500)]);
}

#[test]
fn requests_by_hand_add_up_while_one_is_under_way() {
    let tree = MemcgTree::new(0);
    let [a, b] = ["a", "b"].map(|name| tree.root().create(name).unwrap());
    let (manual, pressure) = (ReclaimReason::Manual(ByteSize::new(10)), ReclaimReason::Pressure(ByteSize::ZERO));
    assert_eq!(targets(&[(&a, manual, 90), (&a, manual, 90)]), [Some(80)]);
    assert_eq!(targets(&[(&a, manual, 5), (&a, manual, 0)]), [Some(0)]);
    assert_eq!(targets(&[(&a, manual, 90), (&b, manual, 90)]), [Some(90), Some(90)]);
    assert_eq!(targets(&[(&a, pressure, 50), (&a, manual, 90), (&a, pressure, 500)]), [Some(500), Some(90)]);
}

#[test]
fn pressure_gets_a_job_beside_one_by_hand_only_for_a_lower_target() {
    let tree = MemcgTree::new(0);
    let a = tree.root().create("a").unwrap();
    let (manual, pressure) = (ReclaimReason::Manual(ByteSize::new(10)), ReclaimReason::Pressure(ByteSize::ZERO));
    assert_eq!(targets(&[(&a, manual, 500), (&a, pressure, 500)]), [Some(500)]);
    assert_eq!(targets(&[(&a, manual, 500), (&a, pressure, 499)]), [Some(500), Some(499)]);
}

/// Only the job of a limit is kept when it is given up.
#[test]
fn a_request_for_a_limit_is_covered_by_no_job_of_another_reason() {
    let tree = MemcgTree::new(0);
    let group = tree.root().create("g").unwrap();
    group.set_high(ByteSize::new(700));
    let manual = ReclaimReason::Manual(ByteSize::new(10));
    assert_eq!(targets(&[(&group, manual, 500), (&group, ReclaimReason::High, 0)]), [Some(500), Some(700)]);
    let high = (&group, ReclaimReason::High, 0);
    assert_eq!(targets(&[high, (&group, manual, 500), high]), [Some(700), Some(500)]);
}

#[test]
fn a_group_gets_one_job_for_its_debts_beside_those_with_targets() {
    let tree = MemcgTree::new(0);
    let [a, b] = ["a", "b"].map(|name| tree.root().create(name).unwrap());
    let (pressure, debt) = (ReclaimReason::Pressure(ByteSize::ZERO), ReclaimReason::Debt);
    assert_eq!(targets(&[(&a, debt, 0), (&a, debt, 0)]), [None]);
    assert_eq!(targets(&[(&a, debt, 0), (&b, debt, 0)]), [None, None]);
    assert_eq!(targets(&[(&a, pressure, 0), (&a, debt, 0)]), [Some(0), None]);
    assert_eq!(targets(&[(&a, debt, 0), (&a, pressure, 0)]), [None, Some(0)]);
}

#[test]
fn a_jobs_limit_is_read_again_and_its_amount_is_not() {
    let tree = MemcgTree::new(0);
    let group = tree.root().create("g").unwrap();
    group.set_high(ByteSize::new(700));
    let target_of = |reason| targets(&[(&group, reason, 5)]);
    assert_eq!(target_of(ReclaimReason::High), [Some(700)]);
    assert_eq!(target_of(ReclaimReason::Pressure(ByteSize::new(9))), [Some(5)]);
    assert_eq!(target_of(ReclaimReason::Manual(ByteSize::new(9))), [Some(5)]);
}

/// A tree with a limit of 1,000 bytes, all of which are charged, and its registry.
fn at_the_limit() -> (MemcgTree, Registry) {
    let tree = MemcgTree::new(0);
    tree.root().set_max(ByteSize::new(1_000));
    // The bytes stay charged: `try_charge` returns no guard.
    let _within_max = tree.root().try_charge(ByteSize::new(1_000)).unwrap();
    let registry = Registry::new(&tree, 1);
    (tree, registry)
}

#[test]
fn a_limit_that_is_raised_ends_the_job() {
    let (tree, registry) = at_the_limit();
    let root = tree.root();
    let mut job = Job::below_limit(root.clone(), ReclaimReason::Watermark, Watermarks::RELATIVE);
    assert_ne!(job.step(&registry, NodeId::ZERO, 10), Step::Done);
    root.set_max(ByteSize::new(2_000));
    assert_eq!(job.step(&registry, NodeId::ZERO, 10), Step::Done);
    assert_eq!(job.target(), Some(Watermarks::RELATIVE.target(ByteSize::new(2_000))));
}

/// The owner of the tree removes the objects.
#[test]
fn the_max_of_a_dropped_group_requests_no_reclaim() {
    let (tree, registry) = at_the_limit();
    let group = tree.root().create("g").unwrap();
    tree.root().set_max(ByteSize::MAX);
    let _within_max = group.try_charge(ByteSize::new(1_000)).unwrap();
    let thread = Arc::new(NodeThread::new(NodeId::ZERO));
    let nodes = alloc::vec![(Arc::clone(&thread), None)];
    let reclaimer = Reclaimer { nodes, registry: registry.clone(), waker: None, watermarks: MARKS };
    let waker = ThreadWaker { nodes: alloc::vec![Arc::clone(&thread)], watermarks: MARKS };
    let requests = || {
        waker.limit_lowered(&group);
        reclaimer.charged(&group);
        thread.wake.take_now().iter().map(|request| request.reason).collect::<Vec<_>>()
    };
    let limits = [ReclaimReason::Watermark, ReclaimReason::Limit];
    let mut jobs = limits.map(|reason| Job::below_limit(group.clone(), reason, MARKS));
    group.set_max(ByteSize::ZERO);
    assert_eq!(requests().len(), limits.len());
    assert!(jobs.iter_mut().all(|job| job.step(&registry, NodeId::ZERO, 10) != Step::Done));
    let mut given_up = GivenUp::default();
    given_up.keep(&jobs[0], Instant::now().checked_sub(Duration::from_secs(1)).unwrap());
    assert!(given_up.due_at().is_some());

    group.begin_drop();
    assert_eq!((group.max(), requests()), (ByteSize::ZERO, Vec::new()));
    assert!(jobs.iter_mut().all(|job| job.step(&registry, NodeId::ZERO, 10) == Step::Done));
    assert!(given_up.take_due(Instant::now()).is_empty());
    given_up.keep(&jobs[1], Instant::now());
    assert_eq!(given_up.due_at(), None);
    // The program's own limit stays one.
    group.set_high(ByteSize::new(500));
    assert_eq!(requests().first(), Some(&ReclaimReason::High));
}

/// Holds 1,000 objects, and raises the limit when it is scanned.
struct Raises(Memcg);

impl Shrinker for Raises {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        Count::Objects(1_000)
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        self.0.set_max(ByteSize::new(4_000));
        self.0.uncharge(ByteSize::new(1));
        sc.set_nr_scanned(1);
        Scan::Freed(1)
    }
}

#[test]
fn a_limit_that_is_raised_in_a_step_ends_the_step() {
    let (tree, registry) = at_the_limit();
    let root = tree.root();
    let prepared = registry.builder("raises").batch(1).alloc().unwrap();
    prepared.occupancy().occupied(root, NodeId::ZERO);
    let _registration = prepared.register(Arc::new(Raises(root.clone())));
    let mut job = Job::below_limit(root.clone(), ReclaimReason::Watermark, Watermarks::RELATIVE);
    let steps = (0..20).take_while(|_| job.step(&registry, NodeId::ZERO, 100) != Step::Done).count();
    assert!(steps < 20 && job.freed() == 1, "{} were freed in {steps} steps", job.freed());
}

#[test]
fn a_covered_request_is_served_after_a_limit_was_raised() {
    let (tree, registry) = at_the_limit();
    let root = tree.root();
    let mut jobs = Vec::new();
    let mut jobs_with = |reason| {
        add(&mut jobs, WakeRequest { memcg: root.clone(), reason, target: ByteSize::new(900) }, &MARKS);
        jobs.len()
    };
    // The first job ends if the limit is raised, so it covers only requests of its own reason,
    // though its target is below 900.
    assert_eq!(jobs_with(ReclaimReason::Watermark), 1);
    assert_eq!(jobs_with(ReclaimReason::Watermark), 1);
    assert_eq!(jobs_with(ReclaimReason::Manual(ByteSize::new(100))), 2);
    assert_eq!(jobs_with(ReclaimReason::Pressure(ByteSize::new(900))), 2, "the second job goes as far");
    root.set_max(ByteSize::new(4_000));
    jobs.retain_mut(|job| job.step(&registry, NodeId::ZERO, 10) != Step::Done);
    assert_eq!(jobs.iter().map(Job::target).collect::<Vec<_>>(), [Some(ByteSize::new(900))]);
}

#[test]
fn a_thread_rests_only_if_it_gave_up_and_freed_nothing() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    let thread = NodeThread::new(NodeId::ZERO);
    let serve = |target| {
        let reason = ReclaimReason::Pressure(ByteSize::new(target));
        let request = WakeRequest { memcg: tree.root().clone(), reason, target: ByteSize::new(target) };
        let goes_on = thread.serve(&registry, &MARKS, alloc::vec![request], &mut GivenUp::default());
        (goes_on, thread.stats().exhausted)
    };
    let _below_high = tree.root().try_charge(ByteSize::new(10)).unwrap();
    assert_eq!(serve(10), (true, 0), "nothing was to be done");
    assert_eq!(serve(9), (false, 1), "nothing can be freed");
}

#[test]
fn a_thread_that_finds_nothing_to_do_again_has_not_woken() {
    let (tree, registry) = at_the_limit();
    let (thread, root) = (NodeThread::new(NodeId::ZERO), tree.root());
    let seen = [false, true].map(|is_above| {
        let mut given_up = GivenUp::default();
        root.set_max(ByteSize::new(900));
        let job = Job::below_limit(root.clone(), ReclaimReason::Limit, MARKS);
        // Due since long ago.
        given_up.keep(&job, Instant::now().checked_sub(Duration::from_secs(1)).unwrap());
        root.set_max(ByteSize::new(if is_above { 900 } else { 1_000 }));
        thread.try_again(&registry, &MARKS, &mut given_up);
        (thread.stats().wakeups, given_up.due_at().is_some())
    });
    assert_eq!(seen, [(0, false), (1, true)], "wake-ups, and whether the job is kept");
}

/// As `taskset` and a container's `cpuset` restrict a process.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn a_thread_is_pinned_to_allowed_processors_alone() {
    use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
    let allowed = |set: CpuSet| (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect::<Vec<_>>();
    let own = allowed(sched_getaffinity(None).unwrap());
    let &[first, second, ..] = &own[..] else { return };
    let one = |cpu| {
        let mut set = CpuSet::new();
        set.set(cpu);
        set
    };
    for (cpus, is_pinned) in [(&own[..], true), (&[second], false), (&[], false)] {
        // Binding ends with the thread.
        let seen = std::thread::scope(|scope| {
            let bound = scope.spawn(|| {
                sched_setaffinity(None, &one(first)).unwrap();
                (pin(cpus), allowed(sched_getaffinity(None).unwrap()))
            });
            bound.join().unwrap()
        });
        assert_eq!(seen, (is_pinned, alloc::vec![first]), "pinned to {cpus:?}");
    }
}
