//! The statistics of a registry and its shrinkers.
//!
//! A *visit* is one count of a shrinker for a group and a node, and the scans that follow it. A
//! *live pair* is a shrinker with a (group, node) of which it may hold objects.
//!
//! Counts are added once per visit of a shrinker, not per batch, so a batch costs nothing for them.
//!
//! A change must ensure that a shrinker's counts only grow, until its registration ends. A new
//! field needs a line in docs/GUIDE.md if it becomes a metric.
//!
//! Numbers such as S25 are those of docs/INVARIANTS.md.

mod pair;
mod visit_counts;

pub(crate) use pair::PairCountsOf;
pub use pair::PairStats;
pub(crate) use visit_counts::VisitCounts;

use alloc::{format, string::String, vec::Vec};
use core::cmp::Reverse;

use lowwater_lru_core::{ByteSize, Memcg};

use crate::id::ShrinkerId;

/// The statistics of one shrinker, at the time of the call that returned them.
///
/// Counts begin at its registration. They are in objects unless stated otherwise. Shrinkers are
/// read one after the other, so the counts of several need not be of one moment. A visit is one
/// count of the shrinker for a group and a node, and the scans that follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShrinkerStats {
    /// The shrinker's id in its registry. After the end of its registration another shrinker may
    /// get the same id.
    pub id: ShrinkerId,
    /// The name that [`Registry::builder`](crate::Registry::builder) was given; several shrinkers
    /// may have the same ([`full_name`](Self::full_name)).
    pub name: String,
    /// Calls of `count_objects` in visits. Other calls, for example those of a survey, are not
    /// counted.
    pub callbacks: u64,
    /// Objects requested from `scan_objects`.
    pub requested: u64,
    /// Objects scanned, as the shrinker reported them
    /// ([`ShrinkControl::set_nr_scanned`](crate::ShrinkControl::set_nr_scanned)); as many as
    /// requested if it reported none.
    pub scanned: u64,
    /// Objects freed, as the shrinker reported them
    /// ([`Scan::Freed`](crate::Scan::Freed)).
    pub freed: u64,
    /// The part of `freed` that background threads freed; the rest was freed by threads that needed
    /// memory themselves.
    pub freed_in_background: u64,
    /// Objects that visits added to the debt: the shrinker deferred the scan, or returned
    /// [`Scan::Stop`](crate::Scan::Stop).
    pub deferred: u64,
    /// Callbacks that panicked, at most `u32::MAX`.
    pub panics: u64,
    /// Visits in which it requested a back-off, at most `u32::MAX`.
    pub back_offs: u64,
    /// Nanoseconds that its visits took, callbacks included; 0 without a clock.
    pub time_ns: u64,
    /// The time of the last visit, on the registry's clock; `None` before the first visit, or
    /// without a clock.
    pub last_run_ns: Option<u64>,
    /// True if it is quarantined after a panic: it is not called again.
    pub quarantined: bool,
    /// Threads inside a visit or another call of the shrinker.
    pub in_flight: usize,
}

/// A snapshot of all shrinkers of a registry and of the groups and nodes of which they may hold
/// objects, from [`Registry::snapshot`](crate::Registry::snapshot).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryStats {
    /// The registered shrinkers, by id.
    pub shrinkers: Vec<ShrinkerStats>,
    /// The live pairs, in no particular order. A live pair is a shrinker with a (group, node) of
    /// which it may hold objects.
    pub pairs: Vec<PairStats>,
    /// The time of this snapshot on the registry's clock, in nanoseconds; 0 without a clock.
    pub now_ns: u64,
    /// The number of live pairs.
    pub live_pairs: usize,
    /// The number of different (group, node) in the live pairs; a group counts once per node.
    pub live_groups: usize,
    /// Bytes of the map: O(live pairs) (`docs/INVARIANTS.md`, S25).
    pub map_bytes: ByteSize,
}

impl ShrinkerStats {
    /// Returns the unique name: `<name>-<id>`, as in the kernel's debugfs.
    pub fn full_name(&self) -> String {
        format!("{}-{}", self.name, self.id)
    }
}

impl RegistryStats {
    /// Returns the `n` largest live pairs: by bytes where shrinkers know them, then by objects.
    pub fn top(&self, n: usize) -> Vec<&PairStats> {
        let mut pairs: Vec<_> = self.pairs.iter().collect();
        pairs.sort_by_key(|pair| Reverse((pair.bytes, pair.count)));
        pairs.truncate(n);
        pairs
    }

    /// Returns the `n` groups with live pairs that have the highest [`usage`](Memcg::usage) now,
    /// which includes that of their descendants and unused stock, and this usage.
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

    /// Returns the statistics of the shrinker with this id; `None` if no such shrinker was
    /// registered at the time of the snapshot. O(shrinkers).
    pub fn shrinker(&self, id: ShrinkerId) -> Option<&ShrinkerStats> {
        self.shrinkers.iter().find(|shrinker| shrinker.id == id)
    }
}
