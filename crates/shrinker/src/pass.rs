//! A pass: visits all live pairs of a group's subtree on one node, and nothing else.
//!
//! Groups are visited in pre-order from where the last bounded pass from the same root stopped, so
//! that a bound does not always cut off the same groups. Two layers, as in the kernel's
//! `shrink_node_memcgs`:
//!
//! 1. groups above their `low`;
//! 2. groups below their `low` but above their `min`: only at the highest pressure, and only if the
//!    first layer then freed nothing. A light pass that frees nothing proves nothing: at priority
//!    12 it scans one object in two thousand.
//!
//! Numbers such as S19 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that a pass takes no lock during a callback.

use alloc::vec::Vec;

use lowwater_lru_core::{Memcg, NodeId};

use crate::control::Reclaim;
use crate::map::{path, Ends, IterKind, IterPosition, Map, MemcgIter, Recheck};
use crate::protect::{Layer, Protect, Unprotected};
use crate::registry::{RegistryCore, ShrinkerFilter};
use crate::shrink::{ScanAmount, ShrinkSlab};
use crate::work::{Progress, Work};

/// One pass.
pub(crate) struct Pass<'a> {
    pub(crate) core: &'a RegistryCore,
    pub(crate) root: &'a Memcg,
    pub(crate) node: NodeId,
    pub(crate) priority: u8,
    pub(crate) flags: Reclaim,
    pub(crate) protect: Protect,
    pub(crate) filter: ShrinkerFilter,
}

impl Pass<'_> {
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Progress {
        let layers = LayerPass {
            core: self.core,
            root: self.root,
            node: self.node,
            flags: self.flags,
            amount: if self.protect == Protect::Nothing {
                ScanAmount::Drop
            } else {
                ScanAmount::Priority(self.priority)
            },
            iter: IterKind::Pass,
            protect: self.protect,
            filter: self.filter,
        };
        let mut progress = Progress::default();
        let skipped = layers.run(Layer::AboveLow, &mut progress, work);
        let is_nothing_left = progress.freed == 0 && progress.busy == 0;
        if self.priority == 0 && is_nothing_left && skipped && work.bound().is_none() {
            layers.run(Layer::BelowLow, &mut progress, work);
        }
        progress
    }
}

/// Scans the deferred objects of a group on a node, unless the group is protected. Returns the
/// progress, and the objects still deferred: see
/// [`Registry::pay_debts`](crate::Registry::pay_debts).
pub(crate) fn scan_owed(core: &RegistryCore, memcg: &Memcg, node: NodeId, work: &mut Work<'_>) -> (Progress, u64) {
    work.forget_now();
    let mut progress = Progress::default();
    // The debts of a dead group are its parent's.
    let memcg = &memcg.nearest_online();
    if !core.knows(memcg, node) {
        return (progress, 0);
    }
    let (flags, amount) = (Reclaim::KSWAPD, ScanAmount::Owed);
    for id in core.map.ids_owing(memcg, node) {
        let unprotected = Unprotected::in_layer(Layer::AboveLow, memcg, &core.root, Protect::Limits);
        let Some(unprotected) = unprotected.filter(|_| work.bound().is_none()) else { break };
        let request =
            ShrinkSlab { core, memcg, node, flags, amount, unprotected, clears_bits: true, has_deferred: true };
        progress += request.shrinker(id, work).progress;
    }
    (progress, core.map.owed_by_all(memcg, node))
}

/// Counts the objects of every shrinker with a set bit on `node`, scans nothing, and clears the
/// bits of empty ones.
pub(crate) fn clear_empty(core: &RegistryCore, node: NodeId) {
    let mut ids = Vec::new();
    for visit in MemcgIter::new(&core.map, &core.root, node, None) {
        ids.clear();
        core.map.collect(&visit.memcg, node, visit.ids, &mut ids);
        let request = ShrinkSlab {
            core,
            memcg: &visit.memcg,
            node,
            flags: Reclaim::BACKGROUND,
            amount: ScanAmount::Nothing,
            unprotected: Unprotected::ALL,
            clears_bits: true,
            has_deferred: false,
        };
        for id in &ids {
            request.shrinker(*id, &mut Work::unlimited());
        }
    }
}

/// One pass over one layer on one node.
pub(crate) struct LayerPass<'a> {
    pub(crate) core: &'a RegistryCore,
    pub(crate) root: &'a Memcg,
    pub(crate) node: NodeId,
    pub(crate) flags: Reclaim,
    pub(crate) amount: ScanAmount,
    pub(crate) iter: IterKind,
    pub(crate) protect: Protect,
    pub(crate) filter: ShrinkerFilter,
}

impl LayerPass<'_> {
    /// Visits the layer's groups until `work` is used up. Returns whether groups were skipped
    /// because of their `low`.
    pub(crate) fn run(&self, layer: Layer, progress: &mut Progress, work: &mut Work<'_>) -> bool {
        if !self.core.knows(self.root, self.node) {
            return false;
        }
        crate::resync::resync(self.core, self.node);
        work.forget_now();
        let map = &self.core.map;
        let start = map.summary(self.node).iter_position(self.root.id(), self.iter);
        // The group and shrinker visited last in this round.
        let mut last = None;
        let mut skipped = false;
        let mut ids = Vec::new();
        for visit in MemcgIter::new(map, self.root, self.node, start.as_ref().and_then(IterPosition::try_clone)) {
            match Unprotected::of(&visit.memcg, self.root, self.protect) {
                Some(found) if found.layer == layer => {}
                Some(_) => {
                    skipped |= layer == Layer::AboveLow;
                    continue;
                }
                None => {
                    note_end(map, &visit.memcg);
                    continue;
                }
            }
            ids.clear();
            let has_deferred = map.collect(&visit.memcg, self.node, visit.ids, &mut ids);
            if !self.filter.is_all() {
                ids.retain(|id| self.filter.admits(self.core, *id));
            }
            if self.iter == IterKind::Direct && last.is_none() {
                // Advanced early, so that direct reclaim by other threads begins at the next group.
                self.stop_at(self.position(&visit.memcg, u32::MAX));
            }
            let (core, memcg, node, flags, amount) = (self.core, &visit.memcg, self.node, self.flags, self.amount);
            let mut visited = None;
            for id in &ids {
                if work.bound().is_some() {
                    self.stop_at(match visited {
                        Some(id) => self.position(memcg, id),
                        None => last.map_or(start, |(memcg, id)| self.position(&memcg, id)),
                    });
                    return skipped;
                }
                // Again for each shrinker: the one before may have freed all that is unprotected.
                let unprotected = match Unprotected::of(memcg, self.root, self.protect) {
                    Some(unprotected) if unprotected.layer == layer => unprotected,
                    other => {
                        skipped |= layer == Layer::AboveLow && other.is_some();
                        break;
                    }
                };
                let request =
                    ShrinkSlab { core, memcg, node, flags, amount, unprotected, clears_bits: true, has_deferred };
                *progress += request.shrinker(*id, work).progress;
                visited = Some(*id);
            }
            note_end(map, memcg);
            if let Some(id) = visited {
                last = Some((visit.memcg, id));
            }
        }
        match self.iter {
            // The pass after a completed round begins at the root.
            IterKind::Pass if start.is_some() => self.stop_at(None),
            IterKind::Pass => {}
            IterKind::Direct => self.stop_at(last.map_or(start, |(memcg, id)| self.position(&memcg, id))),
        }
        skipped
    }

    /// Returns the position after shrinker `id` of this group; `None` without memory: the next
    /// round then begins at the root.
    fn position(&self, memcg: &Memcg, id: u32) -> Option<IterPosition> {
        Some(IterPosition { path: path(self.root.id(), memcg)?, id })
    }

    /// Stores the position where the next round begins.
    fn stop_at(&self, position: Option<IterPosition>) {
        self.core.map.summary(self.node).set_iter_position(self.root.id(), self.iter, position);
    }
}

/// Reports a dying group that a round has passed: its objects may have moved to a group visited
/// earlier.
pub(crate) fn note_end(map: &Map, memcg: &Memcg) {
    if !memcg.is_online() {
        map.ends().met_dying();
    }
}

/// Passes in a row that scan something and free almost nothing, and that are followed by another:
/// objects may have several chances, and a pass visits an object with high `seeks` once.
const IDLE_PASSES_MAX: u32 = 3;
/// The most passes, whatever they free. Fewer than the bits of a count, by which it is shifted.
const PASSES_MAX: u32 = u64::BITS - 1;

/// Repeats a pass that drops everything: the n-th pass that is followed by another must free at
/// least 2^n objects, unless a group ended during it, or it scanned objects that it did not free;
/// the latter a few times in a row.
pub(crate) fn repeat_while_freeing(ends: &Ends, mut pass: impl FnMut() -> Progress) -> u64 {
    let (mut total, mut shift, mut idle) = (0_u64, 0, 0);
    let mut recheck = Recheck::default();
    for _ in 0..PASSES_MAX {
        let mark = ends.mark();
        let Progress { freed, scanned, .. } = pass();
        total = total.saturating_add(freed);
        if freed >> shift > 1 {
            (shift, idle) = (shift + 1, 0);
            continue;
        }
        idle += 1;
        if (scanned <= freed || idle > IDLE_PASSES_MAX) && recheck.accepts(ends, mark) {
            break;
        }
    }
    total
}
