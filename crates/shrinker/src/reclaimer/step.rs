//! One group's way back below its target, a step at a time; no thread, no clock.

use lowwater_lru_core::{Bytes, Memcg, NodeId};

use crate::budget::PRIORITY_DEFAULT;
use crate::control::Reclaim;
use crate::registry::Registry;
use crate::work::Work;

/// A step that brings usage this part of the way to the target is quick enough: pressure stays as it is.
const QUICK_PARTS: u64 = 8;

/// Steps in a row at the highest pressure after which usage has not fallen although something was scanned, before the job is
/// given up: one takes the second chances away, one frees; the third is proof. It may also be that charges come as fast as
/// objects go; then they will ask again.
const IDLE_STEPS_MAX: u8 = 3;

/// What a step says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The group uses no more than its target, or has gone offline.
    Done,
    /// There is more to do.
    Again,
    /// Nothing can be freed now, at the highest pressure. Rest before trying again.
    Exhausted,
}

/// Brings one group's usage down to a target, on one node. A reclaimer thread of one's own, without ours:
///
/// ```
/// use lowwater_lru_core::{Bytes, MemcgTree, NodeId};
/// use lowwater_shrinker::{Job, Registry, Step};
///
/// let tree = MemcgTree::default();
/// let registry = Registry::new(&tree, 1);
///
/// let mut job = Job::new(tree.root().clone(), Bytes::mib(60));
/// // 1,024 objects at most in a step, then look whether it is time to stop.
/// while job.step(&registry, NodeId::ZERO, 1024) == Step::Again {}
/// assert!(tree.root().usage() <= Bytes::mib(60));
/// ```
#[derive(Debug)]
pub struct Job {
    memcg: Memcg,
    target: Bytes,
    priority: u8,
    idle: u8,
    freed: u64,
}

impl Job {
    /// A job that is done when `memcg` uses at most `target`.
    pub fn new(memcg: Memcg, target: Bytes) -> Self {
        Self { memcg, target, priority: PRIORITY_DEFAULT, idle: 0, freed: 0 }
    }

    /// The group.
    pub fn memcg(&self) -> &Memcg {
        &self.memcg
    }

    /// The usage to come down to.
    pub fn target(&self) -> Bytes {
        self.target
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
        let before = self.memcg.usage();
        if before <= self.target || !self.memcg.is_online() {
            return Step::Done;
        }
        let (memcg, target) = (&self.memcg, self.target);
        let enough = || memcg.usage() <= target;
        let mut work = Work::objects(scan_max).while_not(&enough);
        let progress = registry.shrink(memcg, node, self.priority, Reclaim::KSWAPD, &mut work);
        self.freed = self.freed.saturating_add(progress.freed);
        let after = self.memcg.usage();
        if after <= self.target {
            return Step::Done;
        }
        let cut = work.bound().is_some();
        let (fell, want) = (before.saturating_sub(after).get(), before.saturating_sub(self.target).get());
        if self.priority == 0 && fell == 0 {
            self.idle += 1;
            if (progress.scanned == 0 && !cut) || self.idle >= IDLE_STEPS_MAX {
                return Step::Exhausted;
            }
        } else if fell > 0 {
            self.idle = 0;
        }
        // A step that the bound on objects cut short was not slow because pressure was too light.
        if fell.saturating_mul(QUICK_PARTS) < want && !(cut && fell > 0) {
            self.priority = self.priority.saturating_sub(1);
        }
        Step::Again
    }
}
