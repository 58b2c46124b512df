//! The state that the registry and the lists of one shrinker share: its id, options, bits and callbacks in flight.

use lowwater_base::fallible::TryArc;
use lowwater_base::sync::atomic::{AtomicBool, Ordering};
use lowwater_lru_core::{Memcg, NodeId, Occupancy};

use super::in_flight::InFlight;
use super::options::ShrinkerOptions;
use crate::map::{Key, Map};

/// One allocation for what begins together. Lists may keep it beyond the end of the registration, and then nothing is reported.
///
/// To the lists it is the [`Occupancy`] that hears of the first object, and sets the shrinker's bit. `E` is the end of the
/// registration; see [`InFlight`].
#[doc(alias = "struct shrinker")]
pub(crate) struct ShrinkerState<E> {
    map: TryArc<Map>,
    pub(crate) key: Key,
    pub(crate) options: ShrinkerOptions,
    pub(crate) in_flight: InFlight<E>,
    /// Set by the first callback that panics, and never cleared: the shrinker is not called again.
    quarantined: AtomicBool,
}

impl<E> ShrinkerState<E> {
    pub(crate) fn new(map: TryArc<Map>, key: Key, options: ShrinkerOptions) -> Self {
        Self { map, key, options, in_flight: InFlight::default(), quarantined: AtomicBool::new(false) }
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
