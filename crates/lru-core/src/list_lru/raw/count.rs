//! Counts of items, groups and bytes.
//!
//! Numbers such as R11 are those of docs/INVARIANTS.md.
//!
//! No count takes a list's lock, since shrinkers ask often and for all groups. A change must ensure
//! that a group's count never exceeds its items (L2), and that a node's is never below the items
//! that were there throughout (L3, R11): after a count of 0 the shrinker is not called again until
//! a list reports items. `mutated!("name")` leaves one step out in a model check
//! (docs/ORDERINGS.md).

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
    /// Returns the number of items on the group's own list and its shards.
    #[inline]
    pub(in super::super) fn count_one(&self, memcg: &Memcg, node: NodeId, guard: &Guard) -> u64 {
        match self.lookup(Key::new(memcg, node), guard) {
            None => 0,
            Some(Pair::ListLruOne(one)) => one.nr_items().into(),
            Some(Pair::ShardSet(split)) => self.count_split(split, guard),
        }
    }

    /// The rest of [`count_one`](Self::count_one), for a split list.
    #[cold]
    #[inline(never)]
    fn count_split<'a>(&'a self, mut split: &'a ShardSet, guard: &'a Guard) -> u64 {
        loop {
            let n = split.nr_items();
            if !self.has_ended(split, guard) {
                return n;
            }
            split = match self.lookup(split.key(), guard) {
                None => return 0,
                Some(Pair::ListLruOne(one)) => return one.nr_items().into(),
                Some(Pair::ShardSet(next)) => next,
            };
        }
    }

    /// Returns the number of items on a node. Items that move between lists meanwhile may be
    /// counted more than once, but are not missed (R11).
    ///
    /// ```text
    ///     a move of items            a count
    ///       raise the target's count   load `moves`
    ///       moves + 1                  add up all lists and shards
    ///       lower the source's count   load `moves` again: changed? start over
    /// ```
    ///
    /// If the sum misses moved items in both lists, they left the source after the first load of
    /// `moves`: otherwise that load would have made the target's raised count visible. Then the
    /// second load sees the move.
    pub(in super::super) fn count_node(&self, node: NodeId) -> u64 {
        let guard = pin();
        // Lock-free: a repetition means that the offline of a group, or the joining of shards, made
        // progress.
        loop {
            // Acquire: pairs with the Release in `note_move`, so that the raised counts of all
            // moves up to this one are visible.
            let moves = self.head.moves.load(Ordering::Acquire);
            let n = self.sum_of_node(node, &guard);
            // Acquire: orders the counts before the second load of `moves`; pairs with the Release
            // fence in `note_move`.
            fence(Ordering::Acquire);
            // Relaxed: ordered by the fence above.
            if self.head.moves.load(Ordering::Relaxed) == moves || crate::mutated!("count_node_once") {
                return n;
            }
        }
    }

    fn sum_of_node(&self, node: NodeId, guard: &Guard) -> u64 {
        let Some(table) = self.table(guard) else { return 0 };
        // SAFETY: `guard` keeps this thread in the read side, so the table's entries are live.
        let pairs = table.iter().map(|slot| unsafe { slot.pair() });
        let sum: u64 = pairs.filter(|pair| pair.whole().node() == node).map(Pair::nr_items).sum();
        // Acquire: pairs with both Releases in `join_shards`. If the set is loaded, its contents
        // are visible; if null, the moves from the shards are.
        let ending = self.ending.load(Ordering::Acquire);
        // SAFETY: `join_shards` stores null before it retires the set, and `guard` keeps this
        // thread in the read side.
        match unsafe { ending.as_ref() } {
            Some(split) if split.key().node == node && !crate::mutated!("ending_parts_uncounted") => {
                sum + split.shards().map(|shard| u64::from(shard.nr_items())).sum::<u64>()
            }
            _ => sum,
        }
    }

    /// Returns the groups that have a list on a node, or as many of them as there is memory for.
    /// Allocates outside the writer lock.
    pub(in super::super) fn groups_on(&self, node: NodeId) -> Vec<Memcg> {
        let mut groups = Vec::new();
        loop {
            let all = self.pairs();
            let mut room = all;
            while groups.try_reserve_exact(room).is_err() {
                room /= 2;
            }
            // Pinned before the lock, so that the lock is released first: the end of the guard may
            // run destructors of retired values.
            let guard = pin();
            let writer = self.writer.lock();
            if room == all && groups.capacity() < writer.live as usize {
                continue; // More lists were created meanwhile.
            }
            let on_node = self.wholes(&guard).filter(|one| one.node() == node).take(groups.capacity());
            // SAFETY: the writer lock is held, and `one` is in the table.
            groups.extend(on_node.map(|one| unsafe { one.memcg_of_published() }.clone()));
            return groups;
        }
    }

    /// Returns the bytes of the lists, the shards and the table.
    pub(in super::super) fn bytes(&self) -> usize {
        let guard = pin();
        let writer = self.writer.lock();
        let shards = match writer.split {
            0 => 0,
            _ => self.splits(&guard).map(ShardSet::bytes).sum(),
        };
        writer.live as usize * size_of::<ListLruOne>() + self.table(&guard).map_or(0, TableRef::bytes) + shards
    }

    /// Returns the number of (group, node) lists.
    pub(in super::super) fn pairs(&self) -> usize {
        self.writer.lock().live as usize
    }
}
