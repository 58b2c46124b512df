//! Statistics of one shrinker for one group on one node.

use lowwater_lru_core::{ByteSize, Memcg, NodeId};

use super::visit_counts::VisitCounts;
use crate::id::ShrinkerId;
use crate::thin_vec::ThinVec;

/// The counts of a pair, from its first visit until it is found empty. One visit adds to it once, whatever the number of
/// batches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PairCounts {
    pub(crate) counted: u64,
    pub(crate) requested: u64,
    pub(crate) freed: u64,
    pub(crate) deferred: u64,
    pub(crate) time_ns: u64,
    pub(crate) last_run_ns: u64,
}

impl PairCounts {
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

/// The pairs of one group on one node that were visited, sorted by shrinker id.
#[derive(Debug, Default)]
pub(crate) struct PairCountsOf(ThinVec<(u32, PairCounts)>);

impl PairCountsOf {
    /// Nothing where there is no memory to note it.
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

    /// The sum of what the pairs held at their last visits.
    pub(crate) fn counted(&self) -> u64 {
        self.0.iter().fold(0, |sum: u64, (_, seen)| sum.saturating_add(seen.counted))
    }

    /// Keeps only those of ids that `stays` names.
    pub(crate) fn retain(&mut self, stays: impl Fn(u32) -> bool) {
        self.0.retain(|seen| stays(seen.0));
    }

    /// Heap bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// A shrinker, a group and a node that may hold something together. Counts are in objects, since the pair was last found empty;
/// what was done before that is in the shrinker's own sums only.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PairStats {
    /// The shrinker.
    pub shrinker: ShrinkerId,
    /// The group.
    pub memcg: Memcg,
    /// The node.
    pub node: NodeId,
    /// What could be freed: as of the last visit in a [`snapshot`](crate::Registry::snapshot) (none if there was no visit yet), as
    /// of now in a [`survey`](crate::Registry::survey) (none if the shrinker cannot tell).
    pub count: Option<u64>,
    /// The bytes of these objects, if the shrinker knows them and was asked.
    pub bytes: Option<ByteSize>,
    /// Asked for in `scan_objects`.
    pub requested: u64,
    /// Freed.
    pub freed: u64,
    /// Left as a debt over time, because it could not be done where it was asked.
    pub deferred: u64,
    /// Owed now.
    #[doc(alias = "nr_deferred")]
    pub owed: u64,
    /// Nanoseconds in the shrinker's callbacks; 0 without a clock.
    pub time_ns: u64,
    /// When it was last visited, on the registry's clock; none if never, or without a clock.
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
