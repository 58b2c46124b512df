//! Resync: the full scan that sets bits, and adds pairs, for which there was no memory.
//!
//! A bit of the [`map`](crate::map) that cannot be set for want of memory would hide a shrinker's
//! objects from reclaim, and a (shrinker, group) pair that is missing in
//! [`Pairs`](crate::utility::Pairs) is never selected by utility. So the node is marked dirty,
//! which takes no memory. The next pass on the node, or the next reclaim by utility in the
//! background, counts every shrinker for every group, sets the bits of shrinkers with objects, and
//! adds the missing pairs. The full scan costs O(groups x shrinkers): once or twice in such a pass
//! or reclaim, after each failed allocation, after each registration beside which a resync ran,
//! and while a shrinker does not admit the thread.
//!
//! A shrinker that a resync cannot count may have objects without a bit. A shrinker that is
//! registered later marks all nodes dirty itself
//! ([`try_register`](crate::Prepared::try_register)); for a registered one that does not admit the
//! thread, the node is marked dirty again.
//!
//! A change must ensure that the dirty flag is taken before the first count, so that the next
//! resync repairs what fails during this one.

use lowwater_lru_core::NodeId;

use crate::control::{Reclaim, ShrinkControl};
use crate::registry::{CallbackPanicked, RegistryCore};

/// Counts every shrinker on `node`, if the node became dirty since the last resync. The caller is
/// in a no-reclaim scope of the registry, so callbacks start no reclaim.
pub(crate) fn resync(core: &RegistryCore, node: NodeId) {
    if !core.map.take_dirty(node) {
        return;
    }
    core.note_resync();
    for memcg in core.root.descendants() {
        for id in 0..core.ids_end() {
            // A shrinker that does not distinguish groups or nodes is counted once, for the root or
            // the first node.
            let Some(mut guard) = core.lookup_for(id, &memcg, node) else {
                if core.can_be_found(id, &memcg, node) {
                    core.map.mark_dirty(node);
                }
                continue;
            };
            core.map.add_missing(&memcg, node, guard.key);
            let count = guard.count(&ShrinkControl::count(&memcg, node, Reclaim::BACKGROUND));
            match count {
                Ok(count) if count.is_empty(guard.options.memcg_aware) => {}
                // Without memory the node is marked dirty again.
                Ok(_) => {
                    core.map.set(&memcg, node, guard.key);
                }
                Err(CallbackPanicked) => core.panicked(&mut guard),
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
    fn a_panic_in_a_resync_is_counted_and_clears_the_bits() {
        let tree = MemcgTree::new(0);
        let registry = Registry::new(&tree, 1);
        let prepared = registry.builder("bad").alloc().unwrap();
        prepared.occupancy().occupied(tree.root(), NodeId::ZERO);
        let registration = prepared.register(Arc::new(Bad));
        registry.core.map.mark_dirty(NodeId::ZERO);
        registry.shrink(tree.root(), NodeId::ZERO, 12, Reclaim::KSWAPD, &mut Work::unlimited());
        let stats = registration.stats();
        assert_eq!((stats.panics, stats.quarantined, stats.in_flight), (1, true, 0));
        assert_eq!(registry.snapshot().live_pairs, 0, "a quarantined shrinker's bits are cleared");
    }
}
