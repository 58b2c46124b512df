//! What was done, to be looked at: counted once for each visit of a shrinker, not for each batch.

mod pair;

pub use pair::PairStats;
pub(crate) use pair::SeenBy;

use alloc::{format, string::String, vec::Vec};
use core::cmp::Reverse;
use core::ops::AddAssign;

use lowwater_lru_core::{Bytes, Memcg};

use crate::id::ShrinkerId;
use crate::registry::Entry;

/// What one visit did, or all of them together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Visited {
    pub(crate) callbacks: u64,
    pub(crate) requested: u64,
    pub(crate) scanned: u64,
    pub(crate) freed: u64,
    pub(crate) deferred: u64,
    pub(crate) panics: u64,
    pub(crate) back_offs: u64,
    pub(crate) time_ns: u64,
    /// On the registry's clock; 0 without one.
    pub(crate) last_run_ns: u64,
}

impl AddAssign for Visited {
    fn add_assign(&mut self, other: Self) {
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        add(&mut self.callbacks, other.callbacks);
        add(&mut self.requested, other.requested);
        add(&mut self.scanned, other.scanned);
        add(&mut self.freed, other.freed);
        add(&mut self.deferred, other.deferred);
        add(&mut self.panics, other.panics);
        add(&mut self.back_offs, other.back_offs);
        add(&mut self.time_ns, other.time_ns);
        self.last_run_ns = self.last_run_ns.max(other.last_run_ns);
    }
}

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
    /// Was it set aside after a panic?
    pub set_aside: bool,
    /// Callbacks in flight.
    pub in_flight: usize,
}

impl ShrinkerStats {
    pub(crate) fn of(entry: &Entry) -> Self {
        let (sum, in_flight) = entry.gate.counted();
        Self {
            id: ShrinkerId::new(entry.key.id),
            name: (*entry.name).into(),
            callbacks: sum.callbacks,
            requested: sum.requested,
            scanned: sum.scanned,
            freed: sum.freed,
            deferred: sum.deferred,
            panics: sum.panics,
            back_offs: sum.back_offs,
            time_ns: sum.time_ns,
            last_run_ns: (sum.last_run_ns > 0).then_some(sum.last_run_ns),
            set_aside: entry.is_aside(),
            in_flight,
        }
    }
}

/// A registry at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryStats {
    /// The registered shrinkers, by id.
    pub shrinkers: Vec<ShrinkerStats>,
    /// What is live: each shrinker with each group and node that it may hold something for, in no order.
    pub pairs: Vec<PairStats>,
    /// The registry's clock; 0 without one.
    pub now_ns: u64,
    /// (group, node, shrinker) that may hold something.
    pub live_pairs: usize,
    /// (group, node) that may hold something.
    pub live_groups: usize,
    /// Bytes of the map: O(live pairs) (S25).
    pub map_bytes: Bytes,
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
    pub fn top_groups(&self, n: usize) -> Vec<(Memcg, Bytes)> {
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
