//! A shrinker's place in its registry: what the registry and the shrinker's lists share of it.
//!
//! One allocation for what begins together. Lists may keep it beyond the end of the registration, and then report to nobody.

use lowwater_lru_core::fallible::TryArc;
use lowwater_lru_core::sync::atomic::{AtomicBool, Ordering};
use lowwater_lru_core::{Memcg, NodeId, Occupancy};

use super::gate::Gate;
use super::options::Options;
use crate::map::{Key, Map};

/// See the module. To the lists it is who hears of those that hold something, and sets their bits.
pub(crate) struct Seat {
    map: TryArc<Map>,
    pub(crate) key: Key,
    pub(crate) options: Options,
    pub(crate) gate: Gate,
    /// Set by the first callback that panics, and never cleared: nobody calls this shrinker again.
    aside: AtomicBool,
}

impl Seat {
    pub(super) fn new(map: TryArc<Map>, key: Key, options: Options) -> Self {
        Self { map, key, options, gate: Gate::default(), aside: AtomicBool::new(false) }
    }

    /// Has a callback panicked?
    pub(crate) fn is_aside(&self) -> bool {
        // Relaxed: a call more by a thread that does not see it yet does no harm.
        self.aside.load(Ordering::Relaxed)
    }

    /// Nobody shall call it again; see [`Inner::set_aside`](super::Inner::set_aside).
    pub(super) fn set_aside(&self) {
        // Relaxed: see `is_aside`.
        self.aside.store(true, Ordering::Relaxed);
    }
}

impl Seat {
    /// See [`Occupancy::occupied`].
    pub(super) fn occupied(&self, memcg: &Memcg, node: NodeId) {
        self.map.set(self.options.memcg(memcg), self.options.node(node), self.key);
    }
}

/// What lists have of a seat: a trait object that others share takes an `Arc`.
pub(super) struct Listener(pub(super) TryArc<Seat>);

impl Occupancy for Listener {
    fn occupied(&self, memcg: &Memcg, node: NodeId) {
        self.0.occupied(memcg, node);
    }
}
