//! What was done, to be looked at: counted once for each visit of a shrinker, not for each batch.

use alloc::{string::String, vec::Vec};

use lowwater_lru_core::sync::atomic::{AtomicU64, Ordering};
use lowwater_lru_core::Bytes;

use crate::id::ShrinkerId;
use crate::registry::Entry;

/// One shrinker's counters since it was registered.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    callbacks: AtomicU64,
    requested: AtomicU64,
    scanned: AtomicU64,
    freed: AtomicU64,
    deferred: AtomicU64,
    panics: AtomicU64,
}

/// What one visit adds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Visited {
    pub(crate) callbacks: u64,
    pub(crate) requested: u64,
    pub(crate) scanned: u64,
    pub(crate) freed: u64,
    pub(crate) deferred: u64,
    pub(crate) panics: u64,
}

impl Counters {
    pub(crate) fn add(&self, visited: &Visited) {
        let add = |counter: &AtomicU64, n: u64| {
            if n != 0 {
                // Relaxed: numbers to look at; nothing is decided by them.
                counter.fetch_add(n, Ordering::Relaxed);
            }
        };
        add(&self.callbacks, visited.callbacks);
        add(&self.requested, visited.requested);
        add(&self.scanned, visited.scanned);
        add(&self.freed, visited.freed);
        add(&self.deferred, visited.deferred);
        add(&self.panics, visited.panics);
    }
}

/// One shrinker, as [`Registry::snapshot`](crate::Registry::snapshot) saw it. Counts are since it was registered, in objects
/// where not said otherwise; taken one after the other, so they need not agree to the last object while reclaim runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShrinkerStats {
    /// Its id.
    pub id: ShrinkerId,
    /// Its name.
    pub name: String,
    /// Calls of `count_objects`.
    pub callbacks: u64,
    /// Asked for in `scan_objects`.
    pub requested: u64,
    /// Looked at.
    pub scanned: u64,
    /// Freed.
    pub freed: u64,
    /// Left as a debt, because it could not be done where it was asked.
    pub deferred: u64,
    /// Callbacks that panicked.
    pub panics: u64,
    /// Was it set aside after a panic?
    pub set_aside: bool,
    /// Callbacks in flight.
    pub in_flight: usize,
}

impl ShrinkerStats {
    pub(crate) fn of(entry: &Entry) -> Self {
        // Relaxed: see `Counters::add`.
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &entry.counters;
        Self {
            id: ShrinkerId::new(entry.key.id),
            name: (*entry.name).into(),
            callbacks: get(&counters.callbacks),
            requested: get(&counters.requested),
            scanned: get(&counters.scanned),
            freed: get(&counters.freed),
            deferred: get(&counters.deferred),
            panics: get(&counters.panics),
            set_aside: entry.is_aside(),
            in_flight: entry.gate.inside(),
        }
    }
}

/// A registry at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryStats {
    /// The registered shrinkers, by id.
    pub shrinkers: Vec<ShrinkerStats>,
    /// (group, node, shrinker) that may hold something.
    pub live_pairs: usize,
    /// (group, node) that may hold something.
    pub live_groups: usize,
    /// Bytes of the map: O(live pairs) (S25).
    pub map_bytes: Bytes,
}
