//! Who left the store before somebody removed it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::watchers::Watchers;
use crate::value::Value;

/// Those who left before somebody removed them.
#[derive(Debug, Default)]
pub struct RemovalStats {
    evicted_unfetched: AtomicU64,
    expired_unfetched: AtomicU64,
    evicted_idle_seconds: AtomicU64,
    pub watchers: Watchers,
}

/// What `stats items` shows of those who left.
#[derive(Debug)]
pub struct RemovalCounts {
    pub evicted_unfetched: u64,
    pub expired_unfetched: u64,
    /// How long the last one evicted had not been used.
    pub evicted_idle_seconds: u64,
}

impl RemovalStats {
    /// `value` had to make room.
    pub fn evicted(&self, key: &[u8], value: &Value, idle_seconds: u32) {
        // Relaxed: tallies for people.
        self.evicted_idle_seconds.store(u64::from(idle_seconds), Ordering::Relaxed);
        if !value.last_access.is_fetched() {
            self.evicted_unfetched.fetch_add(1, Ordering::Relaxed);
        }
        self.watchers.publish_eviction(key, value, idle_seconds);
    }

    /// `value`'s time was over.
    pub fn expired(&self, value: &Value) {
        if !value.last_access.is_fetched() {
            // Relaxed: as above.
            self.expired_unfetched.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What is to be shown of them.
    pub fn removal_counts(&self) -> RemovalCounts {
        // Relaxed: tallies for people.
        let tally = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RemovalCounts {
            evicted_unfetched: tally(&self.evicted_unfetched),
            expired_unfetched: tally(&self.expired_unfetched),
            evicted_idle_seconds: tally(&self.evicted_idle_seconds),
        }
    }
}
