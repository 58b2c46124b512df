//! The summary tree of one NUMA node: the groups with objects (live groups), and the paths that
//! lead to them. A pass finds the live groups of a subtree in it without visiting empty ones.
//!
//! Locked only when a group gets its first pair (a shrinker with objects of the group) or loses its
//! last, by a pass: once per batch of groups, and for the pass's position; and by a selection below
//! a group's limit, at most twice. Not by an `add` for a group that has a pair already.
//!
//! Invariants 2 and 3 of `map.rs` tie the tree to the `ShrinkerInfo`s; both change together under
//! the shard's write lock.

use alloc::boxed::Box;
use alloc::vec::Vec;

use hashbrown::HashMap;
use lowwater_base::fallible::{try_box, try_push};
use lowwater_lru_core::{Memcg, MemcgId};

use super::by_group::ByGroup;
use crate::bitmap::Bitmap;
use crate::hash::{shrink_after_removal, IdHasher};

/// The position of a group in the order of a pass: the ids from below the pass's root down to the
/// group; the root's path is empty. Comparing two paths as lists gives pre-order. A path stays
/// meaningful after its group is gone.
pub(crate) type Path = Vec<MemcgId>;

/// The position of an iterator: it has visited the groups up to this one, and in this group the
/// shrinkers up to `id`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IterPosition {
    pub(crate) path: Path,
    pub(crate) id: u32,
}

/// The two kinds of iterators; each has its own position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IterKind {
    /// A pass.
    Pass = 0,
    /// Direct reclaim.
    Direct = 1,
}

/// The summary tree of one NUMA node. Most live groups have no live group below them: such a leaf
/// is only its handle.
#[derive(Default)]
pub(crate) struct Summary {
    /// Live groups without a summary node.
    leaves: ByGroup<Memcg>,
    nodes: HashMap<MemcgId, SummaryNode, IdHasher>,
}

/// A group with live groups below it, or a live group that keeps an iterator's position.
struct SummaryNode {
    memcg: Memcg,
    /// True if the group has objects itself.
    live: bool,
    /// The group of the subtree, this one included, that [takes its turn](Summary::take_turns)
    /// next. It is in the tree: [`unlink`](Summary::unlink) replaces a group that is removed.
    turn: MemcgId,
    /// The children that are leaves or have a summary node, by id. A bitmap rather than a tree of
    /// ids: a container's group may have thousands of children, and a pass visits them in order.
    children: Bitmap,
    /// The positions of the two kinds of iterators that start at this group; most groups have none.
    positions: Option<Box<[Option<IterPosition>; 2]>>,
}

fn positions_bytes(positions: &[Option<IterPosition>; 2]) -> usize {
    let paths = positions.iter().flatten().map(|position| position.path.capacity() * size_of::<MemcgId>());
    size_of_val(positions) + paths.sum::<usize>()
}

/// Returns the path of `memcg` below `root`; `None` without memory. O(depth).
pub(crate) fn path(root: MemcgId, memcg: &Memcg) -> Option<Path> {
    let mut path = Path::new();
    let mut at = memcg;
    while at.id() != root {
        try_push(&mut path, at.id()).ok()?;
        let Some(parent) = at.parent() else { break };
        at = parent;
    }
    path.reverse();
    Some(path)
}

/// Copies a path; `None` without memory.
fn copy(path: &[MemcgId]) -> Option<Path> {
    let mut copy = Path::new();
    copy.try_reserve_exact(path.len()).ok()?;
    path.iter().try_for_each(|step| try_push(&mut copy, *step)).ok()?;
    Some(copy)
}

impl IterPosition {
    /// Copies a position; `None` without memory.
    pub(crate) fn try_clone(&self) -> Option<Self> {
        Some(Self { path: copy(&self.path)?, id: self.id })
    }
}

impl Summary {
    /// Adds a group that got its first pair: as a leaf, unless it has a node, with the nodes of its
    /// ancestors up to the first that is in the tree. Returns false, without a change, if there is
    /// no memory. O(depth) at most.
    pub(super) fn link(&mut self, memcg: &Memcg) -> bool {
        let made = self.try_link(memcg);
        if !made {
            self.unlink(memcg);
        }
        made
    }

    fn try_link(&mut self, memcg: &Memcg) -> bool {
        let mut below = None;
        let mut at = Some(memcg);
        while let Some(group) = at {
            let known = self.leaves.get(group.id()).is_some() || self.nodes.contains_key(&group.id());
            let done = match (below, self.nodes.get_mut(&group.id())) {
                (None, Some(node)) => {
                    node.live = true;
                    true
                }
                (None, None) => known || self.leaves.try_insert(group.clone()),
                (Some(child), _) => self.node_of(group).is_some_and(|node| node.children.insert(MemcgId::get(child))),
            };
            if known || !done {
                return done;
            }
            below = Some(group.id());
            at = group.parent();
        }
        true
    }

    /// Removes a group that lost its last pair: its leaf or, if no live group is below it, its
    /// node, and the nodes of ancestors that led only to the group. O(depth).
    ///
    /// The caller holds a handle on `memcg` until the lock is released, so no handle that is
    /// dropped here is the last: `memcg` keeps its ancestors alive.
    pub(super) fn unlink(&mut self, memcg: &Memcg) {
        let mut gone = None;
        let mut at = Some(memcg);
        while let Some(group) = at {
            match (gone, self.nodes.get_mut(&group.id())) {
                (None, Some(node)) => node.live = false,
                (Some(child), Some(node)) => node.children.remove(MemcgId::get(child)),
                (None, None) if self.leaves.remove(group.id()).is_some() => {}
                (_, None) => return,
            }
            if self.free_if_unused(group.id()) {
                gone.into_iter().for_each(|gone| self.skip_turn(group, gone));
                return;
            }
            gone = Some(group.id());
            at = group.parent();
        }
    }

    /// Replaces the turns of the groups from `parent` up that were removed with its child `gone`,
    /// or below it, by the group after these in pre-order. O(depth).
    fn skip_turn(&mut self, parent: &Memcg, mut gone: MemcgId) {
        let (mut next, mut at) = (None, Some(parent));
        while let Some(group) = at {
            // The parent has no node if it has become a leaf: then no other child is next.
            if let Some(node) = self.nodes.get(&group.id()) {
                next = next.or_else(|| node.children.next_after(Some(gone.get())).map(MemcgId::new));
                if self.memcg(node.turn).is_none() {
                    if let Some(node) = self.nodes.get_mut(&group.id()) {
                        node.turn = next.unwrap_or(group.id());
                    }
                }
            }
            (gone, at) = (group.id(), group.parent());
        }
    }

    /// Returns the node of a group, created if it has none; `None` without memory.
    fn node_of(&mut self, group: &Memcg) -> Option<&mut SummaryNode> {
        if !self.nodes.contains_key(&group.id()) {
            self.nodes.try_reserve(1).ok()?;
            let live = self.leaves.remove(group.id()).is_some();
            let node = SummaryNode {
                memcg: group.clone(),
                live,
                turn: group.id(),
                children: Bitmap::default(),
                positions: None,
            };
            self.nodes.insert(group.id(), node);
        }
        self.nodes.get_mut(&group.id())
    }

    /// Frees a group's node if it is not needed; a live group becomes a leaf. Returns true if the
    /// group is still in the tree, as a node or as a leaf.
    fn free_if_unused(&mut self, id: MemcgId) -> bool {
        let Some(node) = self.nodes.get(&id) else { return self.leaves.get(id).is_some() };
        if !node.children.is_empty() || node.live && node.positions.is_some() {
            return true;
        }
        // Without memory the node stays, without children.
        if node.live && !self.leaves.try_insert(node.memcg.clone()) {
            return true;
        }
        let gone = self.nodes.remove(&id);
        shrink_after_removal(&mut self.nodes);
        gone.is_some_and(|node| node.live)
    }

    /// Returns the group, if it has objects itself.
    fn live(&self, id: MemcgId) -> Option<&Memcg> {
        let node = self.nodes.get(&id).filter(|node| node.live).map(|node| &node.memcg);
        node.or_else(|| self.leaves.get(id))
    }

    /// Appends up to `max` live groups of `root`'s subtree to `found`, in pre-order: those after
    /// `after` (all if `None`) and before `until`, as far as there is memory. O(depth) for the
    /// first group, then amortized O(1) per group.
    pub(crate) fn collect(
        &self,
        root: MemcgId,
        after: Option<&[MemcgId]>,
        until: Option<&[MemcgId]>,
        max: usize,
        found: &mut Vec<Memcg>,
    ) {
        let Some(mut path) = after.map_or(Some(Path::new()), copy) else { return };
        if after.is_none() && until != Some(&[]) {
            if let Some(live) = self.live(root) {
                if try_push(found, live.clone()).is_err() {
                    return;
                }
            }
        }
        let Some(mut node) = self.nodes.get(&root) else { return };
        // The child last visited below the end of `path`. At first `None` or, if a group of `after`
        // is gone (its id may have been reused), the first step that no longer leads on.
        let existing = self.existing_steps(root, &path);
        let mut seen = path.drain(existing..).next();
        if path.last().is_some_and(|last| !self.nodes.contains_key(last)) {
            // A leaf, with nothing below.
            seen = path.pop();
        }
        if let Some(below) = path.last().and_then(|last| self.nodes.get(last)) {
            node = below;
        }
        while found.len() < max {
            match node.children.next_after(seen.map(MemcgId::get)).map(MemcgId::new) {
                Some(child) => {
                    if try_push(&mut path, child).is_err() || until.is_some_and(|until| path.as_slice() >= until) {
                        return;
                    }
                    let below = self.nodes.get(&child);
                    let live = match below {
                        Some(below) => below.live.then_some(&below.memcg),
                        None => self.leaves.get(child),
                    };
                    if live.is_some_and(|live| try_push(found, live.clone()).is_err()) {
                        return;
                    }
                    match below {
                        Some(below) => (node, seen) = (below, None),
                        None => seen = path.pop(),
                    }
                }
                None => {
                    seen = path.pop();
                    if seen.is_none() {
                        return;
                    }
                    // INVARIANT 3: the parent of a node has a node.
                    let Some(above) = self.nodes.get(path.last().unwrap_or(&root)) else { return };
                    node = above;
                }
            }
        }
    }

    /// Stores live groups of `root`'s subtree in `found`, each once, in pre-order and around: the
    /// next ones in turn. Returns their number. The turn moves on behind them. Allocates nothing.
    /// O(depth) for each group at most.
    pub(super) fn take_turns(&mut self, root: MemcgId, found: &mut [MemcgId]) -> usize {
        let first = self.nodes.get(&root).map_or(root, |node| node.turn);
        let next = |at: &MemcgId| Some(self.next_around(root, *at)).filter(|next| *next != first);
        let live = core::iter::successors(Some(first), next).filter(|id| self.live(*id).is_some());
        let mut last = first;
        let taken = found.iter_mut().zip(live).map(|(place, id)| (*place, last) = (id, id)).count();
        let next = self.next_around(root, last);
        if let Some(node) = self.nodes.get_mut(&root) {
            node.turn = next;
        }
        taken
    }

    /// Gives back the turns of groups that [`take_turns`](Self::take_turns) took: the first one
    /// that is still in `root`'s subtree is the next one.
    pub(super) fn give_turns_back(&mut self, root: &Memcg, unused: &[MemcgId]) {
        let is_below = |id: &&MemcgId| self.memcg(**id).is_some_and(|group| group.is_descendant_of(root));
        let Some(next) = unused.iter().find(is_below) else { return };
        if let Some(node) = self.nodes.get_mut(&root.id()) {
            node.turn = *next;
        }
    }

    /// Returns the group after `at` in pre-order in `root`'s subtree, which has both; after the
    /// last one `root`.
    fn next_around(&self, root: MemcgId, mut at: MemcgId) -> MemcgId {
        let child = |parent: MemcgId, last: Option<MemcgId>| {
            self.nodes.get(&parent)?.children.next_after(last.map(MemcgId::get)).map(MemcgId::new)
        };
        let mut next = child(at, None);
        while next.is_none() && at != root {
            let Some(parent) = self.memcg(at).and_then(Memcg::parent) else { break };
            next = child(parent.id(), Some(at));
            at = parent.id();
        }
        next.unwrap_or(root)
    }

    /// Returns the group with this id, if it is a leaf or has a node.
    fn memcg(&self, id: MemcgId) -> Option<&Memcg> {
        self.nodes.get(&id).map(|node| &node.memcg).or_else(|| self.leaves.get(id))
    }

    /// Returns the group at `path` below `root`, if it is live.
    pub(crate) fn find(&self, root: MemcgId, path: &[MemcgId]) -> Option<Memcg> {
        if self.existing_steps(root, path) < path.len() {
            return None;
        }
        self.live(*path.last().unwrap_or(&root)).cloned()
    }

    /// Returns the number of steps of `path` that still lead down from `root`.
    fn existing_steps(&self, root: MemcgId, path: &[MemcgId]) -> usize {
        let mut parent = root;
        path.iter()
            .take_while(|child| {
                let leads = self.nodes.get(&parent).is_some_and(|node| node.children.contains(child.get()));
                parent = **child;
                leads
            })
            .count()
    }

    /// Returns the position at which an iterator of this kind from `root` stopped; `None` also
    /// without memory for the copy.
    pub(crate) fn iter_position(&self, root: MemcgId, kind: IterKind) -> Option<IterPosition> {
        self.nodes.get(&root)?.positions.as_ref()?[kind as usize].as_ref()?.try_clone()
    }

    /// Stores the position at which an iterator of this kind from `root` stopped. The position is
    /// dropped when the subtree becomes empty, or if there is no memory.
    pub(crate) fn set_iter_position(&mut self, root: MemcgId, kind: IterKind, position: Option<IterPosition>) {
        let node = match (position.is_some(), self.leaves.get(root)) {
            (true, Some(leaf)) => {
                let leaf = leaf.clone();
                self.node_of(&leaf)
            }
            _ => self.nodes.get_mut(&root),
        };
        let Some(node) = node else { return };
        if position.is_none() && node.positions.is_none() {
            return;
        }
        if node.positions.is_none() {
            node.positions = try_box([None, None]);
        }
        if let Some(positions) = &mut node.positions {
            positions[kind as usize] = position;
            if positions.iter().all(Option::is_none) {
                node.positions = None;
            }
        }
        self.free_if_unused(root);
    }

    pub(super) fn bytes(&self) -> usize {
        let children: usize = self.nodes.values().map(|node| node.children.bytes()).sum();
        let positions_sum: usize =
            self.nodes.values().filter_map(|node| node.positions.as_ref()).map(|r| positions_bytes(r)).sum();
        self.leaves.bytes() + self.nodes.allocation_size() + children + positions_sum
    }

    #[cfg(all(test, not(lowwater_loom)))]
    pub(super) fn all_live(&self) -> impl Iterator<Item = &Memcg> {
        self.nodes.values().filter(|node| node.live).map(|node| &node.memcg).chain(self.leaves.iter())
    }

    /// Checks invariant 3 of the map for this node, for tests.
    #[cfg(all(test, not(lowwater_loom)))]
    pub(super) fn assert_valid(&self) {
        let is_known = |id| self.leaves.get(id).is_some() != self.nodes.contains_key(&id);
        let leads_to = |group: &Memcg| {
            if let Some(parent) = group.parent() {
                let parent =
                    self.nodes.get(&parent.id()).expect("the parent of a group that is known has a node (invariant 3)");
                assert!(
                    parent.children.contains(group.id().get()),
                    "its parent's node leads to {group:?} (invariant 3)"
                );
            }
        };
        self.leaves.iter().for_each(leads_to);
        for (id, node) in &self.nodes {
            assert_eq!(*id, node.memcg.id(), "a node stands under its group's id");
            assert!(
                node.live || !node.children.is_empty(),
                "group {id} has a node that leads to nothing (invariant 3)"
            );
            let mut children = Vec::new();
            node.children.collect(0..=u32::MAX, &mut children);
            for child in children {
                let id = MemcgId::new(child);
                assert!(is_known(id), "child {id} is a leaf or has a node (invariant 3)");
                assert_eq!(
                    self.memcg(id).and_then(Memcg::parent),
                    Some(&node.memcg),
                    "a child hangs under its parent's node"
                );
            }
            let turn = self.memcg(node.turn).expect("the turn is of a group that is known");
            assert!(turn.is_descendant_of(&node.memcg), "the turn {turn:?} is in the subtree of {id}");
            leads_to(&node.memcg);
        }
    }
}
