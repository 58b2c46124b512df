//! One group's way back below its target, a step at a time; no thread, no clock.

use lowwater_lru_core::{ByteSize, Memcg, NodeId};

use super::reason::ReclaimReason;
use super::watermark::Watermarks;
use crate::budget::PRIORITY_DEFAULT;
use crate::control::Reclaim;
use crate::map::Recheck;
use crate::registry::{Registry, Select, ShrinkerFilter};
use crate::work::{Progress, Work};

/// A step that brings usage this part of the way to the target is quick enough: pressure stays as it is.
const QUICK_PARTS: u64 = 8;

/// Steps in a row at the highest pressure after which usage has not fallen although something was scanned, before the job may be
/// given up: one takes the second chances away, one frees; the third is proof. It may also be that charges come as fast as
/// objects go; then they will ask again.
const IDLE_STEPS_MAX: u8 = 3;
/// And as many times as this all that is held must have been looked at in them: where objects have more than one chance, the steps, which
/// are cut short, may meet a hundred thousand in a row of which each has lost one, and none has gone.
const IDLE_ROUNDS_MAX: u64 = 4;

/// Steps in a row after which a shrinker's wish to be left alone does not count any more.
const BACK_OFFS_MAX: u8 = 8;

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The group uses no more than its target, or has gone offline.
    Done,
    /// There is more to do.
    Again,
    /// There is more to do, but a shrinker asked to be left alone for a moment: rest a little first.
    BackOff,
    /// Nothing can be freed now, at the highest pressure. Rest before trying again.
    Exhausted,
}

/// Brings one group's usage down to a target, or pays its debts, on one node. A reclaimer thread of one's own, without ours:
///
/// ```
/// use lowwater_lru_core::{ByteSize, MemcgTree, NodeId};
/// use lowwater_shrinker::{Job, Registry, Step};
///
/// let tree = MemcgTree::default();
/// let registry = Registry::new(&tree, 1);
///
/// let mut job = Job::new(tree.root().clone(), ByteSize::mib(60));
/// // 1,024 objects at most in a step, then look whether it is time to stop.
/// while job.step(&registry, NodeId::ZERO, 1024) == Step::Again {}
/// assert!(tree.root().usage() <= ByteSize::mib(60));
/// ```
#[derive(Debug)]
pub struct Job {
    memcg: Memcg,
    /// None: it is there for the debts.
    target: Option<ByteSize>,
    /// Why, and how far below a limit, if the target follows from one.
    limit: Option<(ReclaimReason, Watermarks)>,
    priority: u8,
    idle: u8,
    /// Objects scanned in idle steps, and how many are to be.
    idle_scanned: u64,
    idle_scans_max: u64,
    /// Steps that proved nothing because a group ended in them.
    recheck: Recheck,
    back_offs: u8,
    freed: u64,
    owed: u64,
    filter: ShrinkerFilter,
}

impl Job {
    /// A job that is done when `memcg` uses at most `target`.
    pub fn new(memcg: Memcg, target: ByteSize) -> Self {
        Self {
            memcg,
            target: Some(target),
            limit: None,
            priority: PRIORITY_DEFAULT,
            idle: 0,
            idle_scanned: 0,
            idle_scans_max: 0,
            recheck: Recheck::default(),
            back_offs: 0,
            freed: 0,
            owed: 0,
            filter: ShrinkerFilter::ALL,
        }
    }

    /// The same, for some shrinkers only.
    pub(crate) fn filter(self, filter: ShrinkerFilter) -> Self {
        Self { filter, ..self }
    }

    /// A job whose target is so far below a limit of `memcg`, whatever that is at each step: one that was
    /// raised meanwhile is not worked for any more.
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    pub(super) fn below_limit(memcg: Memcg, reason: ReclaimReason, watermarks: Watermarks) -> Self {
        let target = reason.target(&memcg, &watermarks);
        Self { limit: Some((reason, watermarks)), ..Self::new(memcg, target) }
    }

    /// Which limit its target follows from, if it follows from one.
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    pub(super) fn limit_reason(&self) -> Option<ReclaimReason> {
        self.limit.map(|(reason, _)| reason)
    }

    /// A job that is done when nothing is owed for `memcg`.
    pub fn debts(memcg: Memcg) -> Self {
        Self { target: None, ..Self::new(memcg, ByteSize::ZERO) }
    }

    /// The group.
    pub fn memcg(&self) -> &Memcg {
        &self.memcg
    }

    /// The usage to come down to; none if it pays debts.
    pub fn target(&self) -> Option<ByteSize> {
        self.target
    }

    /// Is it there for the debts?
    pub fn pays_debts(&self) -> bool {
        self.target.is_none()
    }

    /// Objects that were owed after the last step, if it pays debts; 0 before the first.
    pub fn owed(&self) -> u64 {
        self.owed
    }

    /// Objects freed so far.
    pub fn freed(&self) -> u64 {
        self.freed
    }

    /// The pressure of the next step, 12 (light) to 0.
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// One pass over the group's subtree on `node`, of `scan_max` objects at most, that stops as soon as the target is
    /// reached. Pressure rises when it got on too slowly, so a job ends after a bounded number of steps that bring nothing.
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
        // A limit that is raised meanwhile is not worked for to the end of the step.
        let enough = || memcg.usage() <= target_now(memcg, limit, target);
        let mut work = Work::objects(scan_max).while_not(&enough);
        let mark = registry.mark_ends();
        let mut progress = Progress::default();
        if self.filter.is_all() && registry.is_by_utility() {
            // A limit is for all nodes together, and so is what a pair holds: its share of each goes.
            progress = registry.shrink_least_useful(memcg, None, Reclaim::KSWAPD, &mut work);
        }
        // Where all is protected, or none is known that could be chosen.
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
        if self.backs_off(progress) {
            return Step::BackOff;
        }
        let (fell, want) = (before.saturating_sub(after).get(), before.saturating_sub(target).get());
        if fell > 0 {
            (self.idle, self.idle_scanned, self.recheck) = (0, 0, Recheck::default());
        } else if self.priority == 0 && !registry.believes(&mut self.recheck, mark) {
            // A group ended: its objects may have moved to where the steps had been.
            (self.idle, self.idle_scanned) = (0, 0);
        } else if self.priority == 0 {
            self.idle = self.idle.saturating_add(1);
            self.idle_scanned = self.idle_scanned.saturating_add(progress.scanned);
            if self.idle == IDLE_STEPS_MAX {
                self.idle_scans_max = registry.held(&self.memcg, node).saturating_mul(IDLE_ROUNDS_MAX);
            }
            let nothing = progress.scanned == 0 && !cut;
            if nothing || (self.idle >= IDLE_STEPS_MAX && self.idle_scanned >= self.idle_scans_max) {
                return Step::Exhausted;
            }
        }
        // A step that the bound on objects cut short was not slow because pressure was too light.
        if fell.saturating_mul(QUICK_PARTS) < want && !(cut && fell > 0) {
            self.priority = self.priority.saturating_sub(1);
        }
        Step::Again
    }

    /// Brings the target up to date with the limit that it follows from. Returns it.
    fn follow_limit(&mut self) -> ByteSize {
        let before = self.target.unwrap_or(ByteSize::MAX);
        let target = target_now(&self.memcg, self.limit, before);
        self.target = Some(target);
        target
    }

    /// Debts are paid whole, whatever the pressure: they are what was asked for already.
    fn pay(&mut self, registry: &Registry, node: NodeId, scan_max: u64) -> Step {
        let (progress, owed) = registry.pay_debts(&self.memcg, node, &mut Work::objects(scan_max));
        self.freed = self.freed.saturating_add(progress.freed);
        self.owed = owed;
        match (owed, progress.scanned) {
            (0, _) => Step::Done,
            (_, 0) if !self.backs_off(progress) => Step::Exhausted,
            (_, 0) => Step::BackOff,
            _ => Step::Again,
        }
    }

    /// Did somebody ask for a rest, and may have it?
    fn backs_off(&mut self, progress: Progress) -> bool {
        let asked = progress.back_offs > 0;
        self.back_offs = if asked { self.back_offs.saturating_add(1) } else { 0 };
        asked && self.back_offs <= BACK_OFFS_MAX
    }
}

/// The usage to come down to: so far below a limit, or else the target.
fn target_now(memcg: &Memcg, limit: Option<(ReclaimReason, Watermarks)>, target: ByteSize) -> ByteSize {
    limit.map_or(target, |(reason, watermarks)| reason.target(memcg, &watermarks))
}
