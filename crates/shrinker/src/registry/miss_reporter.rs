//! The handle by which a shrinker reports ghost hits: misses on objects that it was made to evict.
//!
//! Only the cache knows that a missed key was evicted, so it reports the miss, with the distance:
//! the bytes that its group has evicted since. Reports are hints for `utility`: a lost or late one
//! does no harm, and one of an ended registration or a group of another tree is ignored.
//!
//! A change must ensure that a wrong report affects only the selection of victims.

use lowwater_base::fallible::TryArc;
use lowwater_lru_core::{ByteSize, Memcg};

use super::pair_hint::PairHint;
use super::registry_core::RegisteredState;
use crate::id::ShrinkerId;
use crate::utility::{Miss, Pairs};

/// Reports the ghost hits of one shrinker: misses on objects that it evicted on request. From
/// [`Prepared::miss_reporter`](crate::Prepared::miss_reporter).
///
/// From these reports the registry estimates to which shrinker and group more memory would bring
/// the most hits per byte, and takes memory from those to which it brings the fewest
/// ([`RegistryConfig::by_utility`](crate::RegistryConfig::by_utility)). For a shrinker that reports
/// none, the estimate is made from its turnover. Only shrinkers built with
/// [`ShrinkerBuilder::reports_misses`](crate::ShrinkerBuilder::reports_misses) may report.
///
/// ```
/// use std::sync::Arc;
/// use lowwater_lru_core::{ByteSize, MemcgTree};
/// use lowwater_shrinker::{Miss, Registry, RegistryConfig};
///
/// let tree = MemcgTree::default();
/// let registry = Registry::with_config(&tree, RegistryConfig::new(1).by_utility(true));
/// let prepared = registry.builder("pages").reports_misses(true).alloc()?;
/// let reporter = prepared.miss_reporter();
/// // A key that was evicted is requested again; 40 kB were evicted since then.
/// reporter.miss(tree.root(), Miss::at(ByteSize::kib(40)));
/// # Ok::<(), lowwater_shrinker::ShrinkerAllocError>(())
/// ```
pub struct MissReporter(TryArc<RegisteredState>);

impl MissReporter {
    pub(super) fn new(state: TryArc<RegisteredState>) -> Self {
        Self(state)
    }

    /// Returns the id of the shrinker whose misses it reports.
    pub fn id(&self) -> ShrinkerId {
        ShrinkerId::new(self.0.key.id)
    }

    /// Reports a miss of the group. The miss is ignored if its distance plus the bytes of the
    /// shrinker's objects of the group exceed the lowest `max` or `high` of the group and its
    /// ancestors (then no memory that the group may have would have kept the object), if the
    /// registry knows of no such objects, or if the shrinker was not built to report misses. Takes
    /// locks for a moment. O(depth).
    pub fn miss(&self, memcg: &Memcg, miss: Miss) {
        self.miss_at(&PairHint::default(), memcg, miss);
    }

    /// As [`miss`](Self::miss), with a hint of the group's slot in the table of pairs, which the
    /// caller keeps. Looks the slot up, under locks, only if the hint is out of date.
    #[doc(hidden)]
    pub fn miss_at(&self, hint: &PairHint, memcg: &Memcg, miss: Miss) {
        let Some(pairs) = self.0.map.by_utility().filter(|_| self.0.options.reports_misses) else { return };
        let Some(slot) = self.slot(pairs, hint, memcg) else { return };
        let budget = budget(memcg);
        let held = pairs.tallies(slot).map_or(0, |tallies| tallies.bytes());
        let distance = miss.distance.get();
        if distance.saturating_add(held) > limit(memcg) {
            return;
        }
        let miss = miss.cost(self.0.times_seeks(miss.cost));
        pairs.hit(slot, miss, budget);
    }

    /// Sets the average cost of a miss of this shrinker, in 16ths of the mean over all shrinkers of
    /// the registry: the weight of objects that are kept because they were used. 16 until it is
    /// set; 0 means 16.
    pub fn set_mean_cost(&self, cost: u32) {
        self.0.set_cost(cost);
    }

    /// Returns true if the registry's table of pairs has the group's pair.
    #[doc(hidden)]
    pub fn is_known(&self, hint: &PairHint, memcg: &Memcg) -> bool {
        self.0.map.by_utility().is_some_and(|pairs| self.slot(pairs, hint, memcg).is_some())
    }

    /// Returns the slot of the group's pair in the table: from the hint if it is up to date,
    /// otherwise by a lookup, which updates the hint.
    fn slot(&self, pairs: &Pairs, hint: &PairHint, memcg: &Memcg) -> Option<u32> {
        let group = self.0.options.memcg(memcg);
        let (id, memcg) = (self.0.key.id, group.id());
        if let Some(slot) = hint.slot().filter(|slot| pairs.holds(*slot, id, memcg)) {
            return Some(slot);
        }
        // Not for a previous owner of the id, nor for a group of another tree.
        let slot = self.0.map.is_own(self.0.key, group).then(|| pairs.find(id, memcg)).flatten()?;
        hint.set(slot);
        Some(slot)
    }
}

impl core::fmt::Debug for MissReporter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MissReporter").field("shrinker", &self.0.key.id).finish()
    }
}

/// Returns the lowest `max` or `high` among a group and its ancestors.
fn limit(memcg: &Memcg) -> u64 {
    let above = core::iter::successors(Some(memcg), |memcg| memcg.parent());
    above.map(|memcg| memcg.max().min(memcg.high()).get()).min().unwrap_or(u64::MAX)
}

/// Returns the budget of which distances are fractions: the root's limit, or its usage if it has no
/// limit.
pub(crate) fn budget(memcg: &Memcg) -> u64 {
    let root = core::iter::successors(Some(memcg), |memcg| memcg.parent()).last().unwrap_or(memcg);
    match root.max() {
        ByteSize::MAX => root.usage().get(),
        max => max.get(),
    }
}
