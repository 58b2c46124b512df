//! Recording the keys of evicted records as ghosts.

use lowwater_rcu::Guard;

use super::eviction::Eviction;
use super::ghost::Ghosts;
use super::queue::Queue;
use super::tenant::Tenant;

/// Inserts ghosts for the keys that are evicted from a tenant.
pub(crate) struct GhostRecorder<'q> {
    pub(crate) tenant: &'q Tenant,
    pub(crate) ghosts: &'q Ghosts,
    pub(crate) eviction: Eviction,
}

impl GhostRecorder<'_> {
    /// Prefetches the ghost bucket of this hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64, guard: &Guard) {
        self.ghosts.known(guard).prefetch(hash);
    }

    /// Inserts a ghost for the key of this hash, evicted from `queue` when the tenant had `entries` records.
    pub(crate) fn remember(&self, hash: u64, queue: Queue, entries: u64, guard: &Guard) {
        // A fixed fraction learns nothing from ghosts of main.
        if self.eviction == Eviction::Adaptive || queue == Queue::Probation {
            if let Some(ghost) = self.tenant.on_evict(queue, entries) {
                self.ghosts.known(guard).remember(hash, ghost);
            }
        }
    }
}
