//! A pass: all that is live in a group's subtree on one node, and nothing else.
//!
//! Groups are visited in pre-order from where the last bounded pass from the same root stopped, so that a bound does not
//! always fall on the same groups. Two layers, as in the kernel's `shrink_node_memcgs`:
//!
//! 1. groups above their `low`;
//! 2. groups below their `low` but above their `min`: only at the highest pressure, and only if the others gave nothing
//!    then. A light pass that frees nothing proves nothing: at priority 12 it looks at one object in two thousand.

use alloc::vec::Vec;

use lowwater_lru_core::{Bytes, Memcg, NodeId};

use crate::control::Reclaim;
use crate::map::{path, Map, Position, Resume, Tour};
use crate::registry::{Inner, Only};
use crate::shrink::{Size, Visit};
use crate::work::{Progress, Work};

/// Are limits kept?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protect {
    /// `min` always, `low` as long as others give.
    Limits,
    /// Everybody gives.
    Nothing,
}

/// One pass.
pub(crate) struct Pass<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) root: &'a Memcg,
    pub(crate) node: NodeId,
    pub(crate) priority: u8,
    pub(crate) flags: Reclaim,
    pub(crate) protect: Protect,
    pub(crate) only: Only,
}

impl Pass<'_> {
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Progress {
        let round = Round {
            inner: self.inner,
            root: self.root,
            node: self.node,
            flags: self.flags,
            size: if self.protect == Protect::Nothing { Size::Drop } else { Size::Priority(self.priority) },
            who: Resume::Pass,
            protect: self.protect,
            only: self.only,
        };
        let mut progress = Progress::default();
        let skipped = round.go(Layer::AboveLow, &mut progress, work);
        if self.priority == 0 && progress.freed == 0 && skipped && work.bound().is_none() {
            round.go(Layer::BelowLow, &mut progress, work);
        }
        progress
    }
}

/// See [`Registry::pay_debts`](crate::Registry::pay_debts).
pub(crate) fn pay(inner: &Inner, memcg: &Memcg, node: NodeId, work: &mut Work<'_>) -> (Progress, u64) {
    work.forget_now();
    let mut progress = Progress::default();
    // The debts of a group that has died are its parent's.
    let memcg = &memcg.nearest_online();
    if !inner.knows(memcg, node) {
        return (progress, 0);
    }
    if shelter(memcg, &inner.root, Protect::Limits) == Some(Layer::AboveLow) {
        let (flags, size) = (Reclaim::KSWAPD, Size::Owed);
        let visit = Visit { inner, memcg, node, flags, size, bits: true, indebted: true };
        for id in inner.map.debtors(memcg, node) {
            if work.bound().is_some() {
                break;
            }
            progress += visit.id(id, work);
        }
    }
    (progress, inner.map.owed_by_all(memcg, node))
}

/// Asks whoever may hold something on `node`, scans nothing, and clears the bits of those that hold nothing.
pub(crate) fn look(inner: &Inner, node: NodeId) {
    let mut ids = Vec::new();
    for stop in Tour::new(&inner.map, &inner.root, node, None) {
        ids.clear();
        inner.map.collect(&stop.memcg, node, stop.ids, &mut ids);
        let visit = Visit {
            inner,
            memcg: &stop.memcg,
            node,
            flags: Reclaim::BACKGROUND,
            size: Size::Nothing,
            bits: true,
            indebted: false,
        };
        for id in &ids {
            visit.id(*id, &mut Work::unlimited());
        }
    }
}

/// Which groups a round visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Those that nothing protects.
    AboveLow,
    /// Those that only `low` protects.
    BelowLow,
}

/// One round over one layer on one node.
pub(crate) struct Round<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) root: &'a Memcg,
    pub(crate) node: NodeId,
    pub(crate) flags: Reclaim,
    pub(crate) size: Size,
    pub(crate) who: Resume,
    pub(crate) protect: Protect,
    pub(crate) only: Only,
}

impl Round<'_> {
    /// Visits the layer's groups until `work` is used up. Says whether groups were passed over for their `low`.
    pub(crate) fn go(&self, layer: Layer, progress: &mut Progress, work: &mut Work<'_>) -> bool {
        if !self.inner.knows(self.root, self.node) {
            return false;
        }
        crate::lost::find(self.inner, self.node);
        work.forget_now();
        let map = &self.inner.map;
        let start = map.summary(self.node).resume(self.root.id(), self.who);
        // Where we have come to in this round.
        let mut last = None;
        let mut skipped = false;
        let mut ids = Vec::new();
        for stop in Tour::new(map, self.root, self.node, start.as_ref().and_then(Position::try_clone)) {
            match shelter(&stop.memcg, self.root, self.protect) {
                Some(found) if found == layer => {}
                Some(_) => {
                    skipped |= layer == Layer::AboveLow;
                    continue;
                }
                None => {
                    note_end(map, &stop.memcg);
                    continue;
                }
            }
            ids.clear();
            let indebted = map.collect(&stop.memcg, self.node, stop.ids, &mut ids);
            if !self.only.is_all() {
                ids.retain(|id| self.only.admits(self.inner, *id));
            }
            if self.who == Resume::Direct && last.is_none() {
                // Others that start meanwhile go to the next group.
                self.stop_at(self.position(&stop.memcg, u32::MAX));
            }
            let (inner, memcg, node, flags, size) = (self.inner, &stop.memcg, self.node, self.flags, self.size);
            let visit = Visit { inner, memcg, node, flags, size, bits: true, indebted };
            let mut visited = None;
            for id in &ids {
                if work.bound().is_some() {
                    self.stop_at(match visited {
                        Some(id) => self.position(memcg, id),
                        None => last.map_or(start, |(memcg, id)| self.position(&memcg, id)),
                    });
                    return skipped;
                }
                *progress += visit.id(*id, work);
                visited = Some(*id);
            }
            note_end(map, memcg);
            if let Some(id) = visited {
                last = Some((stop.memcg, id));
            }
        }
        match self.who {
            // A pass that came all the way round begins from the top.
            Resume::Pass if start.is_some() => self.stop_at(None),
            Resume::Pass => {}
            Resume::Direct => self.stop_at(last.map_or(start, |(memcg, id)| self.position(&memcg, id))),
        }
        skipped
    }

    /// None without memory: then the next round begins from the top.
    fn position(&self, memcg: &Memcg, id: u32) -> Option<Position> {
        Some(Position { path: path(self.root.id(), memcg)?, id })
    }

    fn stop_at(&self, position: Option<Position>) {
        self.inner.map.summary(self.node).set_resume(self.root.id(), self.who, position);
    }
}

/// A round came past a group: if that is dying, its objects may have moved to where the round has
/// been.
pub(crate) fn note_end(map: &Map, memcg: &Memcg) {
    if !memcg.is_online() {
        map.ends().met_dying();
    }
}

/// The layer a group belongs to in a reclaim from `root`; none if it is not touched: it is dying (its parent has its objects,
/// S19), or below its `min`.
pub(crate) fn shelter(memcg: &Memcg, root: &Memcg, protect: Protect) -> Option<Layer> {
    if !memcg.is_online() {
        return None;
    }
    if protect == Protect::Nothing {
        return Some(Layer::AboveLow);
    }
    let protection = memcg.protection(root);
    let below = |limit: Bytes| limit > Bytes::ZERO && memcg.usage() <= limit;
    if below(protection.min) {
        None
    } else if below(protection.low) {
        Some(Layer::BelowLow)
    } else {
        Some(Layer::AboveLow)
    }
}
