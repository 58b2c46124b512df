//! An iterator over the live groups of a subtree on one node, beginning where the previous one
//! stopped.
//!
//! Groups are taken from the summary a few at a time, and no lock is held in between. A group that
//! is live (holds objects) throughout is visited exactly once (S15), a group that becomes or ceases
//! to be live meanwhile at most once. Without memory, groups may be left out.
//!
//! The group P at which the previous iterator stopped, after shrinker i, is visited in two parts:
//!
//! ```text
//!     start = (P, i):   P, shrinkers after i  |  groups after P  |  groups before P  |  P, shrinkers up to i
//! ```
//!
//! Numbers such as S15 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that a group that is live throughout is visited exactly once, and that no
//! lock is held between two groups.

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use lowwater_lru_core::{Memcg, MemcgId, NodeId};

use super::summary::{path, IterPosition, Path};
use super::Map;

/// Groups taken from the summary at once: few, so that a bounded call does not pay for groups that
/// it will not reach.
const GROUPS_AT_ONCE: usize = 16;

/// One group's part of an iteration.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) memcg: Memcg,
    /// The ids of the shrinkers to call; those without objects of the group are included.
    pub(crate) ids: RangeInclusive<u32>,
}

/// An iterator in progress.
#[doc(alias = "struct mem_cgroup_reclaim_iter")]
#[doc(alias = "mem_cgroup_iter")]
pub(crate) struct MemcgIter<'a> {
    map: &'a Map,
    root: MemcgId,
    node: NodeId,
    /// The position at which the previous iterator stopped; `None` to begin with `root`.
    start: Option<IterPosition>,
    phase: IterPhase,
    /// The group last taken from the summary in this phase; at first the start group.
    last: Option<Path>,
    /// Groups taken from the summary, in reverse order.
    waiting: Vec<Memcg>,
}

/// The phases of an iteration, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IterPhase {
    /// The start group's shrinkers after the start.
    Head,
    /// The groups after the start group; all groups if there is no start.
    After,
    /// The groups before the start group.
    Before,
    /// The start group's shrinkers up to the start.
    Tail,
    /// Nothing is left.
    Over,
}

impl<'a> MemcgIter<'a> {
    /// Creates an iterator that begins after `start`, or with `root` itself.
    pub(crate) fn new(map: &'a Map, root: &Memcg, node: NodeId, start: Option<IterPosition>) -> Self {
        let phase = if start.is_some() { IterPhase::Head } else { IterPhase::After };
        // Without memory for a copy of the path, the iterator begins with `root` itself.
        let start = start.and_then(|start| Some((start.try_clone()?.path, start)));
        let (last, start) = start.map_or((None, None), |(last, start)| (Some(last), Some(start)));
        let phase = if start.is_some() { phase } else { IterPhase::After };
        Self { map, root: root.id(), node, start, phase, last, waiting: Vec::new() }
    }

    /// Takes the next groups of this phase from the summary, and returns the first of them.
    fn refill(&mut self) -> Option<Memcg> {
        let until = match self.phase {
            IterPhase::Before => self.start.as_ref().map(|start| start.path.as_slice()),
            _ => None,
        };
        let summary = self.map.summary(self.node);
        summary.collect(self.root, self.last.as_deref(), until, GROUPS_AT_ONCE, &mut self.waiting);
        drop(summary);
        self.waiting.reverse();
        self.last = Some(path(self.root, self.waiting.first()?)?);
        self.waiting.pop()
    }

    /// Returns the start group again, with the given range of its shrinkers.
    fn start_group(&self, ids: impl FnOnce(u32) -> Option<RangeInclusive<u32>>) -> Option<Visit> {
        let start = self.start.as_ref()?;
        let ids = ids(start.id)?;
        let memcg = self.map.summary(self.node).find(self.root, &start.path)?;
        Some(Visit { memcg, ids })
    }
}

impl Iterator for MemcgIter<'_> {
    type Item = Visit;

    fn next(&mut self) -> Option<Visit> {
        loop {
            match self.phase {
                IterPhase::Head => {
                    self.phase = IterPhase::After;
                    let visit = self.start_group(|id| Some(id.checked_add(1)?..=u32::MAX));
                    if visit.is_some() {
                        return visit;
                    }
                }
                IterPhase::After | IterPhase::Before => {
                    if let Some(memcg) = self.waiting.pop().or_else(|| self.refill()) {
                        return Some(Visit { memcg, ids: 0..=u32::MAX });
                    }
                    self.last = None;
                    self.phase = match (self.phase, &self.start) {
                        (_, None) => IterPhase::Over,
                        (IterPhase::After, _) => IterPhase::Before,
                        _ => IterPhase::Tail,
                    };
                }
                IterPhase::Tail => {
                    self.phase = IterPhase::Over;
                    return self.start_group(|id| Some(0..=id));
                }
                IterPhase::Over => return None,
            }
        }
    }
}
