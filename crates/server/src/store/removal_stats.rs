//! Statistics of values that were evicted or expired.
//!
//! The cache's listener counts on the thread that evicts. A change must ensure that counting stays
//! cheap and does not wait.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use super::key_hash::KeyHash;
use crate::value::Value;
use crate::watchers::Watchers;

/// Statistics of evicted and expired values.
#[derive(Debug, Default)]
pub struct RemovalStats {
    evicted_unfetched: AtomicU64,
    expired_unfetched: AtomicU64,
    evicted_idle_seconds: AtomicU64,
    get_expired: AtomicU64,
    get_flushed: AtomicU64,
    pub watchers: Watchers,
}

thread_local! {
    /// The hash of the value that this thread removed last because it had expired; `None` once
    /// [`RemovalStats::missed`] has read it. Reads, touches, writes and crawls set it.
    static EXPIRED_LAST: Cell<Option<KeyHash>> = const { Cell::new(None) };
}

/// The counts that `stats` and `stats items` show.
#[derive(Debug)]
pub struct RemovalCounts {
    /// Evicted values that no client had read.
    pub evicted_unfetched: u64,
    /// Expired values that no client had read.
    pub expired_unfetched: u64,
    /// Idle time of the value that was evicted last, in seconds.
    pub evicted_idle_seconds: u64,
    /// Reads that found an expired value.
    pub get_expired: u64,
    /// Reads that found a flushed value.
    pub get_flushed: u64,
}

impl RemovalStats {
    /// Counts the eviction of `value`, and publishes it to watchers.
    pub fn evicted(&self, key: &[u8], value: &Value, idle_seconds: u32) {
        // Relaxed: statistics that guard no other memory.
        self.evicted_idle_seconds.store(u64::from(idle_seconds), Ordering::Relaxed);
        if !value.last_access.is_fetched() {
            self.evicted_unfetched.fetch_add(1, Ordering::Relaxed);
        }
        self.watchers.publish_eviction(key, value, idle_seconds);
    }

    /// Counts the expiry of `value`.
    pub fn expired(&self, hash: KeyHash, value: &Value) {
        EXPIRED_LAST.set(Some(hash));
        if !value.last_access.is_fetched() {
            // Relaxed: statistics that guard no other memory.
            self.expired_unfetched.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a read of the key with this `hash` that has found no live value; `is_flushed`: it has
    /// found a flushed one. If the read has found an expired value, the cache has just called
    /// [`expired`](Self::expired) on this thread, unless another thread finishes the removal. A
    /// call by an earlier write or crawl, or for another key with this hash, is mistaken for that
    /// of the read; a touch calls [`forget_expired`](Self::forget_expired).
    pub fn missed(&self, hash: KeyHash, is_flushed: bool) {
        // Relaxed: statistics that guard no other memory.
        if is_flushed {
            self.get_flushed.fetch_add(1, Ordering::Relaxed);
        } else if EXPIRED_LAST.take() == Some(hash) {
            self.get_expired.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Forgets that this thread has found an expired value.
    pub fn forget_expired(&self) {
        EXPIRED_LAST.set(None);
    }

    /// Sets all counts to 0.
    pub fn reset(&self) {
        let Self { evicted_unfetched, expired_unfetched, evicted_idle_seconds, get_expired, get_flushed, .. } = self;
        for counter in [evicted_unfetched, expired_unfetched, evicted_idle_seconds, get_expired, get_flushed] {
            // Relaxed: a statistic that guards no other memory.
            counter.store(0, Ordering::Relaxed);
        }
        self.watchers.reset();
    }

    /// Returns the counts.
    pub fn removal_counts(&self) -> RemovalCounts {
        // Relaxed: statistics that guard no other memory.
        let tally = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RemovalCounts {
            evicted_unfetched: tally(&self.evicted_unfetched),
            expired_unfetched: tally(&self.expired_unfetched),
            evicted_idle_seconds: tally(&self.evicted_idle_seconds),
            get_expired: tally(&self.get_expired),
            get_flushed: tally(&self.get_flushed),
        }
    }
}
