//! Statistics of values that were evicted or expired.

use std::sync::atomic::{AtomicU64, Ordering};

use super::watchers::Watchers;
use crate::value::Value;

/// Statistics of evicted and expired values.
#[derive(Debug, Default)]
pub struct RemovalStats {
    evicted_unfetched: AtomicU64,
    expired_unfetched: AtomicU64,
    evicted_idle_seconds: AtomicU64,
    pub watchers: Watchers,
}

/// The counts that `stats items` shows.
#[derive(Debug)]
pub struct RemovalCounts {
    pub evicted_unfetched: u64,
    pub expired_unfetched: u64,
    /// Idle time of the value that was evicted last.
    pub evicted_idle_seconds: u64,
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
    pub fn expired(&self, value: &Value) {
        if !value.last_access.is_fetched() {
            // Relaxed: statistics that guard no other memory.
            self.expired_unfetched.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the counts.
    pub fn removal_counts(&self) -> RemovalCounts {
        // Relaxed: statistics that guard no other memory.
        let tally = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RemovalCounts {
            evicted_unfetched: tally(&self.evicted_unfetched),
            expired_unfetched: tally(&self.expired_unfetched),
            evicted_idle_seconds: tally(&self.evicted_idle_seconds),
        }
    }
}
