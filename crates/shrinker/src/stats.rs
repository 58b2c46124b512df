//! What was done, to be looked at: counted once for each visit of a shrinker, not for each batch.

use alloc::{string::String, vec::Vec};
use core::ops::AddAssign;

use lowwater_lru_core::Bytes;

use crate::id::ShrinkerId;
use crate::registry::Entry;

/// What one visit did, or all of them together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Visited {
    pub(crate) callbacks: u64,
    pub(crate) requested: u64,
    pub(crate) scanned: u64,
    pub(crate) freed: u64,
    pub(crate) deferred: u64,
    pub(crate) panics: u64,
    pub(crate) back_offs: u64,
}

impl AddAssign for Visited {
    fn add_assign(&mut self, other: Self) {
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        add(&mut self.callbacks, other.callbacks);
        add(&mut self.requested, other.requested);
        add(&mut self.scanned, other.scanned);
        add(&mut self.freed, other.freed);
        add(&mut self.deferred, other.deferred);
        add(&mut self.panics, other.panics);
        add(&mut self.back_offs, other.back_offs);
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
    /// Visits in which it asked to be left alone for a moment.
    pub back_offs: u64,
    /// Was it set aside after a panic?
    pub set_aside: bool,
    /// Callbacks in flight.
    pub in_flight: usize,
}

impl ShrinkerStats {
    pub(crate) fn of(entry: &Entry) -> Self {
        let (sum, in_flight) = entry.gate.counted();
        Self {
            id: ShrinkerId::new(entry.key.id),
            name: (*entry.name).into(),
            callbacks: sum.callbacks,
            requested: sum.requested,
            scanned: sum.scanned,
            freed: sum.freed,
            deferred: sum.deferred,
            panics: sum.panics,
            back_offs: sum.back_offs,
            set_aside: entry.is_aside(),
            in_flight,
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
