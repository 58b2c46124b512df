//! The position of a round-robin over the lists of a subtree of memcgs, on every mount.
//!
//! A cache keeps the positions in a few subtrees between charges, so that a charge which looks at
//! few lists does not always look at those of the oldest groups. A cursor keeps two memcgs alive:
//! the top of the subtree and the memcg at its position.
//!
//! A change must keep a step at O(1), whatever the numbers of memcgs and mounts.

use lowwater_base::sync::Mutex;
use lowwater_lru_core::{Descendants, Memcg};

/// Cursors that a cache keeps.
const CURSORS: usize = 8;

/// The cursors that no charge uses now, at most one for each top, the one used last at the end.
#[derive(Default)]
pub(crate) struct ReclaimCursors(Mutex<Vec<ReclaimCursor>>);

impl ReclaimCursors {
    /// Takes the cursor of `top`, so that no step runs under the lock. A concurrent charge gets
    /// another cursor, which begins at `top`.
    pub(crate) fn take(&self, top: &Memcg) -> ReclaimCursor {
        let mut kept = self.0.lock();
        let at = kept.iter().position(|cursor| cursor.top == *top);
        let cursor = at.map(|at| kept.remove(at));
        drop(kept);
        cursor.unwrap_or_else(|| ReclaimCursor::new(top))
    }

    /// Keeps a cursor in place of the one that was used longest ago, unless a concurrent charge has
    /// kept one of the same top.
    pub(crate) fn put(&self, cursor: ReclaimCursor) {
        let mut kept = self.0.lock();
        let replaced = if kept.iter().any(|other| other.top == cursor.top) {
            Some(cursor)
        } else {
            let oldest = (kept.len() == CURSORS).then(|| kept.remove(0));
            kept.push(cursor);
            oldest
        };
        // The drop of a memcg takes the lock of the tree.
        drop(kept);
        drop(replaced);
    }
}

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
    fn the_cursor_that_was_put_first_stays_until_it_is_the_oldest() {
        let tree = MemcgTree::new(1);
        let tops: Vec<_> = (0..=CURSORS).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
        let cursors = ReclaimCursors::default();
        let (mut cursor, concurrent) = (cursors.take(&tops[0]), cursors.take(&tops[0]));
        assert_eq!(cursor.step(1), Some((tops[0].clone(), 0)));
        cursors.put(cursor);
        cursors.put(concurrent);
        let mut cursor = cursors.take(&tops[0]);
        assert_eq!(cursor.step(1), None, "the position is kept");
        assert_eq!(cursor.step(1), Some((tops[0].clone(), 0)));
        cursors.put(cursor);
        tops[1..].iter().for_each(|top| cursors.put(cursors.take(top)));
        assert_eq!(cursors.take(&tops[0]).step(1), Some((tops[0].clone(), 0)), "it was replaced");
        assert_eq!(cursors.0.lock().len(), CURSORS);
    }

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
