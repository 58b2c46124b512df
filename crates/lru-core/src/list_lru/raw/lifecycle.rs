//! How lists come to be, and how they go: population from above, replacement of the table, a group's end, the sweep, the drop.

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
    /// Without lists.
    pub(in super::super) fn new(occupancy: Option<Arc<dyn Occupancy>>, shape: &'static LinkLayout) -> Self {
        attached::install(reparent_group);
        Self {
            head: ListsHead { layout: shape, moves: AtomicU32::new(0) },
            table: AtomicPtr::new(ptr::null_mut()),
            writer: Mutex::new(Writer { live: 0, used: 0, split: 0 }),
            ending: AtomicPtr::new(ptr::null_mut()),
            occupancy,
        }
    }

    /// Makes the lists of a group and of its ancestors, those first (L6).
    #[cold]
    pub(super) fn populate(&self, memcg: &Memcg, node: NodeId, guard: &Guard) -> Result<(), Unpopulated> {
        let populated = self.populate_from_above(memcg, node, guard);
        if populated.is_err() {
            // Room that was made for a list that did not come.
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

    /// Makes one list, unless it is there. `false`: its parent's is not there, or not any more. Memory is got outside the locks.
    fn publish(&self, memcg: &Memcg, node: NodeId, guard: &Guard) -> Result<bool, Unpopulated> {
        let key = Key::new(memcg, node);
        let mut one = Some(try_box(ListLruOne::new(memcg, node, self.as_owner())).ok_or(Unpopulated::NoMemory)?);
        loop {
            {
                let mut chain = Chain::lock(memcg);
                if chain.is_closed() && !crate::mutated!("populate_without_dying_check") {
                    return Err(Unpopulated::Closed);
                }
                let mut writer = self.writer.lock();
                if self.lookup(key, guard).is_some() {
                    return Ok(true);
                }
                if let Some(table) = self.table(guard).filter(|t| writer.has_room(*t)) {
                    if let Some(parent) = memcg.parent() {
                        // The chain is open, so the parent does not die before we are done; and no sweep is in here. So what
                        // the table holds is not dead.
                        match self.whole(Key::new(parent, node), guard) {
                            Some(parent) => parent.lock(guard).get(),
                            None if crate::mutated!("populate_without_parent") => {}
                            None => return Ok(false),
                        }
                    }
                    let one = Box::into_raw(one.take().expect("published once"));
                    // For `retire_released`.
                    one.expose_provenance();
                    // SAFETY: it is new, on no chain, and stays until unpublished, which takes it off the chain first.
                    unsafe { chain.push(one) };
                    table.insert(key, TableSlot::of_one(one), &mut writer.used);
                    writer.live += 1;
                    return Ok(true);
                }
            }
            self.make_room(guard)?;
        }
    }

    /// Replaces the table by one that has room for at least one more, and not much more than that.
    fn make_room(&self, guard: &Guard) -> Result<(), Unpopulated> {
        let needed = self.writer.lock().capacity_needed().ok_or(Unpopulated::NoMemory)?;
        let new = ListTable::try_new(needed).ok_or(Unpopulated::NoMemory)?;
        // SAFETY: it was made just now.
        let table = unsafe { TableRef::of(new) };
        let mut writer = self.writer.lock();
        if writer.capacity_needed().is_none_or(|needed| needed > table.capacity()) {
            ListTable::discard(new);
            return Ok(()); // Others were faster; the caller looks again.
        }
        let mut used = 0;
        for entry in self.table(guard).iter().flat_map(|old| old.iter()) {
            // SAFETY: we are in the read side.
            let one = unsafe { entry.pair() }.whole();
            // SAFETY: the writer lock is held, and `one` is in the table.
            table.insert(unsafe { one.key_of_published() }, entry, &mut used);
        }
        writer.used = used;
        self.replace_table(new.as_ptr(), guard);
        Ok(())
    }

    /// The caller holds the writer lock.
    fn replace_table(&self, new: *mut ListTable, guard: &Guard) {
        // Release: meets the Acquire in `table`. Acquire: we free what others published.
        let ordering = if crate::mutated!("table_relaxed") { Ordering::Relaxed } else { Ordering::AcqRel };
        let old = self.table.swap(new, ordering);
        if !old.is_null() {
            // SAFETY: it came from `try_new`, and readers that enter from now on find the new one.
            unsafe { guard.retire(old) };
        }
    }

    /// Takes a dead list out of the table, and gives up the table's reference. All of it under the writer lock: once that is
    /// free, nothing of this touches the structure any more, and it may be dropped.
    fn unpublish(&self, one: &ListLruOne, guard: &Guard) {
        let mut writer = self.writer.lock();
        self.take_out(one, &mut writer, guard);
        Self::put_of_table(one, &writer, guard);
    }

    fn take_out(&self, one: &ListLruOne, writer: &mut Writer, guard: &Guard) {
        if let Some(table) = self.table(guard) {
            // SAFETY: it is in the table, and who has `writer` has the lock.
            table.remove(unsafe { one.key_of_published() }, TableSlot::of_one(ptr::from_ref(one).cast_mut()));
        }
        writer.live -= 1;
        if writer.live == 0 {
            writer.used = 0;
            self.replace_table(ptr::null_mut(), guard);
        }
    }

    /// Gives up the table's reference on a list that was taken out; the writer lock is held.
    fn put_of_table(one: &ListLruOne, _writer: &MutexGuard<'_, Writer>, guard: &Guard) {
        let mut list = Self::lock_effective_of(one, guard);
        // SAFETY: the table's reference is given up, and this is the effective list.
        unsafe { list.put(one) };
    }

    /// Hands the items of a dying group's list to its parent's, and unmakes it. The group's chain is closed and locked, and
    /// `one` just taken off it.
    fn reparent(&self, one: &ListLruOne, dying: &Memcg, guard: &Guard) {
        if crate::mutated!("erase_before_drain") {
            self.take_out(one, &mut self.writer.lock(), guard);
        }
        // Without the locks, and though the listener panics: an add that finds a dead list in the
        // table looks again for ever.
        let _out = AtEnd(|| match crate::mutated!("erase_before_drain") {
            true => Self::put_of_table(one, &self.writer.lock(), guard),
            false => self.unpublish(one, guard),
        });
        {
            let mut child = self.lock_without_parts(one, guard);
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

    /// Gives the list back if it has been idle since the last sweep. Its group's chain is locked and open, and `one` on it.
    pub(in super::super) fn sweep(&self, one: &ListLruOne, chain: &mut Chain, guard: &Guard) -> Idleness {
        if !self.sweep_parts(one, chain, guard) || one.nr_items() != 0 {
            return Idleness::Busy;
        }
        let mut writer = self.writer.lock();
        let mut list = one.lock(guard);
        let found = list.idleness();
        if found == Idleness::Idle {
            let parent = self.parent_of(list.memcg(), one.node(), guard);
            // SAFETY: it is published, so it is on its group's chain.
            unsafe { chain.remove(ptr::from_ref(one).cast_mut()) };
            list.kill(parent.map_or(ptr::null(), ptr::from_ref));
            // Before its lock is free: who sees it dead does not find it again.
            self.take_out(one, &mut writer, guard);
            drop(list);
            Self::put_of_table(one, &writer, guard);
        }
        found
    }

    /// Gives back room that the table does not need any more, if there is memory to do so.
    pub(in super::super) fn shrink_table(&self, guard: &Guard) {
        let needed = || self.writer.lock().capacity_needed();
        if self.table(guard).is_some_and(|table| needed().is_some_and(|needed| table.capacity() > 4 * needed)) {
            // Without memory it stays as large as it is.
            let _ = self.make_room(guard);
        }
    }

    /// Unmakes every list and gives every item to `take`, private and as it was added. The caller
    /// has the only access, except for groups that go offline meanwhile: so this is no `&mut`. No
    /// code of the items runs here: a list that stayed because of a panic would lead its group to
    /// an owner that is gone.
    pub(in super::super) fn drain(&self, mut take: impl FnMut(LinkNode)) {
        // A value of the user's (`RcuCell`) that waits for its readers is not dropped on this
        // thread inside the read side.
        let _inside = pin();
        // Children first: until then every group that goes offline meanwhile finds its parent's list to hand its items to.
        for depth in (0..=self.depth_max()).rev() {
            let mut slot = 0;
            while let Some(next) = self.drain_one(slot, depth, &mut take) {
                slot = next;
            }
        }
    }

    /// Levels below the root of the deepest group that has a list.
    fn depth_max(&self) -> usize {
        let guard = pin();
        let _writer = self.writer.lock();
        let ones = self.wholes(&guard);
        // SAFETY: the writer lock is held, and `one` is in the table.
        ones.map(|one| unsafe { one.memcg_of_published() }.depth()).max().unwrap_or(0)
    }

    /// Unmakes the first list in the table from `slot` on that is of a group of this depth; the slot to go on from.
    fn drain_one(&self, slot: usize, depth: usize, take: &mut impl FnMut(LinkNode)) -> Option<usize> {
        let guard = pin();
        let (slot, one, memcg) = {
            let _writer = self.writer.lock();
            let is_turn = |slot: &TableSlot| {
                // SAFETY: we are in the read side.
                let one = unsafe { slot.pair() }.whole();
                // SAFETY: the writer lock is held, and `one` is in the table.
                unsafe { one.memcg_of_published() }.depth() == depth
            };
            let (slot, entry) = self.table(&guard)?.find_from(slot, is_turn)?;
            // SAFETY: we are in the read side.
            let one = unsafe { entry.pair() }.whole();
            // SAFETY: the writer lock is held, and `one` is in the table.
            (slot, one, unsafe { one.memcg_of_published() }.clone())
        };
        let mut chain = Chain::lock(&memcg);
        let mut list = self.lock_without_parts(one, &guard);
        if list.is_dead() {
            return Some(slot); // Its group went offline meanwhile, and unpublished it before it gave us the chain.
        }
        // SAFETY: it is not dead, so it is published and on the chain.
        unsafe { chain.remove(ptr::from_ref(one).cast_mut()) };
        // SAFETY: if there is a first one, it is on the list, so it is live.
        while let Some(first) = list.with_list(|l, shape| unsafe { shape.find(l.first()) }) {
            // SAFETY: it is on this list, whose lock we hold.
            let by = unsafe { list.unlink(first, Hook::PRIVATE) };
            take(LinkNode { at: first, by });
        }
        list.kill(self.parent_of(&memcg, one.node(), &guard).map_or(ptr::null(), ptr::from_ref));
        drop(list);
        self.unpublish(one, &guard);
        Some(slot)
    }
}

/// Moves the lists of a dying group to its nearest ancestor's. O(lists of the group), however many items are on them.
pub(crate) fn reparent_group(dying: &Memcg) {
    let guard = pin();
    // A listener that panics for one list does not keep the others from the parent.
    to_the_end(|| {
        let mut chain = Chain::lock(dying);
        if chain.first().is_null() {
            return false;
        }
        // SAFETY: what is on the chain is live, and not freed before we leave the read side.
        let one = unsafe { &*chain.first() };
        // SAFETY: it is the first of this chain.
        unsafe { chain.remove(ptr::from_ref(one).cast_mut()) };
        // SAFETY: it is in its owner's table, so the owner does not finish dropping before it has had this chain's lock.
        let owner = unsafe { RawListLru::of(one) };
        owner.reparent(one, dying, &guard);
        true
    });
}
