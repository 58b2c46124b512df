//! The state that the registry and the lists of one shrinker share: its id, options, bits and callbacks in flight.

use lowwater_base::fallible::TryArc;
use lowwater_base::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use lowwater_lru_core::{Memcg, NodeId, Occupancy};

use super::in_flight::InFlight;
use super::options::ShrinkerOptions;
use crate::budget::SEEKS_DEFAULT;
use crate::map::{Key, Map};
use crate::utility::COST_ONE;

/// One allocation for what begins together. Lists may keep it beyond the end of the registration, and then nothing is reported.
///
/// To the lists it is the [`Occupancy`] that hears of the first object, and sets the shrinker's bit. `E` is the end of the
/// registration; see [`InFlight`].
#[doc(alias = "struct shrinker")]
pub(crate) struct ShrinkerState<E> {
    pub(crate) map: TryArc<Map>,
    pub(crate) key: Key,
    pub(crate) options: ShrinkerOptions,
    pub(crate) in_flight: InFlight<E>,
    /// What a miss costs on average, in 16ths of the mean of all shrinkers; 0 stands for that mean.
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

    /// Whether a callback has panicked.
    pub(crate) fn is_quarantined(&self) -> bool {
        // Relaxed: a call more by a thread that does not see it yet does no harm.
        self.quarantined.load(Ordering::Relaxed)
    }

    /// Marks the shrinker as not to be called again; its bits are the registry's to clear.
    pub(crate) fn quarantine(&self) {
        // Relaxed: see `is_quarantined`.
        self.quarantined.store(true, Ordering::Relaxed);
    }

    /// What a miss costs on average, its `seeks` included, in 16ths of the mean of all shrinkers.
    pub(crate) fn cost(&self) -> u32 {
        // Relaxed, here and below: a tally.
        let cost = match self.cost.load(Ordering::Relaxed) {
            0 => COST_ONE,
            cost => cost,
        };
        self.times_seeks(cost)
    }

    /// A cost times the shrinker's `seeks`.
    pub(crate) fn times_seeks(&self, cost: u32) -> u32 {
        let cost = u64::from(cost).saturating_mul(self.options.seeks.into()) / u64::from(SEEKS_DEFAULT);
        u32::try_from(cost).unwrap_or(u32::MAX)
    }

    /// Notes what a miss costs on average.
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

/// The handle of lists on a [`ShrinkerState`]: a trait object that others share takes an `Arc`.
pub(crate) struct OccupancyHandle<E>(pub(crate) TryArc<ShrinkerState<E>>);

impl<E: Send> Occupancy for OccupancyHandle<E> {
    fn occupied(&self, memcg: &Memcg, node: NodeId) {
        self.0.occupied(memcg, node);
    }
}
