//! Recording the keys of evicted records as ghosts.
//!
//! A recorder holds the values (salt, age limit) that all records of one batch share. A change must
//! ensure that inserts look for the ghosts by the same salt and sample.

use std::cell::OnceCell;

use lowwater_base::hash::mix;
use lowwater_rcu::Guard;

use super::ghost_salt::GhostSalt;
use super::ghost_stamps::is_sampled;
use super::queue::Queue;
use super::tenant::Tenant;
use crate::cache::expiry::clock::Lifespan;
use crate::cache::expiry::deadline::Now;
use crate::runtime::Ghosts;

/// Inserts ghosts for the keys that are evicted from a tenant.
pub(crate) struct GhostRecorder<'q> {
    pub(crate) tenant: &'q Tenant,
    pub(crate) ghosts: &'q Ghosts,
    pub(crate) salt: GhostSalt,
    /// Whether the order has two queues. Otherwise every eviction counts as one from main.
    pub(crate) has_queues: bool,
    /// Whether the tenant scanned when this was made, for [`prefetch`](Self::prefetch).
    pub(crate) is_scanning: bool,
    /// The time of the eviction; unset while no record with a deadline was met.
    pub(crate) now: &'q OnceCell<Now>,
    /// Age limit of a ghost, in evictions from the tenant: the entries for which there is room.
    pub(crate) reach: u64,
}

impl GhostRecorder<'_> {
    /// Prefetches the bucket of the ghost of the key of this hash, if it will have one.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64, guard: &Guard) {
        let hash = mix(hash);
        if !self.is_scanning || is_sampled(hash) {
            self.ghosts.known(guard).prefetch(self.salt.hash(hash));
        }
    }

    /// Counts the eviction of `nr` keys of these hashes from `queue`, of a tenant with `entries`
    /// records, and inserts a ghost for each key; while the tenant scans, for sampled keys only.
    /// `rest` is the longest lifespan that is left of the records with a deadline.
    pub(crate) fn remember(
        &self,
        hashes: impl Iterator<Item = u64>,
        nr: u32,
        queue: Queue,
        entries: u64,
        rest: Option<Lifespan>,
        guard: &Guard,
    ) {
        if nr == 0 {
            return;
        }
        let queue = if self.has_queues { queue } else { Queue::Main };
        let stamps = self.tenant.on_evictions(nr, queue, entries, self.reach);
        if let Some(rest) = rest {
            self.tenant.note_rest(nr, rest);
        }
        let known = self.ghosts.known(guard);
        for (at, hash) in (0..nr).zip(hashes) {
            let hash = mix(hash);
            if let Some(ghost) = stamps.ghost(at, hash) {
                known.remember(self.salt.hash(hash), ghost);
            }
        }
    }
}
