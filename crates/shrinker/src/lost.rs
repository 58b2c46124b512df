//! Finding again what there was no memory to remember.
//!
//! A bit that cannot be set for want of memory would hide a list from reclaim. So the node remembers that something was lost, which takes
//! no memory, and the next round on it asks everybody, as the plain twin does, and sets the bits of those that hold something. That
//! costs O(groups x shrinkers) once for each failed allocation, at most once a round.

use lowwater_lru_core::NodeId;

use crate::control::{Reclaim, ShrinkControl};
use crate::registry::Inner;
use crate::shrinker::Count;

/// Asks everybody on `node`, if something was lost there since the last time. The thread is in a scope.
pub(crate) fn find(inner: &Inner, node: NodeId) {
    if !inner.map.take_lost(node) {
        return;
    }
    for memcg in inner.root.descendants() {
        for id in 0..inner.ids_end() {
            let Some(held) = inner.lookup(id) else { continue };
            if held.options.memcg(&memcg) != &memcg || held.options.node(node) != node {
                continue;
            }
            let count = held.count(&ShrinkControl::count(&memcg, node, Reclaim::BACKGROUND));
            match count {
                Ok(Count::Empty) => {}
                // If there is no memory yet, the node remembers it again.
                Ok(Count::Unknown | Count::Objects(_)) => inner.map.set(&memcg, node, held.key),
                Err(_panicked) => held.set_aside(),
            }
        }
    }
}
