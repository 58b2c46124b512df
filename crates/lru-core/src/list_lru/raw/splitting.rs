//! How a list comes to its [parts](super::super::split), and how they end.

use super::super::chain::Chain;
use super::super::key::Key;
use super::super::list_lru_one::ListLruOne;
use super::super::locked::{FirstItem, LockedList};
use super::super::shards::parts_wanted;
use super::super::shards::ShardSet;
use super::super::table::{Pair, TableSlot};
use super::RawListLru;
use super::Writer;
use crate::rcu::{pin, Guard};
use crate::sync::atomic::{fence, Ordering};
use crate::{Memcg, NodeId};
use alloc::boxed::Box;
use core::ptr;

impl RawListLru {
    /// Makes parts beside the list of a group on a node, unless there are; not when there is no memory, nor when somebody has
    /// what it takes: threads that contend will be back. Waits for nothing but the list, which an add waits for anyway.
    #[cold]
    #[inline(never)]
    pub(super) fn split(&self, memcg: &Memcg, node: NodeId, guard: &Guard) -> bool {
        let Some(Pair::ListLruOne(one)) = self.lookup(Key::new(memcg, node), guard) else { return false };
        let Some(split) = ShardSet::try_new(memcg, one, parts_wanted()) else { return false };
        let published = self.publish_parts(one, memcg, split, guard);
        published.map_err(|split| split.discard()).is_ok()
    }

    fn publish_parts(
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
        // Whoever unmakes a list holds the chain until it is out of the table: so this is not dead.
        let mut list = one.lock(guard);
        list.begin_parts(split.parts().count());
        writer.split += 1;
        table.replace(key, old, TableSlot::of_split(Box::into_raw(split)));
        Ok(())
    }

    /// Locks a list whose parts, if it has some, end here; nobody is told of it. The lock of its group's chain is held.
    pub(super) fn lock_without_parts<'a>(&'a self, one: &'a ListLruOne, guard: &'a Guard) -> LockedList<'a> {
        let list = one.lock(guard);
        if !list.is_split() {
            return list;
        }
        drop(list);
        let mut writer = self.writer.lock();
        let mut list = one.lock(guard);
        let FirstItem(_) = self.end_parts(&mut list, &mut writer, guard);
        list
    }

    /// Ends the parts of a list if they are not worth having any more. `false`: there still are some. The chain is locked.
    pub(super) fn sweep_parts(&self, one: &ListLruOne, _chain: &Chain, guard: &Guard) -> bool {
        // Not to wait: a walk may have it, whose callback waits for the chain.
        let Some(mut list) = one.try_lock(guard) else { return false };
        if !list.is_split() {
            list.forget_misses();
            return true;
        }
        drop(list);
        let mut writer = self.writer.lock();
        let Some(mut list) = one.try_lock(guard) else { return false };
        let Some(Pair::ShardSet(split)) = self.lookup(list.key(), guard) else { return false };
        if !split.is_quiet(&mut list) {
            return false;
        }
        let first = self.end_parts(&mut list, &mut writer, guard);
        drop(writer);
        if !crate::mutated!("end_parts_in_silence") {
            // Who counted in the middle of it may have seen nothing, and have forgotten us.
            self.announce(first, &list);
        }
        true
    }

    /// Ends the parts: all they hold goes to the list, which is locked, and they forward there (invariant 2 of the parts).
    fn end_parts(&self, list: &mut LockedList<'_>, writer: &mut Writer, guard: &Guard) -> FirstItem {
        let (one, key) = (list.one(), list.key());
        let slot = self.table(guard).and_then(|table| table.get(key));
        // SAFETY: we are in the read side.
        let pair = slot.map(|slot| unsafe { slot.pair() });
        let (Some(slot), Some(Pair::ShardSet(split))) = (slot, pair) else {
            unreachable!("a list whose state says so has parts in the table");
        };
        let whole = TableSlot::of_one(ptr::from_ref(one).cast_mut());
        let table = self.table(guard).expect("it was found in there");
        let late = crate::mutated!("parts_die_before_they_are_out");
        // Release: meets the Acquire in `sum_of_node`. A reader that finds the list in the slot,
        // which is stored with Release after this, finds the split here.
        self.ending.store(slot.split(), Ordering::Release);
        if !late {
            table.replace(key, slot, whole);
        }
        if !crate::mutated!("end_parts_without_fence") {
            // Release: between the slot and the counts; meets the Acquire in `has_ended`.
            fence(Ordering::Release);
        }
        let mut is_first = false;
        for part in split.parts() {
            let FirstItem(first) = list.take_over(&mut part.lock(guard));
            is_first |= first;
            // SAFETY: the split's reference is given up, and this is the effective list.
            unsafe { list.put(part) };
        }
        if late {
            table.replace(key, slot, whole);
        }
        // Release: meets the Acquire in `sum_of_node`: a reader that finds null finds the moves,
        // too.
        self.ending.store(ptr::null_mut(), Ordering::Release);
        list.end_parts();
        split.set_ended(list);
        writer.split -= 1;
        // SAFETY: it came from a box, and readers that enter from now on do not find it.
        unsafe { guard.retire(slot.split()) };
        FirstItem(is_first)
    }

    /// Is this split out of the table, or was it when any of the counts was read that were read before? Then they are not one sum.
    pub(super) fn has_ended(&self, split: &ShardSet, guard: &Guard) -> bool {
        if crate::mutated!("count_without_second_look") {
            return false;
        }
        // Acquire: between the counts and the slot; meets the Release in `end_parts`.
        fence(Ordering::Acquire);
        !matches!(self.lookup(split.key(), guard), Some(Pair::ShardSet(now)) if ptr::eq(now, split))
    }

    /// One of the group's own lists, locked: by number, of which 0 is the list itself. `None` if there is none, or if its items
    /// are the parent's by now.
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
            // Its items are on their way to the parent's list: they shall be there when the caller looks (R2).
            drop(pair.whole().lock(guard));
        }
        None
    }
}

#[cfg(test)]
impl<T: crate::Linked> crate::ListLru<T> {
    /// Splits a list now, without anybody who contends for it. `false`: there is none, it has parts, or there is no memory.
    pub(in super::super) fn split_now(&self, memcg: &Memcg, node: NodeId) -> bool {
        self.raw.split(memcg, node, &pin())
    }

    /// Ends the parts of a list now, if it has some and no walk goes round, and tells whether.
    pub(in super::super) fn end_parts_now(&self, memcg: &Memcg, node: NodeId) -> bool {
        let guard = pin();
        let chain = Chain::lock(memcg);
        let Some(Pair::ShardSet(split)) = self.raw.lookup(Key::new(memcg, node), &guard) else { return false };
        if chain.is_closed() {
            return false;
        }
        let calm = |split: &ShardSet| split.is_quiet(&mut split.whole().lock(&guard));
        // What was counted since the last sweep is forgotten.
        calm(split);
        self.raw.sweep_parts(split.whole(), &chain, &guard)
    }

    /// Is there a list?
    #[cfg(not(lowwater_loom))]
    pub(in super::super) fn is_populated(&self, memcg: &Memcg, node: NodeId) -> bool {
        self.raw.lookup(Key::new(memcg, node), &pin()).is_some()
    }

    /// How many parts there are.
    pub(in super::super) fn parts(&self, memcg: &Memcg, node: NodeId) -> usize {
        self.raw.lookup(Key::new(memcg, node), &pin()).map_or(0, |pair| pair.lists().count() - 1)
    }
}

/// A walk that goes round a list and its parts, which stay while this is there.
pub(in super::super) struct WalkRound<'a> {
    lru: &'a RawListLru,
    memcg: &'a Memcg,
    node: NodeId,
    /// How many lists there are.
    pub(in super::super) lists: usize,
    /// The number of the list to go on with, or that the next walk begins with.
    pub(in super::super) next: usize,
    /// How many items there were on all of them.
    pub(in super::super) items: u64,
}

impl<'a> WalkRound<'a> {
    /// `None`: there are no parts.
    pub(in super::super) fn begin(lru: &'a RawListLru, memcg: &'a Memcg, node: NodeId) -> Option<Self> {
        let guard = pin();
        let Some(Pair::ShardSet(split)) = lru.lookup(Key::new(memcg, node), &guard) else { return None };
        // If they end before we are in, their items are on the list when we come to that: it is locked until then.
        let (next, lists) = split.begin_round(&mut split.whole().lock(&guard))?;
        Some(Self { lru, memcg, node, lists, next, items: split.nr_items() })
    }

    /// How many items are on the next list, and its number.
    pub(in super::super) fn turn(&mut self) -> (usize, u64) {
        let guard = pin();
        let index = self.next;
        self.next = (index + 1) % self.lists;
        let items = match self.lru.lookup(Key::new(self.memcg, self.node), &guard) {
            Some(Pair::ShardSet(split)) => split.list(index).nr_items().into(),
            _ => 0, // The group died.
        };
        (index, items)
    }
}

impl Drop for WalkRound<'_> {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        let guard = pin();
        // If it is not there any more, the group died.
        if let Some(Pair::ShardSet(split)) = self.lru.lookup(Key::new(self.memcg, self.node), &guard) {
            split.end_round(&mut split.whole().lock(&guard), self.next);
        }
    }
}
