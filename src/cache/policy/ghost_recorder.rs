//! Recording the keys of evicted records as ghosts.

use lowwater_rcu::Guard;

use super::queue::Queue;
use super::tenant::Tenant;
use crate::runtime::Ghosts;

/// Inserts ghosts for the keys that are evicted from a tenant.
pub(crate) struct GhostRecorder<'q> {
    pub(crate) tenant: &'q Tenant,
    pub(crate) ghosts: &'q Ghosts,
    /// XORed with each hash, so that lookups of other tenants do not match these ghosts.
    pub(crate) salt: u64,
    /// Whether the order has two queues. Otherwise every eviction counts as one from main.
    pub(crate) has_queues: bool,
    /// Age limit of a ghost, in evictions from the tenant: the entries that fit in the budget.
    pub(crate) reach: u64,
}

impl GhostRecorder<'_> {
    /// Prefetches the ghost bucket of this hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64, guard: &Guard) {
        self.ghosts.known(guard).prefetch(hash ^ self.salt);
    }

    /// Counts the eviction of the key of this hash from `queue`, of a tenant with `entries`
    /// records, and inserts a ghost for the key, unless the tenant scans and the key is not
    /// sampled.
    pub(crate) fn remember(&self, hash: u64, queue: Queue, entries: u64, guard: &Guard) {
        let queue = if self.has_queues { queue } else { Queue::Main };
        if let Some(ghost) = self.tenant.on_evict(hash, queue, entries, self.reach) {
            self.ghosts.known(guard).remember(hash ^ self.salt, ghost);
        }
    }
}
