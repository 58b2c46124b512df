//! The ways down from a group to the groups below it that hold something, on one node.
//!
//! Locked only when a group goes from holding nothing to holding something, or back, and by a pass for each batch of groups:
//! never by an `add` whose group holds something already.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem::size_of;
use core::ops::Bound;

use hashbrown::HashMap;
use lowwater_lru_core::{Memcg, MemcgId};

use crate::hash::{shrink_after_removal, IdHasher};

/// Where a group stands in the order of a pass: the ids from below the pass's root down to it; the root itself has none.
/// Comparing two as lists gives pre-order. It stays meaningful when the group is gone.
pub(crate) type Path = Vec<MemcgId>;

/// Up to where a round has come: to this group, and in it to this shrinker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) path: Path,
    pub(crate) id: u32,
}

/// Who goes round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// A pass.
    Pass = 0,
    /// Threads that reclaim for themselves.
    Direct = 1,
}

/// All ways on one node.
#[derive(Default)]
pub(crate) struct Summary {
    ways: HashMap<MemcgId, Way, IdHasher>,
}

/// A group on the way to something.
struct Way {
    memcg: Memcg,
    /// Does it hold something itself?
    live: bool,
    /// Children that have a way.
    children: BTreeSet<MemcgId>,
    /// Where rounds that start at this group stopped; of most groups none ever starts.
    resume: Option<Box<[Option<Position>; 2]>>,
}

fn resume_bytes(resume: &[Option<Position>; 2]) -> usize {
    let paths = resume.iter().flatten().map(|position| position.path.capacity() * size_of::<MemcgId>());
    size_of_val(resume) + paths.sum::<usize>()
}

/// Groups found live, with their paths.
pub(crate) type Found = (Memcg, Path);

impl Summary {
    /// The group holds something now: its way is made, up to the first ancestor that has one. O(depth) at most.
    pub(super) fn link(&mut self, memcg: &Memcg) {
        let mut below = None;
        let mut at = Some(memcg);
        while let Some(group) = at {
            let mut known = true;
            let way = self.ways.entry(group.id()).or_insert_with(|| {
                known = false;
                Way { memcg: group.clone(), live: false, children: BTreeSet::new(), resume: None }
            });
            match below {
                None => way.live = true,
                Some(child) => {
                    way.children.insert(child);
                }
            }
            if known {
                return;
            }
            below = Some(group.id());
            at = group.parent();
        }
    }

    /// The group holds nothing any more: its way goes, and those above that led only to it. O(depth) at most.
    ///
    /// The caller holds a handle on `memcg` until the lock is given back, so no handle that is dropped here is the last:
    /// `memcg` keeps its ancestors.
    pub(super) fn unlink(&mut self, memcg: &Memcg) {
        let mut gone = None;
        let mut at = Some(memcg);
        while let Some(group) = at {
            let Some(way) = self.ways.get_mut(&group.id()) else { return };
            match gone {
                None => way.live = false,
                Some(child) => {
                    way.children.remove(&child);
                }
            }
            if way.live || !way.children.is_empty() {
                return;
            }
            self.ways.remove(&group.id());
            shrink_after_removal(&mut self.ways);
            gone = Some(group.id());
            at = group.parent();
        }
    }

    /// Adds up to `max` live groups of `root`'s subtree to `found`, in pre-order: those after `after` (all if `None`), and
    /// before `until`. O(depth) a group.
    pub(crate) fn collect(
        &self,
        root: MemcgId,
        after: Option<&[MemcgId]>,
        until: Option<&[MemcgId]>,
        max: usize,
        found: &mut Vec<Found>,
    ) {
        let Some(way) = self.ways.get(&root) else { return };
        let mut path: Path = after.map_or_else(Vec::new, <[_]>::to_vec);
        if after.is_none() && until != Some(&[]) && way.live {
            found.push((way.memcg.clone(), Vec::new()));
        }
        // The child last seen below the end of `path`; none yet, or the first step of `after` that does not lead on any more
        // (the group is gone, and its id may mean another by now).
        let there = self.there(root, &path);
        let mut seen = path.drain(there..).next();
        while found.len() < max {
            let parent = path.last().copied().unwrap_or(root);
            let next = self.ways.get(&parent).and_then(|way| match seen {
                None => way.children.first(),
                Some(child) => way.children.range((Bound::Excluded(child), Bound::Unbounded)).next(),
            });
            match next {
                Some(child) => {
                    path.push(*child);
                    seen = None;
                    if until.is_some_and(|until| path.as_slice() >= until) {
                        return;
                    }
                    let way = &self.ways[child];
                    if way.live {
                        found.push((way.memcg.clone(), path.clone()));
                    }
                }
                None => match path.pop() {
                    Some(last) => seen = Some(last),
                    None => return,
                },
            }
        }
    }

    /// The group at `path` below `root`, if it is live.
    pub(crate) fn find(&self, root: MemcgId, path: &[MemcgId]) -> Option<Memcg> {
        if self.there(root, path) < path.len() {
            return None;
        }
        let way = self.ways.get(path.last().unwrap_or(&root))?;
        way.live.then(|| way.memcg.clone())
    }

    /// How many steps of `path` still lead down from `root`.
    fn there(&self, root: MemcgId, path: &[MemcgId]) -> usize {
        let mut parent = root;
        path.iter()
            .take_while(|child| {
                let leads = self.ways.get(&parent).is_some_and(|way| way.children.contains(child));
                parent = **child;
                leads
            })
            .count()
    }

    /// Where rounds from `root` stopped.
    pub(crate) fn resume(&self, root: MemcgId, who: Resume) -> Option<Position> {
        self.ways.get(&root)?.resume.as_ref()?[who as usize].clone()
    }

    /// Notes where a round from `root` stopped. Forgotten when the subtree is empty.
    pub(crate) fn set_resume(&mut self, root: MemcgId, who: Resume, position: Option<Position>) {
        if let Some(way) = self.ways.get_mut(&root) {
            if position.is_some() || way.resume.is_some() {
                let resume = way.resume.get_or_insert_default();
                resume[who as usize] = position;
                if resume.iter().all(Option::is_none) {
                    way.resume = None;
                }
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        // A B-tree's leaf holds eleven keys and is half full at worst.
        let children: usize =
            self.ways.values().map(|way| way.children.len().div_ceil(5) * 11 * size_of::<MemcgId>()).sum();
        let resumes: usize = self.ways.values().filter_map(|way| way.resume.as_ref()).map(|r| resume_bytes(r)).sum();
        self.ways.allocation_size() + children + resumes
    }

    #[cfg(all(test, not(lowwater_loom)))]
    pub(super) fn live(&self) -> impl Iterator<Item = &Memcg> {
        self.ways.values().filter(|way| way.live).map(|way| &way.memcg)
    }

    #[cfg(all(test, not(lowwater_loom)))]
    pub(super) fn assert_valid(&self) {
        for (id, way) in &self.ways {
            assert_eq!(*id, way.memcg.id(), "a way stands under its group's id");
            assert!(way.live || !way.children.is_empty(), "group {id} has a way that leads to nothing (invariant 3)");
            for child in &way.children {
                let child = self.ways.get(child).expect("a child's way exists (invariant 3)");
                assert_eq!(child.memcg.parent(), Some(&way.memcg), "a child's way hangs under its parent's");
            }
            if let Some(parent) = way.memcg.parent() {
                let parent = self.ways.get(&parent.id()).expect("the parent of a way has a way (invariant 3)");
                assert!(parent.children.contains(id), "the parent's way leads to group {id} (invariant 3)");
            }
        }
    }
}
