//! Creation and end of the [shards](super::super::shards) of a list.
//!
//! Numbers such as R2 are those of docs/INVARIANTS.md.
//!
//! The two directions are asymmetric: a split only adds lists, so it needs no wait; joining empties
//! lists that other threads may have found already, so each shard forwards to the list. A change
//! must keep the invariants of [`shards`](super::super::shards), above all that the list's lock is
//! held from before the slot points to the list again until the last shard is empty.
//! `mutated!("name")` leaves one step out in a model check (docs/ORDERINGS.md).

use super::super::chain::Chain;
use super::super::key::Key;
use super::super::list_lru_one::ListLruOne;
use super::super::locked::{FirstItem, LockedList};
use super::super::shards::shares::Shares;
use super::super::shards::{shards_wanted, ShardSet};
use super::super::table::{Pair, TableSlot};
use super::RawListLru;
use super::Writer;
use crate::rcu::{pin, Guard};
use crate::sync::atomic::{fence, Ordering};
use crate::{Memcg, NodeId};
use alloc::boxed::Box;
use core::ptr;

/// The number of attempts to lock a list that is to be split: the list is contended, but each add
/// holds its lock for a few instructions only.
const LIST_TRIES: u32 = if cfg!(lowwater_loom) { 1 } else { 1_000 };

impl RawListLru {
    /// Creates shards beside the list of a group on a node. Returns false if the list has shards or
    /// does not exist, if its group is dying, if there is no memory, or if the chain, the writer
    /// lock or the list's lock is taken: contending threads will trigger another attempt. Waits for
    /// no lock, as [`publish`](Self::publish).
    #[cold]
    #[inline(never)]
    pub(super) fn split(&self, memcg: &Memcg, node: NodeId, guard: &Guard) -> bool {
        let Some(Pair::ListLruOne(one)) = self.lookup(Key::new(memcg, node), guard) else { return false };
        let Some(split) = ShardSet::try_new(memcg, one, shards_wanted()) else { return false };
        let published = self.publish_shards(one, memcg, split, guard);
        published.map_err(|split| split.discard()).is_ok()
    }

    fn publish_shards(
        &self,
        one: &ListLruOne,
        memcg: &Memcg,
        split: Box<ShardSet>,
        guard: &Guard,
    ) -> Result<(), Box<ShardSet>> {
        let chain = Chain::try_lock(memcg);
        if chain.as_ref().is_none_or(|chain| chain.is_closed()) && !crate::mutated!("split_without_chain") {
            return Err(split);
        }
        let Some(mut writer) = self.writer.try_lock() else { return Err(split) };
        let (old, key) = (TableSlot::of_one(ptr::from_ref(one).cast_mut()), Key::new(memcg, one.node()));
        let table = self.table(guard).filter(|table| table.get(key) == Some(old));
        let Some(table) = table else { return Err(split) };
        // The chain is open, and this `ListLru` is in use, so it is not being dropped. So a thread
        // that unpublishes a list holds the chain until the list is out of the table. This thread
        // holds the chain, and the list is in the table, so the list is not dead.
        let tried = || {
            core::hint::spin_loop();
            one.try_lock(guard)
        };
        let Some(mut list) = (0..LIST_TRIES).find_map(|_| tried()) else { return Err(split) };
        list.begin_shards(split.shards().count());
        writer.split += 1;
        table.replace(key, old, TableSlot::of_split(Box::into_raw(split)));
        Ok(())
    }

    /// Locks a list and joins its shards, if it has some, without calling the listener. The caller
    /// holds the lock of the group's chain, or, if that is closed, its `reparenting` lock.
    pub(super) fn lock_joined<'a>(&'a self, one: &'a ListLruOne, guard: &'a Guard) -> LockedList<'a> {
        let list = one.lock(guard);
        if !list.is_split() {
            return list;
        }
        drop(list);
        let mut writer = self.writer.lock();
        let mut list = one.lock(guard);
        let FirstItem(_) = self.join_shards(&mut list, &mut writer, guard);
        list
    }

    /// Joins the shards of a list if they were little used since the last sweep and no walk is in
    /// progress. Resets the count of contended adds of a list without shards. `false`: shards
    /// remain, or the list's lock is taken.
    pub(super) fn sweep_shards(&self, one: &ListLruOne, _chain: &Chain, guard: &Guard) -> bool {
        // Only the shards' locks are waited for, while they are joined: a walk may hold another
        // list's lock while its callback waits for the chain, and no walk of the shards is in
        // progress then (invariant 3 of the shards).
        let Some(mut list) = one.try_lock(guard) else { return false };
        if !list.is_split() {
            list.forget_misses();
            return true;
        }
        drop(list);
        let Some(mut writer) = self.writer.try_lock() else { return false };
        let Some(mut list) = one.try_lock(guard) else { return false };
        let Some(Pair::ShardSet(split)) = self.lookup(list.key(), guard) else { return false };
        if !split.take_quiet(&mut list) {
            return false;
        }
        let first = self.join_shards(&mut list, &mut writer, guard);
        drop(writer);
        if !crate::mutated!("end_parts_in_silence") {
            // A shrinker that counted during the move may have seen no items, and its bit may have
            // been cleared: report the items again.
            self.announce(first, &list);
        }
        true
    }

    /// Joins the shards: moves all their items to the list, which is locked, and makes them forward
    /// to it (invariant 2 of the shards).
    fn join_shards(&self, list: &mut LockedList<'_>, writer: &mut Writer, guard: &Guard) -> FirstItem {
        let (one, key) = (list.one(), list.key());
        let slot = self.table(guard).and_then(|table| table.get(key));
        // SAFETY: `guard` keeps this thread in the read side, so the table's entries are live.
        let pair = slot.map(|slot| unsafe { slot.pair() });
        let (Some(slot), Some(Pair::ShardSet(split))) = (slot, pair) else {
            unreachable!("a list in the state `SPLIT` has shards in the table");
        };
        let whole = TableSlot::of_one(ptr::from_ref(one).cast_mut());
        let table = self.table(guard).expect("the list was found in the table");
        let late = crate::mutated!("parts_die_before_they_are_out");
        // Release: pairs with the Acquire in `sum_of_node`. A reader that finds the list in the
        // slot, which is stored with Release below, also finds the split here.
        self.ending.store(slot.split(), Ordering::Release);
        if !late {
            table.replace(key, slot, whole);
        }
        if !crate::mutated!("end_parts_without_fence") {
            // Release: orders the slot's store before the changes of the counts; pairs with the
            // Acquire in `has_ended`.
            fence(Ordering::Release);
        }
        let mut is_first = false;
        for shard in split.shards_to_join() {
            let FirstItem(first) = list.take_over(&mut shard.lock(guard));
            is_first |= first;
            // SAFETY: the reference that the split counts on the shard is given up, and the list is
            // the shard's effective list.
            unsafe { list.put(shard) };
        }
        if late {
            table.replace(key, slot, whole);
        }
        // Release: pairs with the Acquire in `sum_of_node`. A reader that finds null also sees the
        // items on the list.
        self.ending.store(ptr::null_mut(), Ordering::Release);
        list.join_shards();
        split.set_ended(list);
        writer.split -= 1;
        // SAFETY: the split came from a box, and readers that enter from now on do not find it.
        unsafe { guard.retire(slot.split()) };
        FirstItem(is_first)
    }

    /// Returns whether this set is out of the table, or was at any of the caller's preceding reads
    /// of counts. Then the counts that were read do not form one sum.
    pub(super) fn has_ended(&self, split: &ShardSet, guard: &Guard) -> bool {
        if crate::mutated!("count_without_second_look") {
            return false;
        }
        // Acquire: orders the counts before the load of the slot; pairs with the Release in
        // `join_shards`.
        fence(Ordering::Acquire);
        !matches!(self.lookup(split.key(), guard), Some(Pair::ShardSet(now)) if ptr::eq(now, split))
    }

    /// Locks one of the group's own lists by number, where 0 is the list itself and the others are
    /// shards. `None` if it does not exist, or if its items are on the parent's list by now.
    pub(in super::super) fn lock_one<'a>(
        &'a self,
        memcg: &Memcg,
        node: NodeId,
        index: usize,
        guard: &'a Guard,
    ) -> Option<LockedList<'a>> {
        let pair = self.lookup(Key::new(memcg, node), guard)?;
        let one = match pair {
            _ if index == 0 => Some(pair.whole()),
            Pair::ShardSet(split) => Some(split.list(index)),
            Pair::ListLruOne(_) => None,
        };
        if let Some(list) = one.map(|one| one.lock(guard)).filter(|list| !list.is_dead()) {
            return Some(list);
        }
        if index != 0 && !crate::mutated!("dead_part_without_waiting") {
            // The shard's items are being moved to the parent's list: wait until they are there, so
            // that the caller finds them (R2).
            drop(pair.whole().lock(guard));
        }
        None
    }
}

#[cfg(test)]
impl<T: crate::Linked> crate::ListLru<T> {
    /// Splits a list without contention. `false`: it does not exist, has shards already, or there
    /// is no memory.
    pub(in super::super) fn split_now(&self, memcg: &Memcg, node: NodeId) -> bool {
        self.raw.split(memcg, node, &pin())
    }

    /// Joins the shards of a list, if it has some and no walk is in progress, and returns whether
    /// it did.
    pub(in super::super) fn join_shards_now(&self, memcg: &Memcg, node: NodeId) -> bool {
        let guard = pin();
        let chain = Chain::lock(memcg);
        let Some(Pair::ShardSet(split)) = self.raw.lookup(Key::new(memcg, node), &guard) else { return false };
        if chain.is_closed() {
            return false;
        }
        // If more than one is used, this resets their counts of adds.
        split.take_quiet(&mut split.whole().lock(&guard));
        self.raw.sweep_shards(split.whole(), &chain, &guard)
    }

    /// Returns whether the group has a list on the node.
    #[cfg(not(lowwater_loom))]
    pub(in super::super) fn is_populated(&self, memcg: &Memcg, node: NodeId) -> bool {
        self.raw.lookup(Key::new(memcg, node), &pin()).is_some()
    }

    /// Returns the number of shards.
    pub(in super::super) fn shards(&self, memcg: &Memcg, node: NodeId) -> usize {
        self.raw.lookup(Key::new(memcg, node), &pin()).map_or(0, |pair| pair.lists().count() - 1)
    }
}

/// A round-robin walk over a list and its shards, which no sweep joins while this exists.
pub(in super::super) struct WalkRound<'a> {
    lru: &'a RawListLru,
    memcg: &'a Memcg,
    node: NodeId,
    /// The number of lists: the list itself and its shards.
    pub(in super::super) lists: usize,
    /// The number of the next list to walk; after the last turn, the number with which the next
    /// walk begins.
    next: usize,
    /// The number of items to visit of each list.
    shares: Shares,
}

impl<'a> WalkRound<'a> {
    /// Begins a walk of `nr` items over the shards. `None`: there are none.
    pub(in super::super) fn begin(lru: &'a RawListLru, memcg: &'a Memcg, node: NodeId, nr: u64) -> Option<Self> {
        let guard = pin();
        let Some(Pair::ShardSet(split)) = lru.lookup(Key::new(memcg, node), &guard) else { return None };
        let mut parts = split.parts();
        // If the shards end before the walk is registered, their items are on the list once we get
        // its lock, which is held until the move is complete.
        let (next, lists, shares) = split.begin_walk(&mut split.whole().lock(&guard), nr, &mut parts)?;
        Some(Self { lru, memcg, node, lists, next, shares })
    }

    /// Returns the index of the next list and its share of the walk, and advances.
    pub(in super::super) fn turn(&mut self) -> (usize, u64) {
        let index = self.next;
        self.next = (index + 1) % self.lists;
        (index, self.shares.get(index).copied().unwrap_or(0).into())
    }
}

impl Drop for WalkRound<'_> {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        let guard = pin();
        // If the set is out of the table, the group died.
        if let Some(Pair::ShardSet(split)) = self.lru.lookup(Key::new(self.memcg, self.node), &guard) {
            split.end_walk(&mut split.whole().lock(&guard), self.next);
        }
    }
}
