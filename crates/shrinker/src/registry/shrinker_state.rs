//! The state that the registry and the lists of one shrinker share: its id, options, bits and
//! callbacks in flight.
//!
//! One allocation, since ten thousand caches have one each. Lists hold it by an `Arc` and report
//! through it even after the end; `Key` tells the map that such a report is obsolete.
//!
//! A change must ensure that a list may report after the end.

use lowwater_base::fallible::TryArc;
use lowwater_base::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use lowwater_lru_core::{Memcg, NodeId, Occupancy};

use super::in_flight::InFlight;
use super::options::ShrinkerOptions;
use crate::budget::SEEKS_DEFAULT;
use crate::map::{Key, Map};
use crate::utility::COST_ONE;

/// The shared state of a shrinker, in one allocation. Lists may keep it beyond the end of the
/// registration, when reports are ignored.
///
/// It implements the [`Occupancy`] of the lists: the first object in a list sets the shrinker's
/// bit. `E` is the end of the registration; see [`InFlight`].
#[doc(alias = "struct shrinker")]
pub(crate) struct ShrinkerState<E> {
    pub(crate) map: TryArc<Map>,
    pub(crate) key: Key,
    pub(crate) options: ShrinkerOptions,
    pub(crate) in_flight: InFlight<E>,
    /// The average cost of a miss, in 16ths of the mean of all shrinkers; 0 stands for that mean.
    cost: AtomicU32,
    /// Set by the first callback that panics, and never cleared: the shrinker is not called again.
    quarantined: AtomicBool,
}

impl<E> ShrinkerState<E> {
    pub(crate) fn new(map: TryArc<Map>, key: Key, options: ShrinkerOptions) -> Self {
        Self {
            map,
            key,
            options,
            in_flight: InFlight::default(),
            cost: AtomicU32::new(0),
            quarantined: AtomicBool::new(false),
        }
    }

    /// Returns true if a callback has panicked.
    pub(crate) fn is_quarantined(&self) -> bool {
        // Relaxed: another call by a thread that does not see it yet does no harm.
        self.quarantined.load(Ordering::Relaxed)
    }

    /// Prevents further calls of the shrinker. The registry clears its bits.
    pub(crate) fn quarantine(&self) {
        // Relaxed: see `is_quarantined`.
        self.quarantined.store(true, Ordering::Relaxed);
    }

    /// Returns the average cost of a miss, including the shrinker's `seeks`, in 16ths of the mean
    /// of all shrinkers.
    pub(crate) fn cost(&self) -> u32 {
        // Relaxed, here and below: an estimate.
        let cost = match self.cost.load(Ordering::Relaxed) {
            0 => COST_ONE,
            cost => cost,
        };
        self.times_seeks(cost)
    }

    /// Returns a cost times the shrinker's `seeks`.
    pub(crate) fn times_seeks(&self, cost: u32) -> u32 {
        let cost = u64::from(cost).saturating_mul(self.options.seeks.into()) / u64::from(SEEKS_DEFAULT);
        u32::try_from(cost).unwrap_or(u32::MAX)
    }

    /// Sets the average cost of a miss.
    pub(crate) fn set_cost(&self, cost: u32) {
        if self.cost.load(Ordering::Relaxed) != cost {
            self.cost.store(cost, Ordering::Relaxed);
        }
    }

    /// See [`Occupancy::occupied`].
    pub(crate) fn occupied(&self, memcg: &Memcg, node: NodeId) {
        self.map.set(self.options.memcg(memcg), self.options.node(node), self.key);
    }
}

/// The handle that lists have on a [`ShrinkerState`]: a trait object that is shared needs an `Arc`.
pub(crate) struct OccupancyHandle<E>(pub(crate) TryArc<ShrinkerState<E>>);

impl<E: Send> Occupancy for OccupancyHandle<E> {
    fn occupied(&self, memcg: &Memcg, node: NodeId) {
        self.0.occupied(memcg, node);
    }
}
