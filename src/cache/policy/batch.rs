//! The batch of records that one eviction walk isolates from a queue.
//!
//! It is filled under the list's lock and used after it: nothing is evicted, moved or dropped while
//! the lock is held. A change must ensure that each record in it ends in one of three ways:
//! evicted, moved, or put back.

use lowwater_lru_core::Isolated;

use super::queue::Queue;
use crate::cache::record::Record;

/// The records that one walk isolated from a queue.
pub(crate) struct EvictionBatch<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    /// The victims: off their list, to be removed from the index and retired.
    pub(crate) old: Isolated<Record<K, V>>,
    /// Records that change queues: off their list, to be added to `to` if they are still in the
    /// index.
    pub(crate) moved: Isolated<Record<K, V>>,
    /// The queue to which `moved` goes.
    pub(crate) to: Queue,
    /// Number of records of the group on the node before the walk, where the order has two queues;
    /// otherwise 0.
    pub(crate) entries: u64,
    /// Number of records visited.
    pub(crate) scanned: u64,
}
