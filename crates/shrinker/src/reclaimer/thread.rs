//! The threads themselves.

use alloc::{format, sync::Arc, vec::Vec};
use core::time::Duration;
use std::time::Instant;

use lowwater_base::fallible::try_push;
use lowwater_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use lowwater_base::sync::thread;
use lowwater_base::sync::thread::JoinHandle;
use lowwater_base::unwind::caught;
use lowwater_lru_core::topology::Topology;
use lowwater_lru_core::{ByteSize, Memcg, NodeId};

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
/// The rest after nothing could be freed; doubled each time in a row, up to [`REST_MAX`].
const REST_MIN: Duration = Duration::from_millis(1);
/// The longest rest, and so the longest that memory which can be freed again goes unnoticed.
const REST_MAX: Duration = Duration::from_millis(100);

/// The reclaimer threads of a registry, one a node, pinned to the node's processors where that is possible. Dropping this
/// stops and joins them; a callback that is running is waited for.
///
/// Inside a callback, of a shrinker of any registry or another [`CallbackScope`](crate::CallbackScope), the drop does not join:
/// the callback may be one that a thread of these waits for. The threads stop all the same, each when the callback it runs
/// returns.
///
/// A panic in a callback, or in the registry's policy, clock or topology, does not end a thread.
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
    watermarks: Watermarks,
}

/// One node's thread, as the threads that wake it see it.
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
    /// The node.
    pub node: NodeId,
    /// Times the thread had something to do.
    pub wakeups: u64,
    /// Passes.
    pub steps: u64,
    /// Objects freed.
    pub freed: u64,
    /// Groups given up for the moment, because nothing more could be freed.
    pub exhausted: u64,
    /// Is the thread bound to the node's processors?
    pub pinned: bool,
}

impl Reclaimer {
    /// Starts a thread for each node.
    ///
    /// # Errors
    ///
    /// [`StartError::Thread`] if the system gives no thread; [`StartError::Nodes`] if `topology` is not the registry's. That a
    /// thread cannot be pinned (the processors may be taken from us) is no error; [`NodeStats::pinned`] tells.
    ///
    /// # Panics
    ///
    /// If `topology` does.
    pub fn start(registry: &Registry, topology: Arc<dyn Topology>, watermarks: Watermarks) -> Result<Self, StartError> {
        let nodes = registry.nodes();
        match topology.nodes() {
            theirs if theirs != nodes => return Err(StartError::Nodes { topology: theirs, registry: nodes }),
            _ => {}
        }
        // Threads that have started are stopped by the drop of this if a later one does not.
        let mut reclaimer = Self { nodes: Vec::new(), registry: registry.clone(), watermarks };
        for n in 0..nodes {
            let shared = Arc::new(NodeThread::new(NodeId::new(n as u16)));
            let node = shared.node;
            let (theirs, registry) = (Arc::clone(&shared), registry.clone());
            // Asked here, so that a topology that panics meets its caller.
            let cpus = Vec::from(topology.cpus_of(node));
            let main = move || {
                // What runs here is waited for by the drop of the reclaimer, so nothing here waits for others' callbacks.
                let _scope = CallbackScope::enter();
                let pinned = pin(&cpus);
                // Relaxed: a number to look at.
                theirs.pinned.store(pinned, Ordering::Relaxed);
                drop(cpus);
                theirs.run(&registry, &watermarks);
                // The last handle drops the policy, the clock and the topology, which may be user code.
                let _panicked = caught(|| drop(registry));
            };
            let thread = thread::Builder::new()
                .name(format!("lowwater/{n}"))
                .spawn(main)
                .map_err(|source| StartError::Thread { node, source })?;
            reclaimer.nodes.push((shared, Some(thread)));
        }
        let wakes = reclaimer.nodes.iter().map(|(shared, _)| Arc::clone(shared)).collect();
        registry.set_debt_listener(Some(Arc::new(DebtWaker(wakes))));
        Ok(reclaimer)
    }

    /// Says that `memcg` should use less; the threads do the rest. Queues it for each node, or costs a fence and a load a node
    /// when the same is queued already. Waits for nothing that waits. Without memory to queue it nothing happens: a group that is
    /// near its limit is asked for again at its next charge.
    #[doc(alias = "wakeup_kswapd")]
    pub fn wake(&self, memcg: &Memcg, reason: ReclaimReason) {
        let target = reason.target(memcg, &self.watermarks);
        for (shared, _) in &self.nodes {
            shared.wake.request(memcg, reason, target);
        }
    }

    /// To be called after a charge: wakes the threads if `memcg` or a group above it has come near its `max`, or above its
    /// `high`. What is only in stock on this processor does not count. O(depth), and three loads a level where it has not.
    pub fn charged(&self, memcg: &Memcg) {
        let mut at = Some(memcg);
        while let Some(group) = at {
            let mut usage = group.usage();
            if usage > group.high() || self.watermarks.is_low(usage, group.max()) {
                usage = usage.saturating_sub(group.in_stock());
            }
            if usage > group.high() {
                self.wake(group, ReclaimReason::High);
            }
            if self.watermarks.is_low(usage, group.max()) {
                self.wake(group, ReclaimReason::Watermark);
            }
            at = group.parent();
        }
    }

    /// The watermarks.
    pub fn watermarks(&self) -> Watermarks {
        self.watermarks
    }

    /// The statistics of each node's thread.
    pub fn stats(&self) -> Vec<NodeStats> {
        self.nodes.iter().map(|(shared, _)| shared.stats()).collect()
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        self.registry.set_debt_listener(None);
        for (shared, _) in &self.nodes {
            shared.wake.stop();
        }
        // A thread of these may run the callback that drops this, or wait for it in its own.
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

    fn run(&self, registry: &Registry, watermarks: &Watermarks) {
        let mut rest = REST_MIN;
        while let Some(requests) = self.take(registry) {
            // Relaxed, here and below: numbers to look at.
            self.wakeups.fetch_add(1, Ordering::Relaxed);
            if self.serve(registry, watermarks, requests) {
                rest = REST_MIN;
            } else {
                // Whoever is near a limit keeps asking, and there is nothing to free: do not run in circles.
                self.wake.rest(rest);
                rest = (rest * 2).min(REST_MAX);
            }
        }
    }

    /// Takes the next requests. The first node's thread spends the time until then with giving idle lists back, for all nodes.
    fn take(&self, registry: &Registry) -> Option<Vec<WakeRequest>> {
        if self.node != NodeId::ZERO {
            return self.wake.take();
        }
        loop {
            let requests = self.wake.take_within(registry.sweep_every())?;
            if !requests.is_empty() {
                return Some(requests);
            }
            // Runs callbacks of shrinkers, which are caught, and the registry's clock, which may be user code.
            let _panicked = caught(|| registry.sweep());
        }
    }

    /// Steps all jobs in turn until none is left, those included that come meanwhile. False if some were given up and nothing
    /// was freed for anybody.
    fn serve(&self, registry: &Registry, watermarks: &Watermarks, requests: Vec<WakeRequest>) -> bool {
        let mut jobs = Vec::new();
        let mut newcomers = requests;
        let (mut freed, mut given_up) = (0, 0);
        let mut pace = Pace::new(registry.foreground_calls());
        loop {
            for request in newcomers {
                add(&mut jobs, request, watermarks);
            }
            let only_debts = jobs.iter().all(Job::pays_debts);
            let mut rest = Duration::ZERO;
            let start = Instant::now();
            jobs.retain_mut(|job| {
                let before = job.freed();
                let max = if job.pays_debts() { pace.part() } else { SCAN_MAX };
                // Callbacks of shrinkers are caught; a policy and a clock may be user code as well. Where they panic nothing
                // can be freed now.
                let step = caught(|| job.step(registry, self.node, max)).unwrap_or(Step::Exhausted);
                freed += job.freed() - before;
                given_up += u64::from(step == Step::Exhausted);
                self.steps.fetch_add(1, Ordering::Relaxed);
                if step == Step::BackOff {
                    rest = REST_MIN;
                }
                matches!(step, Step::Again | Step::BackOff)
            });
            if jobs.is_empty() || self.wake.is_stopping() {
                break;
            }
            if only_debts {
                let owed = jobs.iter().fold(0, |sum: u64, job| sum.saturating_add(job.owed()));
                rest = rest.max(pace.paid(start.elapsed(), owed, registry.foreground_calls()));
            }
            if !rest.is_zero() {
                self.wake.rest(rest);
            }
            newcomers = self.wake.take_now();
        }
        self.freed.fetch_add(freed, Ordering::Relaxed);
        self.exhausted.fetch_add(given_up, Ordering::Relaxed);
        freed > 0 || given_up == 0
    }

    fn stats(&self) -> NodeStats {
        NodeStats {
            node: self.node,
            // Relaxed: numbers to look at.
            wakeups: self.wakeups.load(Ordering::Relaxed),
            steps: self.steps.load(Ordering::Relaxed),
            freed: self.freed.load(Ordering::Relaxed),
            exhausted: self.exhausted.load(Ordering::Relaxed),
            pinned: self.pinned.load(Ordering::Relaxed),
        }
    }
}

/// The debt listener that wakes a node's thread.
struct DebtWaker(Vec<Arc<NodeThread>>);

impl DebtListener for DebtWaker {
    fn notify_debt(&self, memcg: &Memcg, node: NodeId, kick: Kick) {
        let Some(shared) = self.0.get(node.index()) else { return };
        match kick {
            Kick::Now => shared.wake.request(memcg, ReclaimReason::Debt, ByteSize::MAX),
            Kick::Soon => shared.wake.request_soon(memcg),
            Kick::Never => {}
        }
    }
}

/// A new job, unless one for the group is under way that goes as far. Without memory for it there is none: while its reason lasts,
/// it is asked for again.
fn add(jobs: &mut Vec<Job>, request: WakeRequest, watermarks: &Watermarks) {
    if request.reason == ReclaimReason::Debt {
        if !jobs.iter().any(|job| *job.memcg() == request.memcg && job.pays_debts()) {
            let _ = try_push(jobs, Job::debts(request.memcg));
        }
        return;
    }
    let memcg = request.memcg.clone();
    let job = match request.reason {
        ReclaimReason::Manual(_) | ReclaimReason::Pressure(_) => Job::new(memcg, request.target),
        // Limits may have changed since it was asked for, and may change again.
        reason => Job::below_limit(memcg, reason, *watermarks),
    };
    // One that follows a limit ends where that is raised, and goes as far only for others of the same reason.
    let goes_as_far = |other: &Job| {
        let is_like = other.limit_reason().is_none() || other.limit_reason() == job.limit_reason();
        *other.memcg() == request.memcg && is_like && other.target() <= job.target() && !other.pays_debts()
    };
    if !jobs.iter().any(goes_as_far) {
        let _ = try_push(jobs, job);
    }
}

/// Binds the calling thread to these processors. False where that is not possible.
#[cfg(target_os = "linux")]
fn pin(cpus: &[usize]) -> bool {
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < rustix::thread::CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    set.count() > 0 && rustix::thread::sched_setaffinity(None, &set).is_ok()
}

/// Binds the calling thread to these processors: not here.
#[cfg(not(target_os = "linux"))]
fn pin(_cpus: &[usize]) -> bool {
    false
}

impl core::fmt::Debug for NodeThread {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.stats().fmt(f)
    }
}
