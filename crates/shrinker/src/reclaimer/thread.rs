//! The reclaimer threads.
//!
//! Each thread takes requests from its `WakeQueue`, turns them into jobs, and runs the jobs' steps
//! in turn; those that follow a limit and are given up are tried again later (`given_up.rs`). All
//! decisions about how much to free are in `step.rs`. A change must ensure that no panic of user
//! code ends a thread, and that the drop of the reclaimer does not wait inside a callback
//! (`CallbackScope`).

use alloc::{format, sync::Arc, vec::Vec};
use core::time::Duration;
use std::time::Instant;

use lowwater_base::fallible::{abort, try_push};
use lowwater_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use lowwater_base::sync::thread;
use lowwater_base::sync::thread::JoinHandle;
use lowwater_base::unwind::caught;
use lowwater_lru_core::topology::Topology;
use lowwater_lru_core::{ByteSize, HookId, Memcg, NodeId, OfflineHook};

use super::given_up::GivenUp;
use super::pace::Pace;
use super::reason::ReclaimReason;
use super::step::{Job, Step};
use super::wake::{WakeQueue, WakeRequest};
use super::watermark::Watermarks;
use crate::budget::Kick;
use crate::callback::CallbackScope;
use crate::error::StartError;
use crate::registry::{DebtListener, Registry};

#[cfg(test)]
mod tests;

/// Objects scanned in one step, so that jobs take turns and a stop is noticed soon.
const SCAN_MAX: u64 = 4096;
/// The rest after a round in which nothing could be freed; doubled each time in a row, up to
/// [`REST_MAX`].
const REST_MIN: Duration = Duration::from_millis(1);
/// The longest rest, and so the longest time for which newly freeable memory goes unnoticed in a
/// group that is charged.
const REST_MAX: Duration = Duration::from_millis(100);

/// The reclaimer threads of a registry, one per node, pinned to the node's processors if possible:
/// to those on which the thread that calls [`start`](Self::start) may run. Dropping this stops and
/// joins the threads, and so waits for running callbacks.
///
/// Inside a callback, of a shrinker of any registry or another
/// [`CallbackScope`](crate::CallbackScope), the drop does not join: a thread of this reclaimer may
/// be waiting for that callback. The threads stop all the same, each when the callback that it runs
/// returns.
///
/// A panic in a callback, or in the registry's policy, clock or topology, does not end a thread.
///
/// If nothing more can be freed while a group is above its `max` or `high`, the threads try again
/// without a further request, after 0.1 s to 5 s, until the group's usage is within that limit.
/// Each try in vain doubles this time, for all groups of a node. A thread does so for at most 1,024
/// limits at a time: the reclaim for a further one begins again when its group is next charged.
///
/// A hook of the registry's tree ([`OfflineHook::limit_lowered`]) wakes the threads when a `max` or
/// a `high` is lowered below its group's usage.
///
/// ```
/// use std::sync::Arc;
/// use lowwater_lru_core::{ByteSize, MemcgTree, topology};
/// use lowwater_shrinker::{Watermarks, Reclaimer, Registry, RegistryConfig};
///
/// let tree = MemcgTree::default();
/// tree.root().set_max(ByteSize::mib(64));
/// let topology = topology::detect();
/// let registry = Registry::with_config(&tree, RegistryConfig::with_topology(Arc::clone(&topology)));
///
/// let reclaimer = Reclaimer::start(&registry, topology, Watermarks::for_budget(ByteSize::mib(64)))?;
/// // After each charge; costs a few loads unless a limit is near.
/// reclaimer.charged(tree.root());
/// # Ok::<(), lowwater_shrinker::StartError>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping this stops the threads"]
#[doc(alias = "kswapd")]
pub struct Reclaimer {
    nodes: Vec<(Arc<NodeThread>, Option<JoinHandle<()>>)>,
    registry: Registry,
    /// The waker, and the id of its hook. None until all threads have started.
    waker: Option<(Arc<ThreadWaker>, HookId)>,
    watermarks: Watermarks,
}

/// One node's thread, as seen by the threads that wake it.
struct NodeThread {
    node: NodeId,
    wake: WakeQueue,
    wakeups: AtomicU64,
    steps: AtomicU64,
    freed: AtomicU64,
    exhausted: AtomicU64,
    pinned: AtomicBool,
}

/// The statistics of one node's thread since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStats {
    /// The node from which the thread reclaims.
    pub node: NodeId,
    /// The number of times that the thread had something to do.
    pub wakeups: u64,
    /// The number of steps: a step is one pass, or pays a part of a debt.
    pub steps: u64,
    /// Objects that these steps freed.
    pub freed: u64,
    /// How often a group was given up for the moment, because nothing more could be freed.
    pub exhausted: u64,
    /// True if the thread is pinned to the node's processors.
    pub pinned: bool,
}

impl Reclaimer {
    /// Starts a thread for each node. The threads also pay the registry's debts: of several
    /// reclaimers of a registry, those of the one that was started last. When that one ends, the
    /// others do not take over: they pay debts only in passes that they make for another reason.
    ///
    /// # Errors
    ///
    /// [`StartError::Thread`] if the system provides no thread; [`StartError::Nodes`] if `topology`
    /// does not match the registry's. If a thread cannot be pinned (the processors may have been
    /// taken away, or be excluded), this is not an error; see [`NodeStats::pinned`]. Aborts the
    /// process if there is no memory.
    ///
    /// # Panics
    ///
    /// If `topology` panics.
    pub fn start(registry: &Registry, topology: Arc<dyn Topology>, watermarks: Watermarks) -> Result<Self, StartError> {
        let nodes = registry.nodes();
        match topology.nodes() {
            theirs if theirs != nodes => return Err(StartError::Nodes { topology: theirs, registry: nodes }),
            _ => {}
        }
        // If a later thread does not start, the drop of this stops those that have started.
        let mut reclaimer = Self { nodes: Vec::new(), registry: registry.clone(), waker: None, watermarks };
        for n in 0..nodes {
            let shared = Arc::new(NodeThread::new(NodeId::new(n as u16)));
            let node = shared.node;
            let (theirs, registry) = (Arc::clone(&shared), registry.clone());
            // Called here, so that a panic of the topology reaches the caller.
            let cpus = Vec::from(topology.cpus_of(node));
            let main = move || {
                // The drop of the reclaimer waits for this thread, so nothing on it may wait for
                // the callbacks of other threads.
                let _scope = CallbackScope::enter();
                let pinned = pin(&cpus);
                // Relaxed: a statistic.
                theirs.pinned.store(pinned, Ordering::Relaxed);
                drop(cpus);
                theirs.run(&registry, &watermarks);
                // The last handle drops the policy, the clock and the topology, which may be user
                // code.
                let _panicked = caught(|| drop(registry));
            };
            let thread = thread::Builder::new()
                .name(format!("lowwater/{n}"))
                .spawn(main)
                .map_err(|error| StartError::Thread { node, error })?;
            reclaimer.nodes.push((shared, Some(thread)));
        }
        let nodes = reclaimer.nodes.iter().map(|(shared, _)| Arc::clone(shared)).collect();
        let waker = Arc::new(ThreadWaker { nodes, watermarks });
        let hook = registry.root().try_add_hook(Arc::clone(&waker) as Arc<dyn OfflineHook>);
        let hook = hook.unwrap_or_else(|_| abort::<ThreadWaker>());
        registry.set_debt_listener(Some(Arc::clone(&waker) as Arc<dyn DebtListener>));
        reclaimer.waker = Some((waker, hook));
        Ok(reclaimer)
    }

    /// Requests that `memcg` use less; the threads do the work. Queues the request for each node,
    /// or costs a fence and a load per node if the same request is queued already. Never blocks on
    /// a callback. Does nothing for a group of another registry's tree. Without memory to queue the
    /// request nothing happens: a group near its limit is requested again at its next charge.
    #[doc(alias = "wakeup_kswapd")]
    pub fn wake(&self, memcg: &Memcg, reason: ReclaimReason) {
        // The ids of two trees are the same, so such a request would hide one of this tree's
        // groups.
        if !memcg.is_in_tree_of(self.registry.root()) {
            return;
        }
        request_of_all(self.nodes.iter().map(|(shared, _)| shared), memcg, reason, &self.watermarks);
    }

    /// Wakes the threads if `memcg` or an ancestor has come near its `max`, or above its `high`. To
    /// be called after a charge. Bytes that are only in this processor's stock do not count.
    /// O(depth), with three loads per level if no limit is near.
    pub fn charged(&self, memcg: &Memcg) {
        let mut at = Some(memcg);
        while let Some(group) = at {
            let (high, low) = (group.high(), self.watermarks.low(group.max()));
            let mut usage = group.usage();
            if usage > high.min(low) {
                usage = usage.saturating_sub(group.in_stock());
            }
            if usage > high {
                self.wake(group, ReclaimReason::High);
            }
            // `max` is read once, unless a limit is near.
            if usage > low && usage > self.watermarks.low(group.reclaim_max()) {
                self.wake(group, ReclaimReason::Watermark);
            }
            at = group.parent();
        }
    }

    /// Returns the watermarks that were given to [`start`](Self::start). They do not change while
    /// the reclaimer runs.
    pub fn watermarks(&self) -> Watermarks {
        self.watermarks
    }

    /// Returns the statistics of each node's thread, in the order of the node numbers. O(nodes).
    pub fn stats(&self) -> Vec<NodeStats> {
        self.nodes.iter().map(|(shared, _)| shared.stats()).collect()
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        // Another reclaimer, or the user, may have set a listener since.
        if let Some((waker, hook)) = self.waker.take() {
            self.registry.root().remove_hook(hook);
            self.registry.remove_debt_listener(&(waker as Arc<dyn DebtListener>));
        }
        for (shared, _) in &self.nodes {
            shared.wake.stop();
        }
        // A thread of this reclaimer may run the callback that drops this, or wait for it in its
        // own callback.
        if CallbackScope::is_inside() {
            return;
        }
        for (_, thread) in &mut self.nodes {
            let Some(thread) = thread.take() else { continue };
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a reclaimer thread panicked outside of any callback: this is a bug in lowwater");
            }
        }
    }
}

// === impl NodeThread ===

impl NodeThread {
    fn new(node: NodeId) -> Self {
        Self {
            node,
            wake: WakeQueue::default(),
            wakeups: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            exhausted: AtomicU64::new(0),
            pinned: AtomicBool::new(false),
        }
    }

    /// Serves requests until the reclaimer stops.
    fn run(&self, registry: &Registry, watermarks: &Watermarks) {
        let mut rest = REST_MIN;
        let mut given_up = GivenUp::default();
        while let Some(requests) = self.take(registry, watermarks, &mut given_up) {
            if self.serve(registry, watermarks, requests, &mut given_up) {
                rest = REST_MIN;
            } else {
                // Groups near a limit keep requesting, and there is nothing to free: rest instead
                // of spinning.
                self.wake.rest(rest);
                rest = (rest * 2).min(REST_MAX);
            }
        }
    }

    /// Waits for requests, and takes them; `None` when the reclaimer stops. While it waits, the
    /// thread tries jobs again that were given up, and that of the first node frees idle lists of
    /// all nodes.
    fn take(&self, registry: &Registry, watermarks: &Watermarks, given_up: &mut GivenUp) -> Option<Vec<WakeRequest>> {
        // A time whose end the clock cannot represent never ends.
        let next_sweep = || Instant::now().checked_add(registry.sweep_every()).filter(|_| self.node == NodeId::ZERO);
        let mut sweep_at = next_sweep();
        loop {
            let until = sweep_at.into_iter().chain(given_up.due_at()).min();
            let time = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            let requests = self.wake.take_within(time)?;
            if !requests.is_empty() {
                return Some(requests);
            }
            self.try_again(registry, watermarks, given_up);
            if sweep_at.is_some_and(|sweep_at| sweep_at <= Instant::now()) {
                // Runs callbacks of shrinkers, whose panics are caught, and the registry's clock,
                // which may be user code.
                let _panicked = caught(|| registry.sweep());
                sweep_at = next_sweep();
            }
        }
    }

    /// Does jobs again that are due, if a group is still above its limit.
    fn try_again(&self, registry: &Registry, watermarks: &Watermarks, given_up: &mut GivenUp) {
        let due = given_up.take_due(Instant::now());
        if due.is_empty() {
            given_up.end_round();
        } else {
            // The pause before the next try takes the place of the rest.
            self.serve(registry, watermarks, due, given_up);
        }
    }

    /// Steps all jobs in turn until none is left, including jobs that are added or due again
    /// meanwhile. Returns false if some were given up and no job freed anything.
    fn serve(
        &self,
        registry: &Registry,
        watermarks: &Watermarks,
        requests: Vec<WakeRequest>,
        given_up: &mut GivenUp,
    ) -> bool {
        // Relaxed, here and below: statistics.
        self.wakeups.fetch_add(1, Ordering::Relaxed);
        let mut jobs = Vec::new();
        let mut newcomers = requests;
        let (mut has_freed, mut has_given_up) = (false, false);
        let mut pace = Pace::new(registry.foreground_calls());
        loop {
            let due = given_up.take_due(Instant::now());
            for request in newcomers.into_iter().chain(due) {
                add(&mut jobs, request, watermarks);
            }
            let only_debts = jobs.iter().all(Job::pays_debts);
            let mut rest = Duration::ZERO;
            let start = Instant::now();
            jobs.retain_mut(|job| {
                let before = job.freed();
                let max = if job.pays_debts() { pace.part() } else { SCAN_MAX };
                // Panics of callbacks are caught inside; a policy and a clock may be user code as
                // well. If they panic, nothing can be freed now.
                let step = caught(|| job.step(registry, self.node, max)).unwrap_or(Step::Exhausted);
                let freed = job.freed().saturating_sub(before);
                has_freed |= freed > 0;
                // Saturating, as a shrinker may report any number.
                let add = |sum: u64| Some(sum.saturating_add(freed));
                let _always = self.freed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
                if step == Step::Exhausted {
                    has_given_up = true;
                    self.exhausted.fetch_add(1, Ordering::Relaxed);
                    given_up.keep(job, Instant::now());
                }
                self.steps.fetch_add(1, Ordering::Relaxed);
                if step == Step::BackOff {
                    rest = REST_MIN;
                }
                matches!(step, Step::Again | Step::BackOff)
            });
            if jobs.is_empty() || self.wake.is_stopping() {
                break;
            }
            // No other job waits: a debt is paid at its pace, a limit is approached at full speed.
            if only_debts {
                let owed = jobs.iter().fold(0, |sum: u64, job| sum.saturating_add(job.owed()));
                rest = rest.max(pace.paid(start.elapsed(), owed, registry.foreground_calls()));
            }
            if !rest.is_zero() {
                self.wake.rest(rest);
            }
            newcomers = self.wake.take_now();
        }
        given_up.end_round();
        has_freed || !has_given_up
    }

    fn stats(&self) -> NodeStats {
        NodeStats {
            node: self.node,
            // Relaxed: statistics.
            wakeups: self.wakeups.load(Ordering::Relaxed),
            steps: self.steps.load(Ordering::Relaxed),
            freed: self.freed.load(Ordering::Relaxed),
            exhausted: self.exhausted.load(Ordering::Relaxed),
            pinned: self.pinned.load(Ordering::Relaxed),
        }
    }
}

/// Requests of the threads of all nodes that `memcg` use less.
fn request_of_all<'a>(
    nodes: impl IntoIterator<Item = &'a Arc<NodeThread>>,
    memcg: &Memcg,
    reason: ReclaimReason,
    watermarks: &Watermarks,
) {
    let target = reason.target(memcg, watermarks);
    nodes.into_iter().for_each(|shared| shared.wake.request(memcg, reason, target));
}

/// The debt listener, which wakes the thread of the debt's node; and the hook that wakes all
/// threads for a lowered limit. The tree's list of hooks keeps it, so it has no handle on the
/// registry.
#[derive(Debug)]
struct ThreadWaker {
    nodes: Vec<Arc<NodeThread>>,
    watermarks: Watermarks,
}

impl OfflineHook for ThreadWaker {
    /// Keeps nothing for a group: its requests are for a group that is online, or are dropped.
    fn offline(&self, _dying: &Memcg, _parent: &Memcg) {}

    fn limit_lowered(&self, memcg: &Memcg) {
        for (reason, limit) in [(ReclaimReason::High, memcg.high()), (ReclaimReason::Limit, memcg.reclaim_max())] {
            if memcg.usage() > limit {
                request_of_all(&self.nodes, memcg, reason, &self.watermarks);
            }
        }
    }
}

impl DebtListener for ThreadWaker {
    fn notify_debt(&self, memcg: &Memcg, node: NodeId, kick: Kick) {
        let Some(shared) = self.nodes.get(node.index()) else { return };
        match kick {
            Kick::Now => shared.wake.request(memcg, ReclaimReason::Debt, ByteSize::MAX),
            Kick::Soon => shared.wake.request_soon(memcg),
            Kick::Never => {}
        }
    }
}

/// Adds a job for a request, unless a job for the group is under way that goes as far. Without
/// memory no job is added, also for a request that was kept: the group's next charge repeats that
/// of a limit.
fn add(jobs: &mut Vec<Job>, request: WakeRequest, watermarks: &Watermarks) {
    if request.reason == ReclaimReason::Debt {
        if !jobs.iter().any(|job| *job.memcg() == request.memcg && job.pays_debts()) {
            let _ = try_push(jobs, Job::debts(request.memcg));
        }
        return;
    }
    let memcg = request.memcg.clone();
    if jobs.iter_mut().any(|job| *job.memcg() == memcg && job.take_over(request.reason, request.target)) {
        return;
    }
    let job = match request.reason {
        reason @ (ReclaimReason::Manual(_) | ReclaimReason::Pressure(_)) => {
            Job::of_request(memcg, reason, request.target)
        }
        // Limits may have changed since the request, and may change again.
        reason => Job::below_limit(memcg, reason, *watermarks),
    };
    // A job that follows a limit ends if the limit is raised, and is done again if it is given up:
    // it covers only requests of the same reason, and they are covered by no other job. One for
    // pressure covers none, as its request may be taken back.
    let goes_as_far = |other: &Job| {
        let is_like = other.limit_reason() == job.limit_reason() && !other.is_for_pressure();
        *other.memcg() == request.memcg && is_like && other.target() <= job.target() && !other.pays_debts()
    };
    if !jobs.iter().any(goes_as_far) {
        let _ = try_push(jobs, job);
    }
}

/// Pins the calling thread to those of these processors on which it may run, or to all of them
/// where the kernel does not tell that. Returns false if that is not possible; then it may run
/// where it could before.
#[cfg(target_os = "linux")]
fn pin(cpus: &[usize]) -> bool {
    use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
    // The kernel checks a new set against the cpuset only, and not against that of `taskset`.
    let allowed = match sched_getaffinity(None) {
        Ok(allowed) => Some(allowed),
        // The kernel supports more processors than a `CpuSet` has.
        Err(rustix::io::Errno::INVAL) => None,
        Err(_) => return false,
    };
    let is_allowed = |cpu: usize| allowed.as_ref().is_none_or(|allowed| allowed.is_set(cpu));
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU && is_allowed(**cpu)) {
        set.set(*cpu);
    }
    set.count() > 0 && sched_setaffinity(None, &set).is_ok()
}

/// Pins the calling thread to these processors: not supported on this platform.
#[cfg(not(target_os = "linux"))]
fn pin(_cpus: &[usize]) -> bool {
    false
}

impl core::fmt::Debug for NodeThread {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.stats().fmt(f)
    }
}
