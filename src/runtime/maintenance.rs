//! [`Maintenance`]: the interface of a cache for the runtime's housekeeper.
//!
//! The runtime is a layer below the caches and knows them by this trait alone.
//!
//! A change must ensure that no method holds a lock of the cache while it runs user code, and that
//! `has_any` and `forget_group`, which are called under the housekeeper's lock, neither wait nor
//! run user code.

#[cfg(test)]
pub(crate) mod no_records;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[cfg(feature = "metrics")]
use lowwater_lru_core::ByteSize;
use lowwater_lru_core::{Memcg, NodeId};
#[cfg(feature = "metrics")]
use lowwater_shrinker::ShrinkerId;

/// The maintenance of one cache. Called by one thread at a time, unless a method says otherwise.
pub(crate) trait Maintenance: Send + Sync {
    /// Removes the next few records that a clear has left.
    fn remove_cleared(&self) -> NextRun;

    /// Visits the next few records, and removes those that have expired.
    fn reap_expired(&self) -> NextRun;

    /// Evicts a few records of a group on a node, even recently used ones. Returns the number of
    /// evicted records; 0 when the group has none there.
    fn evict_group(&self, group: &Memcg, node: NodeId) -> u64;

    /// Returns whether there is any record of a group on a node. Called by any thread, also while
    /// another thread evicts, inside the read side and under the housekeeper's lock: must not run
    /// user code.
    fn has_any(&self, group: &Memcg, node: NodeId) -> bool;

    /// Resets the tenant of a group that ends. Called by the thread that ends the group, under the
    /// housekeeper's lock: must neither wait nor run user code.
    fn forget_group(&self, dying: &Memcg);

    /// Compacts the next few records, if a compaction was requested.
    fn compact(&self) -> NextRun;

    /// If [`evict_group`](Self::evict_group) has evicted records since the last call: returns the
    /// memory of removed records to the system, and requests a compaction. Memory that a reader
    /// holds back is returned by a later [`reap_expired`](Self::reap_expired).
    fn release_memory(&self);

    /// Reads the figures for the metrics. Called by any thread, also while another thread works on
    /// the cache: must not run user code.
    #[cfg(feature = "metrics")]
    fn figures(&self) -> CacheFigures;

    /// Returns the number of records of a group on a node. Called as [`figures`](Self::figures) is.
    #[cfg(feature = "metrics")]
    fn count_of(&self, group: &Memcg, node: NodeId) -> u64;
}

/// The figures of a cache, for the metrics: counts since the cache was built, and its present size.
#[cfg(feature = "metrics")]
#[derive(Clone, Debug)]
pub(crate) struct CacheFigures {
    /// The cache's shrinker, by whose name the metrics label the cache.
    pub(crate) shrinker: ShrinkerId,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) inserts: u64,
    pub(crate) rejected: u64,
    pub(crate) loads: u64,
    pub(crate) listener_panics: u64,
    pub(crate) drop_panics: u64,
    pub(crate) evictions: u64,
    pub(crate) expired: u64,
    pub(crate) removed: u64,
    pub(crate) replaced: u64,
    pub(crate) entries: u64,
    /// Bytes charged for the entries.
    pub(crate) bytes: ByteSize,
    /// See [`Cache::footprint`](crate::Cache::footprint).
    pub(crate) footprint: ByteSize,
}

/// When maintenance is to run next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRun {
    /// At once, until the visit of the cache has lasted long enough (the housekeeper's `WORK`). In
    /// any case followed by a rest of `rest` times the processor time of this call.
    Now { rest: u32 },
    /// After this time.
    In(Duration),
    /// When the housekeeper is notified.
    WhenNotified,
}

impl NextRun {
    /// Returns the earlier one of two.
    pub(crate) fn min(self, other: Self) -> Self {
        match (self, other) {
            (Self::WhenNotified, next) | (next, Self::WhenNotified) => next,
            (Self::In(one), Self::In(two)) => Self::In(one.min(two)),
            (now @ Self::Now { .. }, _) | (_, now @ Self::Now { .. }) => now,
        }
    }
}

/// The number of a cache in the process, from 1 on; never used again. The default is below all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MaintenanceId(pub(crate) u64);

impl MaintenanceId {
    /// Returns a new number, above all others.
    pub(crate) fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only the numbers must differ.
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
