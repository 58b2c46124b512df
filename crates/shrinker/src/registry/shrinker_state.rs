//! The state that the registry and the lists of one shrinker share: its id, options, cost of a miss
//! and callbacks in flight. Its bits are in the map.
//!
//! One allocation, since each of maybe ten thousand caches has one. Lists hold it by an `Arc` and
//! report their first objects through it even after the end of the registration; by the [`Key`] the
//! map recognizes such a report as obsolete, also when the id has a new owner.
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
/// The [`Occupancy`] of the lists ends here: the first object in a list sets the shrinker's bit.
/// `E` is the value whose drop ends the registration; see [`InFlight`].
#[doc(alias = "struct shrinker")]
pub(crate) struct ShrinkerState<E> {
    pub(crate) map: TryArc<Map>,
    pub(crate) key: Key,
    pub(crate) options: ShrinkerOptions,
    pub(crate) in_flight: InFlight<E>,
    /// The average cost of a miss without `seeks`, in 16ths of the mean of all shrinkers; 0 stands
    /// for that mean.
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

    /// Returns true if a callback has panicked: the shrinker is not called any more.
    pub(crate) fn is_quarantined(&self) -> bool {
        // Relaxed: another call by a thread that does not see it yet does no harm.
        self.quarantined.load(Ordering::Relaxed)
    }

    /// Prevents further calls of the shrinker. The caller clears its bits.
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

    /// Returns a cost times the shrinker's `seeks`, as a multiple of the default `seeks`.
    pub(crate) fn times_seeks(&self, cost: u32) -> u32 {
        let cost = u64::from(cost).saturating_mul(self.options.seeks.into()) / u64::from(SEEKS_DEFAULT);
        u32::try_from(cost).unwrap_or(u32::MAX)
    }

    /// Sets the average cost of a miss without `seeks`, in 16ths of the mean. Stores only a change,
    /// so that the cache line stays shared.
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

/// The handle that lists have on a [`ShrinkerState`]: they share it as an `Arc<dyn Occupancy>`,
/// while the state is in a [`TryArc`].
pub(crate) struct OccupancyHandle<E>(pub(crate) TryArc<ShrinkerState<E>>);

impl<E: Send> Occupancy for OccupancyHandle<E> {
    fn occupied(&self, memcg: &Memcg, node: NodeId) {
        self.0.occupied(memcg, node);
    }
}
