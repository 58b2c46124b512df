//! Statistics: counted once for each visit of a shrinker, not for each batch.

mod pair;
mod visit_counts;

pub(crate) use pair::PairCountsOf;
pub use pair::PairStats;
pub(crate) use visit_counts::VisitCounts;

use alloc::{format, string::String, vec::Vec};
use core::cmp::Reverse;

use lowwater_lru_core::{ByteSize, Memcg};

use crate::id::ShrinkerId;

/// One shrinker, as [`Registry::snapshot`](crate::Registry::snapshot) saw it. Counts are since it was registered, in objects
/// where not said otherwise; taken one after the other, so they need not agree to the last object while reclaim runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShrinkerStats {
    /// Its id.
    pub id: ShrinkerId,
    /// Its name.
    pub name: String,
    /// Calls of `count_objects`.
    pub callbacks: u64,
    /// Asked for in `scan_objects`.
    pub requested: u64,
    /// Looked at.
    pub scanned: u64,
    /// Freed.
    pub freed: u64,
    /// ... and of these, by a background thread: the others by threads that needed memory themselves.
    pub freed_in_background: u64,
    /// Left as a debt, because it could not be done where it was asked.
    pub deferred: u64,
    /// Callbacks that panicked.
    pub panics: u64,
    /// Visits in which it asked to be left alone for a moment.
    pub back_offs: u64,
    /// Nanoseconds in its callbacks, and on the way to them; 0 without a clock.
    pub time_ns: u64,
    /// When it was last visited, on the registry's clock; none if never, or without a clock.
    pub last_run_ns: Option<u64>,
    /// Whether it is quarantined after a panic: not called again.
    pub quarantined: bool,
    /// Callbacks in flight.
    pub in_flight: usize,
}

/// A registry at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryStats {
    /// The registered shrinkers, by id.
    pub shrinkers: Vec<ShrinkerStats>,
    /// The live pairs: each shrinker with each group and node that it may hold something for, in no order.
    pub pairs: Vec<PairStats>,
    /// The registry's clock; 0 without one.
    pub now_ns: u64,
    /// (group, node, shrinker) that may hold something.
    pub live_pairs: usize,
    /// (group, node) that may hold something.
    pub live_groups: usize,
    /// Bytes of the map: O(live pairs) (S25).
    pub map_bytes: ByteSize,
}

impl ShrinkerStats {
    /// The name that tells it from others of the same name: `<name>-<id>`, as in the kernel's debugfs.
    pub fn full_name(&self) -> String {
        format!("{}-{}", self.name, self.id)
    }
}

impl RegistryStats {
    /// The `n` pairs that hold most: by bytes as far as shrinkers know them, then by objects.
    pub fn top(&self, n: usize) -> Vec<&PairStats> {
        let mut pairs: Vec<_> = self.pairs.iter().collect();
        pairs.sort_by_key(|pair| Reverse((pair.bytes, pair.count)));
        pairs.truncate(n);
        pairs
    }

    /// The `n` groups with something live that use most, those below them included, and how much; exact, in bytes.
    #[doc(hidden)]
    pub fn top_groups(&self, n: usize) -> Vec<(Memcg, ByteSize)> {
        let mut groups: Vec<_> = self.pairs.iter().map(|pair| (pair.memcg.id(), &pair.memcg)).collect();
        groups.sort_by_key(|group| group.0);
        groups.dedup_by_key(|group| group.0);
        let mut groups: Vec<_> = groups.into_iter().map(|(_, memcg)| (memcg.clone(), memcg.usage())).collect();
        groups.sort_by_key(|group| Reverse(group.1));
        groups.truncate(n);
        groups
    }

    /// The shrinker of a pair.
    pub fn shrinker(&self, id: ShrinkerId) -> Option<&ShrinkerStats> {
        self.shrinkers.iter().find(|shrinker| shrinker.id == id)
    }
}
