//! Jobs: one group's usage is brought down to a target, or its debts are paid, a step at a time;
//! without thread or clock.
//!
//! A job with a target makes one pass after the other, each under more pressure if the last was too
//! slow, and ends when the target is reached or when nothing more can be freed. The difficulty is
//! to tell the second case from a slow start: the constants below bound the steps that lower usage
//! by nothing. A change must keep them bounded, also if objects are charged as fast as they are
//! freed.

use lowwater_lru_core::{ByteSize, Memcg, NodeId};

use super::reason::ReclaimReason;
use super::watermark::Watermarks;
use crate::budget::PRIORITY_DEFAULT;
use crate::control::Reclaim;
use crate::map::Recheck;
use crate::registry::{Registry, Select, ShrinkerFilter};
use crate::work::{Progress, Work};

/// A step that brings usage this part of the way to the target is fast enough: the pressure stays
/// the same.
const QUICK_PARTS: u64 = 8;

/// Steps in a row at the highest pressure that scan something without a fall in usage, before the
/// job may be given up: one step clears the second chances, one frees, the third is proof. Charges
/// may also come as fast as objects are freed; then the charging threads will request reclaim
/// again.
const IDLE_STEPS_MAX: u8 = 3;
/// In addition, these steps must have scanned this many times the number of objects of the group's
/// subtree on the step's node, as of the last visits: if objects have several chances, the bounded
/// steps may meet a hundred thousand objects in a row that each lose one chance and are not freed.
const IDLE_ROUNDS_MAX: u64 = 4;
/// The most objects that these steps must have scanned, whatever the shrinkers count.
const IDLE_SCANS_MAX: u64 = 1 << 30;

/// Steps in a row that grant a shrinker's request to back off; in further ones it is ignored.
const BACK_OFFS_MAX: u8 = 8;
/// Steps in a row that scan nothing and wait for a thread that frees objects of a busy shrinker.
/// The reclaimer rests for a millisecond after each, so it waits for a second in all, longer than
/// an eviction should take; then it gives up (`given_up.rs`).
const BUSY_MAX: u16 = 1_000;

/// The state of a [`Job`] after a step, which tells its thread to go on, to rest first, or to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The group uses no more than its target, or has gone offline; or nothing is owed.
    Done,
    /// There is more to do.
    Again,
    /// There is more to do, but a shrinker requested a back-off, or was busy: rest a little first.
    BackOff,
    /// Nothing can be freed now, at the highest pressure; or no debt can be paid. Rest before
    /// trying again.
    Exhausted,
}

/// Brings one group's usage down to a target, or pays its debts, on the node that is passed to each
/// step. For an embedder's own reclaimer thread:
///
/// ```
/// use lowwater_lru_core::{ByteSize, MemcgTree, NodeId};
/// use lowwater_shrinker::{Job, Registry, Step};
///
/// let tree = MemcgTree::default();
/// let registry = Registry::new(&tree, 1);
///
/// let mut job = Job::new(tree.root().clone(), ByteSize::mib(60));
/// // At most 1,024 objects in a step; a thread would check between steps whether to stop.
/// loop {
///     match job.step(&registry, NodeId::ZERO, 1024) {
///         Step::Again => {}
///         Step::BackOff => std::thread::sleep(std::time::Duration::from_millis(1)),
///         Step::Done | Step::Exhausted => break,
///     }
/// }
/// assert!(tree.root().usage() <= ByteSize::mib(60));
/// ```
#[derive(Debug)]
pub struct Job {
    memcg: Memcg,
    /// `None` for a job that pays debts.
    target: Option<ByteSize>,
    /// The reason and the gap below a limit, if the target follows from a limit.
    limit: Option<(ReclaimReason, Watermarks)>,
    /// The reason, if the target is that of a request.
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    request: Option<ReclaimReason>,
    /// The pressure: 12 (light) to 0.
    priority: u8,
    /// Steps in a row at priority 0 without a fall in usage.
    idle: u8,
    /// Objects scanned in idle steps, and the number to scan before the job may be given up.
    idle_scanned: u64,
    idle_scans_max: u64,
    /// Counts the repeated steps that proved nothing because a group ended during them.
    recheck: Recheck,
    /// Steps in a row in which a shrinker requested a back-off.
    back_offs: u8,
    /// Steps in a row that scanned nothing because a shrinker was busy.
    busy_steps: u16,
    /// Another thread's eviction is waited for.
    waits_for_busy: bool,
    freed: u64,
    owed: u64,
    filter: ShrinkerFilter,
    /// Only the node that is passed to a step is asked.
    is_for_one_node: bool,
}

impl Job {
    /// Creates a job that is done when `memcg` uses at most `target`.
    pub fn new(memcg: Memcg, target: ByteSize) -> Self {
        Self {
            memcg,
            target: Some(target),
            limit: None,
            #[cfg(all(feature = "std", not(lowwater_loom)))]
            request: None,
            priority: PRIORITY_DEFAULT,
            idle: 0,
            idle_scanned: 0,
            idle_scans_max: 0,
            recheck: Recheck::default(),
            back_offs: 0,
            busy_steps: 0,
            waits_for_busy: true,
            freed: 0,
            owed: 0,
            filter: ShrinkerFilter::ALL,
            is_for_one_node: false,
        }
    }

    /// Does not wait for another thread that frees objects of a busy shrinker: for a caller that
    /// does not rest after [`Step::BackOff`].
    pub(crate) fn without_wait(self) -> Self {
        Self { waits_for_busy: false, ..self }
    }

    /// Restricts the job to some shrinkers.
    pub(crate) fn filter(self, filter: ShrinkerFilter) -> Self {
        Self { filter, ..self }
    }

    /// Restricts each step to the node that is passed to it, also if victims are selected by
    /// utility.
    pub(crate) fn for_one_node(self) -> Self {
        Self { is_for_one_node: true, ..self }
    }

    /// Creates a job with a target at a gap below a limit of `memcg`. The limit is read again at
    /// each step: a limit that is raised meanwhile ends the job.
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    pub(super) fn below_limit(memcg: Memcg, reason: ReclaimReason, watermarks: Watermarks) -> Self {
        let target = reason.target(&memcg, &watermarks);
        Self { limit: Some((reason, watermarks)), ..Self::new(memcg, target) }
    }

    /// Creates a job for a request by hand or for pressure, which has its own target.
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    pub(super) fn of_request(memcg: Memcg, reason: ReclaimReason, target: ByteSize) -> Self {
        Self { request: Some(reason), ..Self::new(memcg, target) }
    }

    /// Lets the job do a later request of the same reason as well: requests by hand add up, and of
    /// those for pressure the last one counts, also if its target is higher. Returns false for
    /// other jobs.
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    pub(super) fn take_over(&mut self, reason: ReclaimReason, target: ByteSize) -> bool {
        let before = self.target.unwrap_or(ByteSize::MAX);
        self.target = match (self.request, reason) {
            (Some(ReclaimReason::Manual(_)), ReclaimReason::Manual(bytes)) => Some(before.saturating_sub(bytes)),
            (Some(ReclaimReason::Pressure(_)), ReclaimReason::Pressure(_)) => Some(target),
            _ => return false,
        };
        true
    }

    /// Returns whether the target is that of a request for pressure, which may be taken back.
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    pub(super) fn is_for_pressure(&self) -> bool {
        matches!(self.request, Some(ReclaimReason::Pressure(_)))
    }

    /// Returns the limit from which the target follows, if any.
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    pub(super) fn limit_reason(&self) -> Option<ReclaimReason> {
        self.limit.map(|(reason, _)| reason)
    }

    /// Creates a job that is done when nothing is owed for `memcg`.
    pub fn debts(memcg: Memcg) -> Self {
        Self { target: None, ..Self::new(memcg, ByteSize::ZERO) }
    }

    /// Returns the group that was given to [`new`](Self::new) or [`debts`](Self::debts).
    pub fn memcg(&self) -> &Memcg {
        &self.memcg
    }

    /// Returns the usage to come down to; `None` if the job pays debts.
    pub fn target(&self) -> Option<ByteSize> {
        self.target
    }

    /// Returns true if the job pays debts.
    pub fn pays_debts(&self) -> bool {
        self.target.is_none()
    }

    /// Objects still owed after the last step, if the job pays debts; 0 before the first step.
    pub fn owed(&self) -> u64 {
        self.owed
    }

    /// Objects freed so far.
    pub fn freed(&self) -> u64 {
        self.freed
    }

    /// Returns the priority of the next step, 12 (light) to 0.
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// Runs one pass over the group's subtree, of at most `scan_max` objects, that stops as soon as
    /// the target is reached. If the registry selects victims by utility and the job has no filter,
    /// objects are freed from all nodes first; otherwise, or if that frees nothing, from `node`.
    /// Pressure rises if progress was too slow, so a job ends after a bounded number of steps
    /// without progress. Up to 1,000 steps in a row are [`Step::BackOff`] while another thread
    /// frees the objects of a shrinker ([`Scan::Busy`](crate::Scan::Busy)) and there are no others.
    #[doc(alias = "balance_pgdat")]
    pub fn step(&mut self, registry: &Registry, node: NodeId, scan_max: u64) -> Step {
        if self.pays_debts() {
            return self.pay(registry, node, scan_max);
        }
        let target = self.follow_limit();
        let before = self.memcg.usage();
        if before <= target || !self.memcg.is_online() {
            return Step::Done;
        }
        let (memcg, limit) = (&self.memcg, self.limit);
        // If the limit is raised during the step, the step ends early.
        let enough = || memcg.usage() <= target_now(memcg, limit, target);
        let mut work = Work::objects(scan_max).while_not(&enough);
        let mark = registry.mark_ends();
        let mut progress = Progress::default();
        if self.filter.is_all() && registry.is_by_utility() && !self.is_for_one_node {
            // A limit applies to all nodes together, and so does a pair's size: objects are freed
            // from each node in proportion.
            progress = registry.shrink_least_useful(memcg, None, Reclaim::KSWAPD, &mut work);
        }
        // The fallback if every pair is protected, or no candidate is known.
        if progress.freed == 0 {
            let select = Select { filter: self.filter, ..Select::all().memcg(memcg).node(node) };
            progress += registry.shrink_selected(&select, self.priority, Reclaim::KSWAPD, &mut work);
        }
        self.freed = self.freed.saturating_add(progress.freed);
        let (after, cut) = (self.memcg.usage(), work.bound().is_some());
        let target = self.follow_limit();
        if after <= target {
            return Step::Done;
        }
        if self.must_rest(progress) {
            return Step::BackOff;
        }
        // A fall without freed objects is that of other threads' uncharges.
        let fell = if progress.freed > 0 { before.saturating_sub(after).get() } else { 0 };
        let want = before.saturating_sub(target).get();
        if fell > 0 {
            (self.idle, self.idle_scanned, self.recheck) = (0, 0, Recheck::default());
        } else if self.priority == 0 && !registry.accepts(&mut self.recheck, mark) {
            // A group ended: its objects may have moved to a group that the steps had already
            // visited.
            (self.idle, self.idle_scanned) = (0, 0);
        } else if self.priority == 0 {
            self.idle = self.idle.saturating_add(1);
            self.idle_scanned = self.idle_scanned.saturating_add(progress.scanned);
            // Counted again from time to time: a single false count must not keep the job running.
            if self.idle == IDLE_STEPS_MAX || self.idle > IDLE_STEPS_MAX && self.idle.is_power_of_two() {
                let scans = registry.held(&self.memcg, node).saturating_mul(IDLE_ROUNDS_MAX).min(IDLE_SCANS_MAX);
                self.idle_scans_max = if self.idle == IDLE_STEPS_MAX { scans } else { scans.min(self.idle_scans_max) };
            }
            // A step that may scan nothing is cut short whatever the shrinkers hold.
            let nothing = progress.scanned == 0 && (!cut || scan_max == 0);
            if nothing || (self.idle >= IDLE_STEPS_MAX && self.idle_scanned >= self.idle_scans_max) {
                return Step::Exhausted;
            }
        }
        // A step that was cut short by the bound on objects was not slow because of too light a
        // pressure.
        if fell.saturating_mul(QUICK_PARTS) < want && !(cut && fell > 0) {
            self.priority = self.priority.saturating_sub(1);
        }
        Step::Again
    }

    /// Updates the target from the limit that it follows. Returns it.
    fn follow_limit(&mut self) -> ByteSize {
        let before = self.target.unwrap_or(ByteSize::MAX);
        let target = target_now(&self.memcg, self.limit, before);
        self.target = Some(target);
        target
    }

    /// Scans owed objects at any pressure: they are the rest of earlier requests.
    fn pay(&mut self, registry: &Registry, node: NodeId, scan_max: u64) -> Step {
        let (progress, owed) = registry.pay_debts(&self.memcg, node, &mut Work::objects(scan_max));
        self.freed = self.freed.saturating_add(progress.freed);
        self.owed = owed;
        match (owed, progress.scanned) {
            (0, _) => Step::Done,
            (_, 0) if !self.must_rest(progress) => Step::Exhausted,
            (_, 0) => Step::BackOff,
            _ => Step::Again,
        }
    }

    /// Returns true if a shrinker requested a back-off, and it is granted; or if nothing was
    /// scanned because a shrinker was busy.
    fn must_rest(&mut self, progress: Progress) -> bool {
        let asked = progress.back_offs > 0;
        self.back_offs = if asked { self.back_offs.saturating_add(1) } else { 0 };
        let is_busy = progress.busy > 0 && progress.scanned == 0 && self.waits_for_busy;
        self.busy_steps = if is_busy { self.busy_steps.saturating_add(1) } else { 0 };
        asked && self.back_offs <= BACK_OFFS_MAX || is_busy && self.busy_steps <= BUSY_MAX
    }
}

/// Returns the usage to come down to: at the gap below a limit, or else the fixed target.
fn target_now(memcg: &Memcg, limit: Option<(ReclaimReason, Watermarks)>, target: ByteSize) -> ByteSize {
    limit.map_or(target, |(reason, watermarks)| reason.target(memcg, &watermarks))
}
