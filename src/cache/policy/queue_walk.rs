//! The counts of one eviction walk over a queue.
//!
//! A walk counts here while it holds the list's lock and updates the tenant once at its end.
//!
//! A count that is added must be of this walk alone, as concurrent walks report theirs themselves.

use super::queue::Queue;

/// The counts of one walk, from which the tenant's statistics are updated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueWalk {
    pub(crate) queue: Queue,
    /// The records visited, those of them that were evicted for too few uses, and the uses that all
    /// visited records had. In main each record counts for at most one use, because a walk takes
    /// one use from it.
    pub(crate) visited: u64,
    pub(crate) evicted: u64,
    pub(crate) uses: u64,
    /// The lengths of the queues before the walk.
    pub(crate) probation: u64,
    pub(crate) main: u64,
}
