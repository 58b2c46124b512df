//! Counts of items, groups and bytes.

use super::super::key::Key;
use super::super::list_lru_one::ListLruOne;
use super::super::shards::ShardSet;
use super::super::table::{Pair, TableRef};
use super::RawListLru;
use crate::rcu::{pin, Guard};
use crate::sync::atomic::{fence, Ordering};
use crate::{Memcg, NodeId};
use alloc::vec::Vec;

impl RawListLru {
    /// How many items the group's own list holds.
    pub(in super::super) fn count_one(&self, memcg: &Memcg, node: NodeId) -> u64 {
        let guard = pin();
        let key = Key::new(memcg, node);
        loop {
            match self.lookup(key, &guard) {
                None => return 0,
                Some(Pair::ListLruOne(one)) => return one.nr_items().into(),
                Some(Pair::ShardSet(split)) => {
                    let n = split.nr_items();
                    if !self.has_ended(split, &guard) {
                        return n;
                    }
                }
            }
        }
    }

    /// How many items there are on a node. Items that go from one list to another meanwhile may be
    /// counted more than once, and are not missed (R11).
    ///
    /// ```text
    ///     items go over              a count
    ///       to: count up               moves
    ///       moves + 1                  each list, each part
    ///       from: count down           moves: another? again
    /// ```
    ///
    /// If a count misses items that left a list, they left it after the first load of `moves`: else
    /// that load would have made their new list's count visible. Then the second load sees the
    /// move.
    pub(in super::super) fn count_node(&self, node: NodeId) -> u64 {
        let guard = pin();
        // Lock-free: a repetition means that a group's end, or the end of parts, got on.
        loop {
            // Acquire: meets the Release in `note_move`, so that the lists are seen with the items
            // of all moves up to this one.
            let moves = self.head.moves.load(Ordering::Acquire);
            let n = self.sum_of_node(node, &guard);
            // Acquire: between the counts and `moves`; meets the Release fence in `note_move`.
            fence(Ordering::Acquire);
            // Relaxed: ordered by the fence.
            if self.head.moves.load(Ordering::Relaxed) == moves || crate::mutated!("count_node_once") {
                return n;
            }
        }
    }

    fn sum_of_node(&self, node: NodeId, guard: &Guard) -> u64 {
        let Some(table) = self.table(guard) else { return 0 };
        // SAFETY: we are in the read side.
        let pairs = table.iter().map(|slot| unsafe { slot.pair() });
        let sum: u64 = pairs.filter(|pair| pair.whole().node() == node).map(Pair::nr_items).sum();
        // Acquire: meets the Release in `end_parts` either way: the split is seen as it was made;
        // or null, and the moves of its end.
        let ending = self.ending.load(Ordering::Acquire);
        // SAFETY: `end_parts` stores null before it retires the split, and we are in the read side.
        match unsafe { ending.as_ref() } {
            Some(split) if split.key().node == node && !crate::mutated!("ending_parts_uncounted") => {
                sum + split.parts().map(|part| u64::from(part.nr_items())).sum::<u64>()
            }
            _ => sum,
        }
    }

    /// The groups that have a list on a node; as far as there is memory for them, which is asked for without the lock.
    pub(in super::super) fn groups_on(&self, node: NodeId) -> Vec<Memcg> {
        let mut groups = Vec::new();
        loop {
            let all = self.pairs();
            let mut room = all;
            while groups.try_reserve_exact(room).is_err() {
                room /= 2;
            }
            // Before the lock: values that waited for their readers may be dropped where the guard
            // ends.
            let guard = pin();
            let writer = self.writer.lock();
            if room == all && groups.capacity() < writer.live as usize {
                continue; // Some have come meanwhile.
            }
            let on_node = self.wholes(&guard).filter(|one| one.node() == node).take(groups.capacity());
            // SAFETY: the writer lock is held, and `one` is in the table.
            groups.extend(on_node.map(|one| unsafe { one.memcg_of_published() }.clone()));
            return groups;
        }
    }

    /// Bytes of what this keeps beyond itself: lists and table.
    pub(in super::super) fn bytes(&self) -> usize {
        let guard = pin();
        let writer = self.writer.lock();
        let parts = match writer.split {
            0 => 0,
            _ => self.splits(&guard).map(ShardSet::bytes).sum(),
        };
        writer.live as usize * size_of::<ListLruOne>() + self.table(&guard).map_or(0, TableRef::bytes) + parts
    }

    /// How many (group, node) lists exist.
    pub(in super::super) fn pairs(&self) -> usize {
        self.writer.lock().live as usize
    }

    // === finding and locking ===
}
