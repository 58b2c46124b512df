//! One entry: a key, a value, and what is known about them.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;

use lowwater_lru_core::{linked, Bytes, Links, Memcg};

use super::queues::Queue;

/// An entry. On a list of its group while it is in the index.
pub(super) struct Entry<K, V> {
    links: Links,
    pub(super) hash: u64,
    /// Nanoseconds since the cache's epoch at which it expires; [`NEVER`].
    expires: AtomicU64,
    /// Reads that were not paid for yet by being kept, up to [`USES_MAX`].
    uses: AtomicU8,
    /// On the main queue's lists; else on those of the probation queue.
    in_main: AtomicBool,
    charge: Charge,
    pub(super) key: K,
    pub(super) value: V,
}

linked!(impl[K: Send + Sync, V: Send + Sync] for Entry<K, V> { links, handle: Arc<Entry<K, V>> });

/// The moment that does not come.
const NEVER: u64 = u64::MAX;
/// Reads that count.
const USES_MAX: u8 = 3;

impl<K, V> Entry<K, V> {
    /// What an entry costs beyond what its key and value own: itself, the two counts of its `Arc`, its slot in the index, which is a
    /// pointer and a byte in a table between 7/16 and 7/8 full, and its part of the ghosts.
    pub(super) const BYTES: u64 =
        (size_of::<Self>() + 2 * size_of::<usize>() + 16 + super::ghost::BYTES_PER_ENTRY) as u64;

    pub(super) fn new(key: K, value: V, hash: u64, expires: Option<u64>, charge: Charge) -> Self {
        Self {
            links: Links::new(),
            hash,
            expires: AtomicU64::new(expires.unwrap_or(NEVER)),
            uses: AtomicU8::new(0),
            in_main: AtomicBool::new(false),
            charge,
            key,
            value,
        }
    }

    pub(super) fn group(&self) -> &Memcg {
        &self.charge.group
    }

    /// Leaves the line alone when enough is counted already, which is what it mostly is for entries that are read a lot.
    pub(super) fn mark_used(&self) {
        // Relaxed: a hint to a walk that may come now or later; nothing is read through it. Of two uses at once one may be lost.
        let uses = self.uses.load(Ordering::Relaxed);
        if uses < USES_MAX {
            self.uses.store(uses + 1, Ordering::Relaxed);
        }
    }

    /// Reads that count.
    pub(super) fn uses(&self) -> u8 {
        // Relaxed: as above.
        self.uses.load(Ordering::Relaxed)
    }

    /// Takes so many reads as paid for.
    pub(super) fn pay_uses(&self, left: u8) {
        // Relaxed: as above.
        self.uses.store(left, Ordering::Relaxed);
    }

    /// Whose list it is on, or goes to. Changed only under its shard's lock.
    pub(super) fn queue(&self) -> Queue {
        // Relaxed: guarded by the shard's lock.
        if self.in_main.load(Ordering::Relaxed) {
            Queue::Main
        } else {
            Queue::Probation
        }
    }

    /// See [`queue`](Self::queue).
    pub(super) fn set_queue(&self, queue: Queue) {
        // Relaxed: guarded by the shard's lock, or the entry is nobody else's yet.
        self.in_main.store(queue == Queue::Main, Ordering::Relaxed);
    }

    pub(super) fn may_expire(&self) -> bool {
        self.expires() != NEVER
    }

    pub(super) fn has_expired(&self, now: u64) -> bool {
        self.expires() <= now
    }

    /// When it expires; none if it does not.
    pub(super) fn expires_at(&self) -> Option<u64> {
        Some(self.expires()).filter(|&at| at != NEVER)
    }

    pub(super) fn expire_at(&self, at: Option<u64>) {
        // Relaxed: the time stands for itself.
        self.expires.store(at.unwrap_or(NEVER), Ordering::Relaxed);
    }

    fn expires(&self) -> u64 {
        // Relaxed: the time stands for itself.
        self.expires.load(Ordering::Relaxed)
    }

    /// The value, from whoever has the only handle.
    pub(super) fn into_value(self) -> V {
        self.value
    }
}

/// Bytes taken from a group, given back on drop.
#[derive(Debug)]
pub(super) struct Charge {
    group: Memcg,
    bytes: Bytes,
}

impl Charge {
    /// For bytes that were charged to `group` just now.
    pub(super) fn of(group: Memcg, bytes: Bytes) -> Self {
        Self { group, bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.group.uncharge(self.bytes);
    }
}
