//! The position of a round-robin over the lists of a subtree of memcgs, on every mount.
//!
//! The cursor keeps its position between two charges, so that a charge which looks at few lists
//! does not always look at those of the oldest groups. It keeps two memcgs alive: the top of the
//! subtree and the memcg at its position.
//!
//! A change must keep a step at O(1), whatever the numbers of memcgs and mounts.

use lowwater_lru_core::{Descendants, Memcg};

/// A position among the pairs of a memcg, at or below `top`, and the id of a superblock.
pub(crate) struct ReclaimCursor {
    top: Memcg,
    groups: Descendants,
    /// The memcg and the superblock that are next; `None` before the first step.
    next: Option<(Memcg, usize)>,
}

impl ReclaimCursor {
    pub(crate) fn new(top: &Memcg) -> Self {
        Self { top: top.clone(), groups: top.descendants(), next: None }
    }

    pub(crate) fn top(&self) -> &Memcg {
        &self.top
    }

    /// Returns the next pair of a memcg and an id below `mounts`; `None` after the last pair of a
    /// round, and always if `top` has ended. The step that follows begins a new round.
    #[doc(alias = "mem_cgroup_iter")]
    pub(crate) fn step(&mut self, mounts: usize) -> Option<(Memcg, usize)> {
        let (memcg, mount) = match self.next.take().filter(|&(_, mount)| mount < mounts) {
            Some(next) => next,
            None => (self.next_group()?, 0),
        };
        self.next = Some((memcg.clone(), mount + 1));
        Some((memcg, mount))
    }

    fn next_group(&mut self) -> Option<Memcg> {
        let next = self.groups.next();
        if next.is_none() {
            self.groups = self.top.descendants();
        }
        next
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use lowwater_lru_core::MemcgTree;

    #[test]
    fn a_round_visits_each_group_of_each_mount() {
        let tree = MemcgTree::new(1);
        let top = tree.root().create("top").unwrap();
        let groups = [top.clone(), top.create("a").unwrap(), top.create("b").unwrap()];
        let mut cursor = ReclaimCursor::new(&top);
        for _ in 0..2 {
            for (group, mount) in groups.iter().flat_map(|group| [(group, 0), (group, 1)]) {
                assert_eq!(cursor.step(2), Some((group.clone(), mount)));
            }
            assert_eq!(cursor.step(2), None, "the round ends");
        }
        assert_eq!(cursor.step(0), Some((top.clone(), 0)), "a mount is gone");
        groups[1..].iter().for_each(|group| group.offline().unwrap());
        for _ in 0..2 {
            assert_eq!(cursor.step(1), None);
            assert_eq!(cursor.step(1), Some((top.clone(), 0)));
        }
        top.offline().unwrap();
        assert_eq!(cursor.step(1), None);
    }
}
