//! Statistics of one shrinker for one group on one node.
//!
//! A pair's counts are kept beside its bit and vanish with the bit, so their memory follows the
//! live pairs.
//!
//! A change of the size of `PairCounts` changes the memory of each visited pair.

use lowwater_lru_core::{ByteSize, Memcg, NodeId};

use super::visit_counts::VisitCounts;
use crate::id::ShrinkerId;
use crate::thin_vec::ThinVec;

/// The statistics of a pair, from its first visit until it is found empty. A visit is added once,
/// whatever its number of batches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PairCounts {
    /// The objects that the last visit counted.
    pub(crate) counted: u64,
    pub(crate) requested: u64,
    pub(crate) freed: u64,
    pub(crate) deferred: u64,
    pub(crate) time_ns: u64,
    /// On the registry's clock; 0 without a clock.
    pub(crate) last_run_ns: u64,
}

impl PairCounts {
    /// Adds a visit that counted `counted` objects.
    fn add(&mut self, counted: u64, visited: &VisitCounts) {
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        add(&mut self.requested, visited.requested);
        add(&mut self.freed, visited.freed);
        add(&mut self.deferred, visited.deferred);
        add(&mut self.time_ns, visited.time_ns);
        self.counted = counted;
        self.last_run_ns = self.last_run_ns.max(visited.last_run_ns);
    }
}

/// The visited pairs of one group on one node, sorted by shrinker id.
#[derive(Debug, Default)]
pub(crate) struct PairCountsOf(ThinVec<(u32, PairCounts)>);

impl PairCountsOf {
    /// Adds a visit. Without memory the visit is not recorded.
    #[inline]
    pub(crate) fn add(&mut self, id: u32, counted: u64, visited: &VisitCounts) {
        let at = match self.0.binary_search_by_key(&id, |seen| seen.0) {
            Ok(at) => at,
            Err(at) => {
                self.0.try_insert(at, (id, PairCounts::default()));
                at
            }
        };
        if let Some((_, seen)) = self.0.get_mut(at).filter(|seen| seen.0 == id) {
            seen.add(counted, visited);
        }
    }

    pub(crate) fn get(&self, id: u32) -> Option<PairCounts> {
        let at = self.0.binary_search_by_key(&id, |seen| seen.0).ok()?;
        Some(self.0[at].1)
    }

    /// Returns the sum of the objects that the pairs had at their last visits.
    pub(crate) fn counted(&self) -> u64 {
        self.0.iter().fold(0, |sum: u64, (_, seen)| sum.saturating_add(seen.counted))
    }

    pub(crate) fn remove(&mut self, id: u32) {
        if let Ok(at) = self.0.binary_search_by_key(&id, |seen| seen.0) {
            self.0.remove(at);
        }
    }

    /// Keeps only the pairs of ids for which `stays` returns true.
    pub(crate) fn retain(&mut self, stays: impl Fn(u32) -> bool) {
        self.0.retain(|seen| stays(seen.0));
    }

    /// Returns the heap bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// The statistics of a shrinker, a group and a node with objects. Counts are in objects, since the
/// pair was last found empty; earlier counts are only in the shrinker's own totals.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PairStats {
    /// The id of the shrinker.
    pub shrinker: ShrinkerId,
    /// The group for which the shrinker counts the objects; the root if the shrinker is not
    /// memcg-aware.
    pub memcg: Memcg,
    /// The node for which the shrinker counts the objects; node 0 if the shrinker is not
    /// NUMA-aware.
    pub node: NodeId,
    /// The objects that could be freed: at the last visit in a
    /// [`snapshot`](crate::Registry::snapshot) (`None` before the first visit), at present in a
    /// [`survey`](crate::Registry::survey) (`None` if the shrinker does not know).
    pub count: Option<u64>,
    /// The bytes of these objects, if the shrinker was called and knows them.
    pub bytes: Option<ByteSize>,
    /// Objects requested from `scan_objects`.
    pub requested: u64,
    /// Objects freed.
    pub freed: u64,
    /// Objects left as a debt so far, because they could not be scanned in the context of the call.
    pub deferred: u64,
    /// Objects owed now.
    #[doc(alias = "nr_deferred")]
    pub owed: u64,
    /// Nanoseconds of the pair's visits: the callbacks and the work around them; 0 without a clock.
    pub time_ns: u64,
    /// The time of the last visit, on the registry's clock; `None` before the first visit, or
    /// without a clock.
    pub last_run_ns: Option<u64>,
}

impl PairStats {
    pub(crate) fn of(shrinker: u32, memcg: Memcg, node: NodeId, seen: Option<PairCounts>, owed: u64) -> Self {
        let count = seen.map(|seen| seen.counted);
        let PairCounts { requested, freed, deferred, time_ns, last_run_ns, .. } = seen.unwrap_or_default();
        let last_run_ns = (last_run_ns > 0).then_some(last_run_ns);
        let shrinker = ShrinkerId::new(shrinker);
        Self { shrinker, memcg, node, count, bytes: None, requested, freed, deferred, owed, time_ns, last_run_ns }
    }
}
