//! The baseline of tests and benches: a scan that ignores the map's bits and calls every shrinker.
//! Behind the feature `baseline`.
//!
//! Implements the contract of the registry's own pass (`pass.rs`) in the most obvious code: every
//! group, every shrinker, one after the other. The scan is the oracle in tests and the "before" in
//! benches: 4,000 groups and 4,000 shrinkers are 16 million calls a pass.
//
// A change must keep the code obviously right, not make it faster. A rule that the pass gains is
// added here in the simplest way.

use lowwater_lru_core::{Memcg, NodeId};

use crate::control::Reclaim;
use crate::pass::{note_end, repeat_while_freeing};
use crate::protect::{Layer, Protect, Unprotected};
use crate::registry::{Registry, RegistryCore};
use crate::shrink::{ScanAmount, ShrinkSlab};
use crate::work::{Progress, Work};

/// A view of a registry that calls every shrinker for every group, whatever the map's bits.
#[derive(Clone, Copy)]
pub struct FullScan<'a> {
    core: &'a RegistryCore,
}

impl<'a> FullScan<'a> {
    /// Creates the full scan of `registry`'s shrinkers.
    pub fn new(registry: &'a Registry) -> Self {
        Self { core: &registry.core }
    }

    /// As [`Registry::shrink`](crate::Registry::shrink), in O(groups x shrinkers); always starts at
    /// the root.
    pub fn shrink(&self, root: &Memcg, node: NodeId, priority: u8, flags: Reclaim, work: &mut Work<'_>) -> Progress {
        let Some(_scope) = self.core.scopes.enter_first() else { return Progress::default() };
        self.pass(root, node, ScanAmount::Priority(priority), flags, Protect::Limits, work)
    }

    /// As [`Registry::drop_caches`](crate::Registry::drop_caches), in O(groups x shrinkers x nodes)
    /// per round.
    pub fn drop_caches(&self) -> u64 {
        let Some(_scope) = self.core.scopes.enter_first() else { return 0 };
        repeat_while_freeing(self.core.map.ends(), || {
            let node = |n| {
                let (root, node) = (&self.core.root, NodeId::new(n as u16));
                let mut work = Work::unlimited();
                self.pass(root, node, ScanAmount::Drop, Reclaim::KSWAPD, Protect::Nothing, &mut work)
            };
            (0..self.core.map.nodes()).map(node).fold(Progress::default(), |mut all, more| {
                all += more;
                all
            })
        })
    }

    /// Calls every shrinker for `root` and every online group below it, on one node.
    fn pass(
        &self,
        root: &Memcg,
        node: NodeId,
        amount: ScanAmount,
        flags: Reclaim,
        protect: Protect,
        work: &mut Work<'_>,
    ) -> Progress {
        work.forget_now();
        let mut progress = Progress::default();
        if !self.core.knows(root, node) {
            return progress;
        }
        let is_light = !matches!(amount, ScanAmount::Priority(0) | ScanAmount::Drop);
        for layer in [Layer::AboveLow, Layer::BelowLow] {
            if layer == Layer::BelowLow && (is_light || progress.freed > 0) {
                break;
            }
            for memcg in root.descendants() {
                for id in 0..self.core.ids_end() {
                    let unprotected = Unprotected::in_layer(layer, &memcg, root, protect);
                    let Some(unprotected) = unprotected else { break };
                    if work.bound().is_some() {
                        return progress;
                    }
                    progress += self.ask(&memcg, node, id, (amount, unprotected), flags, work);
                }
                note_end(&self.core.map, &memcg);
            }
        }
        progress
    }

    /// Visits one shrinker, unless it does not exist, or keeps the objects of this group and node
    /// under another group or node.
    fn ask(
        &self,
        memcg: &Memcg,
        node: NodeId,
        id: u32,
        (amount, unprotected): (ScanAmount, Unprotected),
        flags: Reclaim,
        work: &mut Work<'_>,
    ) -> Progress {
        let Some(mut guard) = self.core.lookup(id) else { return Progress::default() };
        if !guard.options.keeps(memcg, node) {
            return Progress::default();
        }
        let (core, clears_bits) = (self.core, false);
        ShrinkSlab { core, memcg, node, flags, amount, unprotected, clears_bits, has_deferred: true }
            .do_shrink_slab(&mut guard, work)
            .progress
    }
}

impl core::fmt::Debug for FullScan<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("FullScan").finish_non_exhaustive()
    }
}
