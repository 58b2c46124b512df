//! Finding again what there was no memory to remember.
//!
//! A bit that cannot be set for want of memory would hide a list from reclaim. So the node remembers that something was lost, which takes
//! no memory, and the next round on it asks everybody, as the plain twin does, and sets the bits of those that hold something. That
//! costs O(groups x shrinkers) once for each failed allocation, at most once a round.

use lowwater_lru_core::NodeId;

use crate::control::{Reclaim, ShrinkControl};
use crate::registry::{Inner, Panicked};

/// Asks everybody on `node`, if something was lost there since the last time. The thread is in a scope.
pub(crate) fn find(inner: &Inner, node: NodeId) {
    if !inner.map.take_lost(node) {
        return;
    }
    for memcg in inner.root.descendants() {
        for id in 0..inner.ids_end() {
            let Some(mut held) = inner.lookup(id) else { continue };
            if held.options.memcg(&memcg) != &memcg || held.options.node(node) != node {
                continue;
            }
            let count = held.count(&ShrinkControl::count(&memcg, node, Reclaim::BACKGROUND));
            match count {
                Ok(count) if count.is_empty(held.options.memcg_aware) => {}
                // If there is no memory yet, the node remembers it again.
                Ok(_) => inner.map.set(&memcg, node, held.key),
                Err(Panicked) => inner.panicked(&mut held),
            }
        }
    }
}

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests {
    use super::*;
    use crate::{Count, Registry, Scan, Shrinker, Work};
    use alloc::sync::Arc;
    use lowwater_lru_core::MemcgTree;

    struct Bad;

    impl Shrinker for Bad {
        fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
            std::panic::panic_any("the callback's own fault")
        }

        fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
            unreachable!("it is never counted")
        }
    }

    #[test]
    fn who_panics_when_asked_for_what_was_lost_is_counted_and_its_bits_go() {
        let tree = MemcgTree::new(0);
        let registry = Registry::new(&tree, 1);
        let prepared = registry.builder("bad").alloc().unwrap();
        prepared.occupancy().occupied(tree.root(), NodeId::ZERO);
        let registration = prepared.register(Arc::new(Bad));
        registry.inner.map.lose(NodeId::ZERO);
        registry.shrink(tree.root(), NodeId::ZERO, 12, Reclaim::KSWAPD, &mut Work::unlimited());
        let stats = registration.stats();
        assert_eq!((stats.panics, stats.set_aside, stats.in_flight), (1, true, 0));
        assert_eq!(registry.snapshot().live_pairs, 0, "nobody would ever clear them");
    }
}
