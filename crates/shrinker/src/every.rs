//! The plain twin: no bits, ask everyone.
//!
//! The same contract as the registry's own pass in the most obvious code: every group, every shrinker, one after the other. It
//! is the oracle in tests and the "before" in benches: 4,000 groups and 4,000 shrinkers are 16 million calls a pass.

use lowwater_lru_core::{Memcg, NodeId};

use crate::control::Reclaim;
use crate::pass::{note_end, shelter, Layer, Protect};
use crate::registry::{drop_all, Inner};
use crate::shrink::{Size, Visit};
use crate::work::{Progress, Work};

/// A view of a registry that asks every shrinker for every group. From [`Registry::every`](crate::Registry::every).
#[derive(Clone, Copy)]
pub struct Every<'a> {
    inner: &'a Inner,
}

impl<'a> Every<'a> {
    pub(crate) fn new(inner: &'a Inner) -> Self {
        Self { inner }
    }

    /// As [`Registry::shrink`](crate::Registry::shrink), in O(groups x shrinkers); always from the top.
    pub fn shrink(&self, root: &Memcg, node: NodeId, priority: u8, flags: Reclaim, work: &mut Work<'_>) -> Progress {
        let Some(_scope) = self.inner.scopes.enter_first() else { return Progress::default() };
        self.pass(root, node, priority, flags, Protect::Limits, work)
    }

    /// As [`Registry::drop_caches`](crate::Registry::drop_caches), in O(groups x shrinkers x nodes) for each round.
    pub fn drop_caches(&self) -> u64 {
        let Some(_scope) = self.inner.scopes.enter_first() else { return 0 };
        drop_all(self.inner.map.ends(), || {
            let node = |n| {
                let (root, node) = (&self.inner.root, NodeId::new(n as u16));
                self.pass(root, node, 0, Reclaim::KSWAPD, Protect::Nothing, &mut Work::unlimited()).freed
            };
            (0..self.inner.map.nodes()).map(node).fold(0, u64::saturating_add)
        })
    }

    fn pass(
        &self,
        root: &Memcg,
        node: NodeId,
        priority: u8,
        flags: Reclaim,
        protect: Protect,
        work: &mut Work<'_>,
    ) -> Progress {
        work.forget_now();
        let mut progress = Progress::default();
        if !self.inner.knows(root, node) {
            return progress;
        }
        for layer in [Layer::AboveLow, Layer::BelowLow] {
            if layer == Layer::BelowLow && (priority > 0 || progress.freed > 0) {
                break;
            }
            for memcg in root.descendants() {
                if shelter(&memcg, root, protect) != Some(layer) {
                    note_end(&self.inner.map, &memcg);
                    continue;
                }
                for id in 0..self.inner.ids_end() {
                    if work.bound().is_some() {
                        return progress;
                    }
                    progress += self.one(&memcg, node, id, Size::Priority(priority), flags, work);
                }
                note_end(&self.inner.map, &memcg);
            }
        }
        progress
    }

    fn one(&self, memcg: &Memcg, node: NodeId, id: u32, size: Size, flags: Reclaim, work: &mut Work<'_>) -> Progress {
        let Some(held) = self.inner.lookup(id) else { return Progress::default() };
        if held.options.memcg(memcg) != memcg || held.options.node(node) != node {
            return Progress::default();
        }
        Visit { inner: self.inner, memcg, node, flags, size, bits: false, indebted: true }.held(held, work)
    }
}

impl core::fmt::Debug for Every<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Every").finish_non_exhaustive()
    }
}
