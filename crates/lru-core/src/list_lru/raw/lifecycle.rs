//! The lifecycle of lists: creation from the root downwards, replacement of the table, reparenting,
//! sweep and drop.
//!
//! Numbers such as L6 are those of docs/INVARIANTS.md.
//!
//! A list is published while it is in the table, where lookups find it.
//!
//! A change must keep the lock order in [`raw`](super), that a list is published only after its
//! parent's (L6), and that a dead list leaves the table before its memory is retired.
//! `mutated!("name")` leaves one step out in a model check (docs/ORDERINGS.md).

use super::super::chain::Chain;
use super::super::key::Key;
use super::super::list_lru_one::ListLruOne;
use super::super::lists_head::ListsHead;
use super::super::locked::{FirstItem, Idleness};
use super::super::occupancy::Occupancy;
use super::super::refusable::try_box;
use super::super::table::{ListTable, TableRef, TableSlot};
use super::RawListLru;
use super::{Unpopulated, Writer};
use crate::list::{Hook, LinkLayout, LinkNode};
use crate::memcg::attached;
use crate::rcu::{pin, Guard};
use crate::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard};
use crate::unwind::{to_the_end, AtEnd};
use crate::{Memcg, NodeId};
use alloc::boxed::Box;
use core::ptr;

impl RawListLru {
    /// Creates the structure, without lists.
    pub(in super::super) fn new(occupancy: Option<Arc<dyn Occupancy>>, layout: &'static LinkLayout) -> Self {
        attached::install(reparent_group);
        Self {
            head: ListsHead { layout, moves: AtomicU32::new(0) },
            table: AtomicPtr::new(ptr::null_mut()),
            writer: Mutex::new(Writer { live: 0, used: 0, split: 0 }),
            ending: AtomicPtr::new(ptr::null_mut()),
            occupancy,
        }
    }

    /// Creates the lists of a group and of its ancestors, the ancestors' first (L6).
    #[cold]
    pub(super) fn populate(&self, memcg: &Memcg, node: NodeId, guard: &Guard) -> Result<(), Unpopulated> {
        let populated = self.populate_from_above(memcg, node, guard);
        if populated.is_err() {
            // Free a table that was allocated for a list that was not created.
            let writer = self.writer.lock();
            if writer.live == 0 {
                self.replace_table(ptr::null_mut(), guard);
            }
        }
        populated
    }

    fn populate_from_above(&self, memcg: &Memcg, node: NodeId, guard: &Guard) -> Result<(), Unpopulated> {
        loop {
            let mut farthest = memcg;
            while let Some(parent) = farthest.parent() {
                if self.lookup(Key::new(parent, node), guard).is_some() {
                    break;
                }
                farthest = parent;
            }
            let published = self.publish(farthest, node, guard)?;
            if published && farthest == memcg {
                return Ok(());
            }
        }
    }

    /// Creates one list, unless it exists. Returns false if the parent's list does not exist (any
    /// more). Allocates outside the locks.
    fn publish(&self, memcg: &Memcg, node: NodeId, guard: &Guard) -> Result<bool, Unpopulated> {
        let key = Key::new(memcg, node);
        let mut one = Some(try_box(ListLruOne::new(memcg, node, self.as_owner())).ok_or(Unpopulated::NoMemory)?);
        loop {
            {
                // INVARIANT: the holder of a chain waits for no further lock (except in an owner's
                // drop, see `raw.rs`): the caller of another publication may be a listener or a
                // walk's callback, which holds a list's lock and waits for the chain. If a further
                // lock is taken, this thread releases its own, waits until that one is free, and
                // starts again. It does not spin, so that a holder of lower priority can run.
                let mut chain = Chain::lock(memcg);
                if chain.is_closed() && !crate::mutated!("populate_without_dying_check") {
                    return Err(Unpopulated::Closed);
                }
                if self.lookup(key, guard).is_some() {
                    return Ok(true);
                }
                let Some(mut writer) = self.writer.try_lock() else {
                    drop(chain);
                    drop(self.writer.lock());
                    continue;
                };
                if let Some(table) = self.table(guard).filter(|t| writer.has_room(*t)) {
                    if let Some(parent) = memcg.parent() {
                        // The chain is open, so the parent does not die before we are done; and the
                        // writer lock excludes sweeps. So the list in the table is not dead.
                        match self.whole(Key::new(parent, node), guard) {
                            Some(parent) => {
                                let Some(mut list) = parent.try_lock(guard) else {
                                    drop((chain, writer));
                                    drop(parent.lock(guard));
                                    continue;
                                };
                                list.get();
                            }
                            None if crate::mutated!("populate_without_parent") => {}
                            None => return Ok(false),
                        }
                    }
                    let one = Box::into_raw(one.take().expect("published once"));
                    // `retire_released` recovers this provenance.
                    one.expose_provenance();
                    // SAFETY: `one` is new, on no chain and not dead; it stays live until it is
                    // unpublished, and is taken off the chain before that.
                    unsafe { chain.push(one) };
                    table.insert(key, TableSlot::of_one(one), &mut writer.used);
                    writer.live += 1;
                    return Ok(true);
                }
            }
            self.make_room(|| Some(self.writer.lock()), guard)?;
        }
    }

    /// Replaces the table by one with room for at least one more list, sized to the number of
    /// lists. `lock` locks the writer lock; the table keeps its size if it returns `None`.
    fn make_room<'a>(
        &'a self,
        lock: impl Fn() -> Option<MutexGuard<'a, Writer>>,
        guard: &Guard,
    ) -> Result<(), Unpopulated> {
        let Some(writer) = lock() else { return Ok(()) };
        let needed = writer.capacity_needed().ok_or(Unpopulated::NoMemory)?;
        drop(writer);
        let new = ListTable::try_new(needed).ok_or(Unpopulated::NoMemory)?;
        // SAFETY: `new` comes from `try_new`, and is freed only by this function or, after
        // publication, once readers have left.
        let table = unsafe { TableRef::of(new) };
        // Lists may have been added meanwhile, and `new` may be too small: `publish` repeats.
        let is_enough =
            |writer: &MutexGuard<'_, Writer>| writer.capacity_needed().is_some_and(|needed| needed <= table.capacity());
        let Some(mut writer) = lock().filter(is_enough) else {
            ListTable::discard(new);
            return Ok(());
        };
        let mut used = 0;
        for entry in self.table(guard).iter().flat_map(|old| old.iter()) {
            // SAFETY: `guard` keeps this thread in the read side, so the table's entries are live.
            let one = unsafe { entry.pair() }.whole();
            // SAFETY: the writer lock is held, and `one` is in the table.
            table.insert(unsafe { one.key_of_published() }, entry, &mut used);
        }
        writer.used = used;
        self.replace_table(new.as_ptr(), guard);
        Ok(())
    }

    /// Publishes a new table and retires the old one. The caller holds the writer lock.
    fn replace_table(&self, new: *mut ListTable, guard: &Guard) {
        // Release: pairs with the Acquire in `table`. Acquire: the old table that is retired was
        // published by another thread.
        let ordering = if crate::mutated!("table_relaxed") { Ordering::Relaxed } else { Ordering::AcqRel };
        let old = self.table.swap(new, ordering);
        if !old.is_null() {
            // SAFETY: it came from `try_new`, and readers that enter from now on find the new
            // table.
            unsafe { guard.retire(old) };
        }
    }

    /// Takes a dead list out of the table, and gives up the table's reference, all under the writer
    /// lock: once that is released, this function does not access the structure any more, which may
    /// then be dropped.
    fn unpublish(&self, one: &ListLruOne, guard: &Guard) {
        let mut writer = self.writer.lock();
        self.remove_from_table(one, &mut writer, guard);
        Self::put_of_table(one, &writer, guard);
    }

    fn remove_from_table(&self, one: &ListLruOne, writer: &mut Writer, guard: &Guard) {
        if let Some(table) = self.table(guard) {
            // SAFETY: `one` is in the table, and `writer` is borrowed from the writer lock's guard,
            // so the lock is held.
            table.remove(unsafe { one.key_of_published() }, TableSlot::of_one(ptr::from_ref(one).cast_mut()));
        }
        writer.live -= 1;
        if writer.live == 0 {
            writer.used = 0;
            self.replace_table(ptr::null_mut(), guard);
        }
    }

    /// Gives up the table's reference on a list that was taken out. The writer lock is held.
    fn put_of_table(one: &ListLruOne, _writer: &MutexGuard<'_, Writer>, guard: &Guard) {
        let mut list = Self::lock_effective_of(one, guard);
        // SAFETY: the table's reference is given up, once, and this is the effective list.
        unsafe { list.put(one) };
    }

    /// Hands the items of a dying group's list to its parent's list, and unpublishes it. The
    /// group's chain is closed, `one` was just taken off it, and the caller holds the lock that
    /// `Chain::lock_reparenting` returns.
    fn reparent(&self, one: &ListLruOne, dying: &Memcg, guard: &Guard) {
        if crate::mutated!("erase_before_drain") {
            self.remove_from_table(one, &mut self.writer.lock(), guard);
        }
        // Runs without the list locks, and also if the listener panics: an add that finds a dead
        // list in the table would retry for ever.
        let _out = AtEnd(|| match crate::mutated!("erase_before_drain") {
            true => Self::put_of_table(one, &self.writer.lock(), guard),
            false => self.unpublish(one, guard),
        });
        {
            let mut child = self.lock_joined(one, guard);
            let parent = self.parent_of(dying, one.node(), guard).expect("the root does not die");
            let mut parent = parent.lock(guard);
            let first = parent.take_over(&mut child);
            if crate::mutated!("bit_of_the_dying") {
                self.occupancy.iter().for_each(|occupancy| occupancy.occupied(dying, one.node()));
                let FirstItem(_) = first;
            } else {
                self.announce(first, &parent);
            }
        }
    }

    /// Joins the list's shards if they are quiet, and frees the list if it has been idle since the
    /// last sweep. The chain of its group is locked and open, and `one` is on it.
    pub(in super::super) fn sweep(&self, one: &ListLruOne, chain: &mut Chain, guard: &Guard) -> Idleness {
        if !self.sweep_shards(one, chain, guard) || one.nr_items() != 0 {
            return Idleness::Busy;
        }
        // Not waited for, as in `publish`.
        let Some(mut writer) = self.writer.try_lock() else { return Idleness::Busy };
        let Some(mut list) = one.try_lock(guard) else { return Idleness::Busy };
        let found = list.idleness();
        if found == Idleness::Idle {
            let parent = self.parent_of(list.memcg(), one.node(), guard);
            let forward = parent.map(|parent| parent.try_lock(guard));
            if matches!(forward, Some(None)) {
                return Idleness::Busy;
            }
            // SAFETY: the list is published, so it is on its group's chain.
            unsafe { chain.remove(ptr::from_ref(one).cast_mut()) };
            list.kill(parent.map_or(ptr::null(), ptr::from_ref));
            // Take it out before its lock is released: a thread that sees it dead must not find it
            // again.
            self.remove_from_table(one, &mut writer, guard);
            drop(list);
            match forward.flatten() {
                // SAFETY: the table's reference is given up, once. The list is dead, and forwards
                // to its parent's, which is not, as it counts a reference for its child's.
                Some(mut forward) => unsafe { forward.put(one) },
                None => Self::put_of_table(one, &writer, guard),
            }
        }
        found
    }

    /// Replaces the table by a smaller one if it is more than four times too large (so that it does
    /// not shrink and grow in turn) and there is memory for the copy. The caller holds the chain of
    /// a list in the table.
    pub(in super::super) fn shrink_table(&self, guard: &Guard) {
        // Not waited for, as in `publish`.
        let needed = || self.writer.try_lock()?.capacity_needed();
        if self.table(guard).is_some_and(|table| needed().is_some_and(|needed| table.capacity() > 4 * needed)) {
            // Without memory the table keeps its size.
            let _ = self.make_room(|| self.writer.try_lock(), guard);
        }
    }

    /// Unpublishes every list, and passes every item to `take`, marked private and with the
    /// reference by which it was pushed. The caller has exclusive access except for groups that go
    /// offline meanwhile and for sweeps, so this takes `&self`, not `&mut self`. No code of the
    /// items runs here: a list that stayed because of a panic would leave its group with a pointer
    /// to a dropped owner.
    pub(in super::super) fn drain(&self, mut take: impl FnMut(LinkNode)) {
        // An outer pin, so that destructors of retired values (`RcuCell`) do not run on this thread
        // between the steps.
        let _inside = pin();
        // Children first: so a group that goes offline meanwhile finds its parent's list to hand
        // its items to.
        for depth in (0..=self.depth_max()).rev() {
            let mut slot = 0;
            loop {
                match self.drain_one(slot, depth, &mut take) {
                    Some(next) => slot = next,
                    None if slot == 0 => break,
                    // A sweep may have replaced the table by a smaller one, in which lists are at
                    // lower slots: only a search of the whole table ends the loop.
                    None => slot = 0,
                }
            }
        }
    }

    /// Returns the depth of the deepest group that has a list.
    fn depth_max(&self) -> usize {
        let guard = pin();
        let _writer = self.writer.lock();
        let ones = self.wholes(&guard);
        // SAFETY: the writer lock is held, and `one` is in the table.
        ones.map(|one| unsafe { one.memcg_of_published() }.depth()).max().unwrap_or(0)
    }

    /// Unpublishes the first list, in table order from `slot` on, of a group of this depth. Returns
    /// the slot to continue from.
    fn drain_one(&self, slot: usize, depth: usize, take: &mut impl FnMut(LinkNode)) -> Option<usize> {
        let guard = pin();
        let (slot, one, memcg) = {
            let _writer = self.writer.lock();
            let is_turn = |slot: &TableSlot| {
                // SAFETY: `guard` keeps this thread in the read side, so the table's entries are
                // live.
                let one = unsafe { slot.pair() }.whole();
                // SAFETY: the writer lock is held, and `one` is in the table.
                unsafe { one.memcg_of_published() }.depth() == depth
            };
            let (slot, entry) = self.table(&guard)?.find_from(slot, is_turn)?;
            // SAFETY: `guard` keeps this thread in the read side, so the table's entries are live.
            let one = unsafe { entry.pair() }.whole();
            // SAFETY: the writer lock is held, and `one` is in the table.
            (slot, one, unsafe { one.memcg_of_published() }.clone())
        };
        let _reparenting = Chain::lock_reparenting(&memcg);
        let mut chain = Chain::lock(&memcg);
        let mut list = self.lock_joined(one, &guard);
        if list.is_dead() {
            return Some(slot); // Its group went offline and unpublished it before we got the locks.
        }
        // SAFETY: the list is not dead, so it is published and on the chain of its group, which is
        // locked.
        unsafe { chain.remove(ptr::from_ref(one).cast_mut()) };
        // SAFETY: the first reference is none, or refers to an item on the list, which is live.
        while let Some(first) = list.with_list(|l, layout| unsafe { layout.find(l.first()) }) {
            // SAFETY: the item is on this list, and we hold the list's lock.
            let by = unsafe { list.unlink(first, Hook::PRIVATE) };
            take(LinkNode { at: first, by });
        }
        list.kill(self.parent_of(&memcg, one.node(), &guard).map_or(ptr::null(), ptr::from_ref));
        drop(list);
        // `unpublish` waits for the parent's list, and callbacks under its lock wait for chains.
        drop(chain);
        self.unpublish(one, &guard);
        Some(slot)
    }
}

/// Moves the items of a dying group's lists to the lists of its parent. O(lists of the group),
/// whatever the number of items on them.
pub(crate) fn reparent_group(dying: &Memcg) {
    let guard = pin();
    let _reparenting = Chain::lock_reparenting(dying);
    // If a listener panics for one list, the other lists are moved all the same.
    to_the_end(|| {
        // The chain is released before the list is moved: the holder of the parent's list may wait
        // for this chain, to find that it is closed (L18).
        let mut chain = Chain::lock(dying);
        if chain.first().is_null() {
            return false;
        }
        // SAFETY: a list on the chain is live, and `guard` keeps it from being freed.
        let one = unsafe { &*chain.first() };
        // SAFETY: `one` is the first list of this chain.
        unsafe { chain.remove(ptr::from_ref(one).cast_mut()) };
        drop(chain);
        // SAFETY: the list is in its owner's table, and an owner that drops waits for the lock of
        // `lock_reparenting`, which we hold, so it is live.
        let owner = unsafe { RawListLru::of(one) };
        owner.reparent(one, dying, &guard);
        true
    });
}
