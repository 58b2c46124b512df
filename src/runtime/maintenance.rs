//! What a cache offers to the runtime's housekeeper.

use std::time::Duration;

use lowwater_lru_core::{Memcg, NodeId};

/// The maintenance of one cache. Called by one thread at a time, unless a method says otherwise.
pub(crate) trait Maintenance: Send + Sync {
    /// Visits the next few records, and removes those that have expired.
    fn reap_expired(&self) -> NextRun;

    /// Evicts a few records of a group on a node, however much they are used. Returns how many; 0 when there is none.
    fn evict_group(&self, group: &Memcg, node: NodeId) -> u64;

    /// Tells whether there is any record of a group on a node. Called by any thread, also while another evicts, under the housekeeper's lock: runs
    /// no user code.
    fn has_any(&self, group: &Memcg, node: NodeId) -> bool;

    /// Resets the tenant of a group that ends. Called by the thread that ends the group, under the housekeeper's lock: waits for nothing, and runs
    /// no user code.
    fn forget_group(&self, dying: &Memcg);

    /// Compacts the next few records, if a compaction was requested.
    fn compact(&self) -> NextRun;

    /// Returns the memory of removed records to the system; what a reader holds back is returned by a later [`reap_expired`](Self::reap_expired).
    fn release_memory(&self);
}

/// When maintenance is to run next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextRun {
    /// Now, or after a rest of `rest` times the time worked.
    Now { rest: u32 },
    /// After this time.
    In(Duration),
    /// When the housekeeper is notified.
    WhenNotified,
}

/// The number of a cache in its runtime's housekeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MaintenanceId(pub(crate) u64);
