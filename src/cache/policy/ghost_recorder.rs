//! Recording the keys of evicted records as ghosts.

use lowwater_rcu::Guard;

use super::queue::Queue;
use super::tenant::Tenant;
use crate::runtime::Ghosts;

/// Inserts ghosts for the keys that are evicted from a tenant.
pub(crate) struct GhostRecorder<'q> {
    pub(crate) tenant: &'q Tenant,
    pub(crate) ghosts: &'q Ghosts,
    /// What hashes are mixed with, so that no other tenant meets these ghosts.
    pub(crate) salt: u64,
    /// The order has two queues, each with a clock of its own; otherwise all count as main.
    pub(crate) has_queues: bool,
    /// The evictions after which a ghost does not count any more.
    pub(crate) reach: u64,
}

impl GhostRecorder<'_> {
    /// Prefetches the ghost bucket of this hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64, guard: &Guard) {
        self.ghosts.known(guard).prefetch(hash ^ self.salt);
    }

    /// Inserts a ghost for the key of this hash, evicted from `queue` when the tenant had `entries` records.
    pub(crate) fn remember(&self, hash: u64, queue: Queue, entries: u64, guard: &Guard) {
        let queue = if self.has_queues { queue } else { Queue::Main };
        if let Some(ghost) = self.tenant.on_evict(hash, queue, entries, self.reach) {
            self.ghosts.known(guard).remember(hash ^ self.salt, ghost);
        }
    }
}
