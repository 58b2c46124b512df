//! Recording the keys of evicted records as ghosts.
//!
//! A recorder holds the values (salt, age limit) that all records of one batch share. A change must
//! ensure that the salt contains cache, tenant and their generations: a ghost must not match a key
//! of another cache or tenant, also of one whose id was reused, or of the time after a
//! `forget_ghosts`.

use lowwater_rcu::Guard;

use super::ghost_stamps::is_sampled;
use super::queue::Queue;
use super::tenant::Tenant;
use crate::runtime::Ghosts;

/// Inserts ghosts for the keys that are evicted from a tenant.
pub(crate) struct GhostRecorder<'q> {
    pub(crate) tenant: &'q Tenant,
    pub(crate) ghosts: &'q Ghosts,
    /// XORed with each hash, so that inserts of other caches and tenants do not match these ghosts.
    pub(crate) salt: u64,
    /// Whether the order has two queues. Otherwise every eviction counts as one from main.
    pub(crate) has_queues: bool,
    /// Whether the tenant scanned when this was made, for [`prefetch`](Self::prefetch).
    pub(crate) is_scanning: bool,
    /// Age limit of a ghost, in evictions from the tenant: the entries for which there is room.
    pub(crate) reach: u64,
}

impl GhostRecorder<'_> {
    /// Prefetches the ghost bucket of this hash, if its key will have a ghost.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64, guard: &Guard) {
        if !self.is_scanning || is_sampled(hash) {
            self.ghosts.known(guard).prefetch(hash ^ self.salt);
        }
    }

    /// Counts the eviction of `nr` keys of these hashes from `queue`, of a tenant with `entries`
    /// records, and inserts a ghost for each key; while the tenant scans, for sampled keys only.
    pub(crate) fn remember(
        &self,
        hashes: impl Iterator<Item = u64>,
        nr: u32,
        queue: Queue,
        entries: u64,
        guard: &Guard,
    ) {
        if nr == 0 {
            return;
        }
        let queue = if self.has_queues { queue } else { Queue::Main };
        let stamps = self.tenant.on_evictions(nr, queue, entries, self.reach);
        let known = self.ghosts.known(guard);
        for (at, hash) in (0..nr).zip(hashes) {
            if let Some(ghost) = stamps.ghost(at, hash) {
                known.remember(hash ^ self.salt, ghost);
            }
        }
    }
}
