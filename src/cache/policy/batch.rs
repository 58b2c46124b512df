//! What a walk over a queue isolates.

use lowwater_lru_core::Isolated;

use super::queue::Queue;
use crate::cache::record::Record;

/// The records that one walk isolated from a queue.
pub(crate) struct EvictionBatch<K: Send + Sync + 'static, V: Send + Sync + 'static> {
    /// Off their list, to be removed from the index and retired.
    pub(crate) old: Isolated<Record<K, V>>,
    /// Off their list, to be put on the other if they are still in the index.
    pub(crate) moved: Isolated<Record<K, V>>,
    /// ... which is this one.
    pub(crate) to: Queue,
    /// How many the group had on the node before.
    pub(crate) entries: u64,
    /// How many were looked at.
    pub(crate) scanned: u64,
}
