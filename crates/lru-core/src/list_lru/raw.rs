//! The machine behind [`ListLru`](super::ListLru): everything that does not know the type of the items.
//!
//! ```text
//!     Table: (group, node) -> One      read without a lock; published and unpublished under `writer`
//!     Memcg::pairs: group -> its Ones  the same Ones, for the group's end
//! ```
//!
//! Lock order: the caller's own locks, a group's `pairs`, `writer`, a list's lock, its parts' (one at a time), an ancestor's list's
//! lock. Whoever listens ([`Occupancy`]) is called under a list's lock, so its locks come last.
//!
//! # A group dies while somebody adds to it (R1, R2)
//!
//! ```text
//!     offline                              add, del, walk
//!       close the group's chain              find the One, or publish one if the chain is open
//!       lock the One and its parent's        lock it
//!       move the items, mark it dead         dead? go on with the parent's (add), or with `forward` (del)
//!       unpublish it                         not found? go on with the parent's
//! ```
//!
//! It is drained and marked dead before it is unpublished. So whoever finds it locks it and either comes before the drain, or
//! sees the mark; and whoever does not find it any more finds everything at the parent's already.
//!
//! Where a list has [parts](super::split), its lock is held until they are empty, too.
//!
//! # A sweep gives an empty list back while somebody adds to it
//!
//! ```text
//!     sweep                                add
//!       lock the writer, and the One         find the One, lock it
//!       empty, and counted on by nobody?
//!       mark it dead, take it out            dead, and the group is online? look again: it is out by now
//!       unlock both                          not found? publish one, with the writer locked
//! ```
//!
//! A dead list means "its group died" or "it was idle". The group's own state tells which: it is dying before its first list
//! is drained. A child's list counts as a reference on its parent's from the moment it is published, under the writer lock;
//! so what a sweep takes out has no child, and ancestors are there for as long as they are needed (L6).

mod splitting;

pub(super) use splitting::Round;

use super::boxed::try_box;
use super::one::{FirstItem, Idleness, Key, Locked};
use super::pairs::Chain;
use super::table::{Pair, Slot, Table, TableRef};
use super::{Occupancy, One, Split};
use crate::list::{Links, RawList};
use crate::rcu::{pin, Guard};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard};
use crate::{Memcg, NodeId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::{self, NonNull};

/// See the module.
pub(crate) struct RawListLru {
    table: AtomicPtr<Table>,
    writer: Mutex<Writer>,
    occupancy: Option<Arc<dyn Occupancy>>,
}

/// What only writers of the table need to know.
struct Writer {
    /// Lists in the table.
    live: u32,
    /// Slots that are not null: lists, and marks of lists that went.
    used: u32,
    /// Lists that have parts.
    split: u32,
}

impl Writer {
    /// The capacity of a table with room for one more; `None` when there are more lists than can be counted.
    fn capacity_needed(&self) -> Option<usize> {
        (self.live < PAIRS_MAX).then(|| Table::capacity_for(self.live as usize + 1))
    }

    fn has_room(&self, table: TableRef<'_>) -> bool {
        (self.used as usize) < Table::used_max(table.capacity())
    }
}

/// More (group, node) lists than this are refused as memory would be. Their table alone would take 8 GiB.
const PAIRS_MAX: u32 = 1 << 29;

/// Why there is no list of a group on a node.
#[derive(Debug)]
enum Unpopulated {
    /// The group is dying.
    Closed,
    /// There is no memory.
    NoMemory,
}

/// Why an item was not added.
pub(super) enum Refused {
    /// It is on a list already.
    Linked,
    /// There is no memory for the list, nor a populated ancestor.
    NoMemory,
    /// The list holds as many items as can be counted.
    Full,
}

impl RawListLru {
    pub(super) fn new(occupancy: Option<Arc<dyn Occupancy>>) -> Self {
        Self {
            table: AtomicPtr::new(ptr::null_mut()),
            writer: Mutex::new(Writer { live: 0, used: 0, split: 0 }),
            occupancy,
        }
    }

    /// Links an object at the end of its group's list.
    #[inline]
    pub(super) fn add<const UNIQUE: bool>(
        &self,
        links: NonNull<Links>,
        memcg: &Memcg,
        node: NodeId,
    ) -> Result<(), Refused> {
        // SAFETY: the caller owns the object.
        let object = unsafe { links.as_ref() };
        let guard = pin();
        let one = match self.lookup(Key::new(memcg, node), &guard) {
            Some(Pair::One(one)) => Some(one),
            Some(Pair::Split(split)) => Some(split.here()),
            None => None,
        };
        let mut missed = false;
        if let Some(one) = one {
            match one.try_lock(&guard) {
                Some(list) if !list.is_dead() => return self.add_to::<UNIQUE>(list, object, links),
                Some(_dead) => {}
                None => missed = true,
            }
        }
        self.add_slow::<UNIQUE>(object, links, memcg, node, missed, &guard)
    }

    /// The list is not there, or not any more; or somebody has it.
    #[cold]
    #[inline(never)]
    fn add_slow<const UNIQUE: bool>(
        &self,
        object: &Links,
        links: NonNull<Links>,
        memcg: &Memcg,
        node: NodeId,
        missed: bool,
        guard: &Guard,
    ) -> Result<(), Refused> {
        let list = self.lock_to_add(object, memcg, node, missed, guard)?;
        #[cfg(lowwater_loom)]
        if crate::mutated!("bit_of_the_passed") && list.memcg() != memcg {
            return self.add_and_announce_for(memcg, list, object, links);
        }
        self.add_to::<UNIQUE>(list, object, links)
    }

    /// `links` are those of `object`, as the pointer under which the list is to own it.
    // Always: handed over in memory, the lock would be read again before it is written, which costs more than all the rest.
    #[inline(always)]
    fn add_to<const UNIQUE: bool>(
        &self,
        mut list: Locked<'_>,
        object: &Links,
        links: NonNull<Links>,
    ) -> Result<(), Refused> {
        if !object.claim(ptr::from_ref(list.one()).cast_mut(), UNIQUE) {
            return Err(Refused::Linked);
        }
        let Some(first) = list.count_in() else {
            object.set_home(ptr::null_mut());
            return Err(Refused::Full);
        };
        // SAFETY: the lock is held, and by the claim the links are on no other list; the list owns the object from now on.
        list.with_list(|l| unsafe { l.push_back(links.as_ptr()) });
        self.announce(first, &list);
        Ok(())
    }

    /// R3, as Linux had it from 4.19 to 7.1: tells of the group that was named, not of the one whose list it is.
    #[cfg(lowwater_loom)]
    fn add_and_announce_for(
        &self,
        passed: &Memcg,
        mut list: Locked<'_>,
        object: &Links,
        links: NonNull<Links>,
    ) -> Result<(), Refused> {
        assert!(object.claim(ptr::from_ref(list.one()).cast_mut(), false));
        let _first = list.count_in();
        // SAFETY: as in `add_to`.
        list.with_list(|l| unsafe { l.push_back(links.as_ptr()) });
        self.occupancy.iter().for_each(|occupancy| occupancy.occupied(passed, list.one().key().node));
        Ok(())
    }

    /// Links an object that is private to the caller, and whose links `take` takes off its private list. `false`: it is full.
    pub(super) fn add_private(
        &self,
        list: &mut Locked<'_>,
        links: NonNull<Links>,
        take: impl FnOnce() -> Option<NonNull<Links>>,
    ) -> bool {
        let Some(first) = list.count_in() else { return false };
        let taken = take();
        debug_assert_eq!(taken, Some(links), "the first is taken");
        // SAFETY: the caller owns the object.
        unsafe { links.as_ref() }.set_home(ptr::from_ref(list.one()).cast_mut());
        // SAFETY: the lock is held, and the links were taken off the list they were on; this list owns the object from now on.
        list.with_list(|l| unsafe { l.push_back(links.as_ptr()) });
        self.announce(first, list);
        true
    }

    /// The list on which an object is, if that is one of these: `held` if it is that one, or else locked now.
    pub(super) fn lock_home<'a>(
        &self,
        links: &Links,
        mut held: Option<Locked<'a>>,
        guard: &'a Guard,
    ) -> Option<Locked<'a>> {
        loop {
            if let Some(list) = held.take() {
                if ptr::eq(list.one(), links.home()) {
                    return Some(list);
                }
            }
            let home = self.home_of(links)?;
            // SAFETY: an item's home is not retired while the item is on a list, and we are in the read side.
            let list = Self::lock_effective_of(unsafe { &*home }, guard);
            if ptr::eq(links.home(), home) {
                return Some(list);
            }
            // Ask again: each turn somebody else got something done.
        }
    }

    /// Unlinks an object, if it is on one of these lists: the pointer under which it was added.
    #[inline]
    pub(super) fn del(&self, links: &Links) -> Option<NonNull<Links>> {
        let guard = pin();
        let home = self.home_of(links)?;
        // SAFETY: an item's home is not retired while the item is on a list, and we are in the read side.
        let list = unsafe { &*home }.lock(&guard);
        if !list.is_dead() && ptr::eq(links.home(), home) {
            return Some(self.take_off(list, links, &guard));
        }
        drop(list);
        self.del_slow(links, &guard)
    }

    /// It left, its list is dead, or it was added elsewhere before we had the lock.
    #[cold]
    #[inline(never)]
    fn del_slow(&self, links: &Links, guard: &Guard) -> Option<NonNull<Links>> {
        let list = self.lock_home(links, None, guard)?;
        Some(self.take_off(list, links, guard))
    }

    /// The home of an object, if that is one of these lists.
    #[inline]
    fn home_of(&self, links: &Links) -> Option<*const One> {
        let home = links.home();
        if home.is_null() || home == Links::PRIVATE {
            return None;
        }
        // SAFETY: an item's home is not retired while the item is on a list, and the caller is in the read side.
        let owner = unsafe { &*home }.owner();
        ptr::eq(owner, self).then_some(home.cast_const())
    }

    /// Unlinks an object that is on this list.
    #[inline(always)] // As `add_to`.
    fn take_off(&self, mut list: Locked<'_>, links: &Links, _guard: &Guard) -> NonNull<Links> {
        #[cfg(lowwater_loom)]
        if crate::mutated!("count_of_the_parent") && !list.memcg().is_online() {
            // R6, as Linux had it until 5.16: the id is the parent's already, and so is the count that falls.
            if let Some(parent) = self.parent_of(list.memcg(), list.one().key().node, _guard) {
                list.move_count_to(parent);
            }
        }
        // SAFETY: by One's invariant 2 the item is on this list, whose lock we hold.
        unsafe { list.unlink(links, ptr::null_mut()) }
    }

    /// How many items the group's own list holds.
    pub(super) fn count_one(&self, memcg: &Memcg, node: NodeId) -> u64 {
        let guard = pin();
        let key = Key::new(memcg, node);
        loop {
            match self.lookup(key, &guard) {
                None => return 0,
                Some(Pair::One(one)) => return one.nr_items().into(),
                Some(Pair::Split(split)) => {
                    let n = split.nr_items();
                    if !self.has_ended(split, &guard) {
                        return n;
                    }
                }
            }
        }
    }

    /// How many items there are on a node.
    pub(super) fn count_node(&self, node: NodeId) -> u64 {
        let guard = pin();
        let Some(table) = self.table(&guard) else { return 0 };
        // SAFETY: we are in the read side.
        let pairs = table.iter().map(|slot| unsafe { slot.pair() });
        pairs.filter(|pair| pair.whole().key().node == node).map(Pair::nr_items).sum()
    }

    /// Makes the list to which `add` would add, and counts a reference on it. `None` without memory.
    pub(super) fn prepare(&self, memcg: &Memcg, node: NodeId) -> Option<NonNull<One>> {
        let guard = pin();
        let mut group = memcg;
        loop {
            match self.whole(Key::new(group, node), &guard) {
                Some(one) => {
                    let mut list = one.lock(&guard);
                    if !list.is_dead() {
                        list.get();
                        return Some(NonNull::from(one));
                    }
                    if group.is_online() && !crate::mutated!("swept_means_dying") {
                        continue; // It was idle, and is out of the table by now.
                    }
                }
                None => match self.populate(group, node, &guard) {
                    Ok(()) => continue,
                    Err(Unpopulated::NoMemory) => return None,
                    Err(Unpopulated::Closed) => {}
                },
            }
            group = group.parent().expect("the root is not dying");
        }
    }

    /// Gives up a reference that [`prepare`](Self::prepare) counted.
    pub(super) fn unprepare(&self, one: NonNull<One>) {
        let guard = pin();
        // SAFETY: it counts our reference, so it is not retired.
        let one = unsafe { one.as_ref() };
        let mut list = Self::lock_effective_of(one, &guard);
        // SAFETY: the reference is given up, and this is the effective list.
        unsafe { list.put(one) };
    }

    /// The groups that have a list on a node.
    pub(super) fn groups_on(&self, node: NodeId) -> Vec<Memcg> {
        let _writer = self.writer.lock();
        let guard = pin();
        let ones = self.wholes(&guard);
        // SAFETY: the writer lock is held, and `one` is in the table.
        ones.filter(|one| one.key().node == node).map(|one| unsafe { one.memcg_of_published() }.clone()).collect()
    }

    /// Bytes of what this keeps beyond itself: lists and table.
    pub(super) fn bytes(&self) -> usize {
        let writer = self.writer.lock();
        let guard = pin();
        let parts = match writer.split {
            0 => 0,
            _ => self.splits(&guard).map(Split::bytes).sum(),
        };
        writer.live as usize * size_of::<One>() + self.table(&guard).map_or(0, TableRef::bytes) + parts
    }

    /// How many (group, node) lists exist.
    pub(super) fn pairs(&self) -> usize {
        self.writer.lock().live as usize
    }

    // === finding and locking ===

    #[inline]
    fn table<'a>(&self, _guard: &'a Guard) -> Option<TableRef<'a>> {
        // Acquire: meets the Release in `make_room`, so that the array is seen filled.
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: a published table is live in the read side.
        NonNull::new(table).map(|table| unsafe { TableRef::of(table) })
    }

    #[inline]
    fn lookup<'a>(&self, key: Key, guard: &'a Guard) -> Option<Pair<'a>> {
        // SAFETY: what the table holds is live in the read side.
        self.table(guard)?.get(key).map(|slot| unsafe { slot.pair() })
    }

    /// The list itself, with or without parts beside it.
    fn whole<'a>(&self, key: Key, guard: &'a Guard) -> Option<&'a One> {
        self.lookup(key, guard).map(Pair::whole)
    }

    /// All lists, without the parts.
    fn wholes<'a>(&self, guard: &'a Guard) -> impl Iterator<Item = &'a One> {
        // SAFETY: what the table holds is live in the read side.
        self.table(guard).into_iter().flat_map(TableRef::iter).map(|slot| unsafe { slot.pair() }.whole())
    }

    fn splits<'a>(&self, guard: &'a Guard) -> impl Iterator<Item = &'a Split> {
        // SAFETY: as in `wholes`.
        let pairs = self.table(guard).into_iter().flat_map(TableRef::iter).map(|slot| unsafe { slot.pair() });
        pairs.filter_map(|pair| match pair {
            Pair::Split(split) => Some(split),
            Pair::One(_) => None,
        })
    }

    /// The list to which an object of `memcg` goes: its own, made now if need be; else its nearest ancestor's. `missed`: the
    /// caller has found it taken already.
    pub(super) fn lock_to_add<'a>(
        &'a self,
        object: &Links,
        memcg: &Memcg,
        node: NodeId,
        mut missed: bool,
        guard: &'a Guard,
    ) -> Result<Locked<'a>, Refused> {
        let mut group = memcg;
        let mut may_populate = true;
        loop {
            match self.lookup(Key::new(group, node), guard) {
                Some(pair) => {
                    let list = match pair {
                        Pair::One(one) => {
                            let mut list = one.lock(guard);
                            if core::mem::take(&mut missed) && list.count_miss() {
                                drop(list);
                                self.split(group, node, guard);
                                continue;
                            }
                            list
                        }
                        Pair::Split(split) if core::mem::take(&mut missed) => split.elsewhere().lock(guard),
                        Pair::Split(split) => split.here().lock(guard),
                    };
                    if !list.is_dead() {
                        return Ok(list);
                    }
                    if group.is_online() {
                        continue; // It was idle, or a part, and is out of the table by now.
                    }
                }
                // No list is made for an object that will not be on it.
                None if object.is_on_a_list() => return Err(Refused::Linked),
                None if may_populate => match self.populate(group, node, guard) {
                    Ok(()) => continue,
                    Err(Unpopulated::Closed) => {}
                    Err(Unpopulated::NoMemory) => may_populate = false,
                },
                None => {}
            }
            // Dying, or nothing to be had: the parent's list is where its items are, or where this one must do.
            group = group.parent().ok_or(Refused::NoMemory)?;
        }
    }

    /// The list on which the items are whose home is `one` (One's invariant 2). A dead list without a forward is its own: it
    /// was the root's, and nothing counts on it.
    pub(super) fn lock_effective_of<'a>(one: &'a One, guard: &'a Guard) -> Locked<'a> {
        Self::lock_effective_slow(one.lock(guard), guard)
    }

    #[cold]
    #[inline(never)]
    fn lock_effective_slow<'a>(mut list: Locked<'a>, guard: &'a Guard) -> Locked<'a> {
        while list.is_dead() && !list.forward().is_null() {
            // SAFETY: a dead list counts on what it forwards to until it is retired, and we entered the read side before that.
            let next = unsafe { &*list.forward() };
            drop(list);
            list = next.lock(guard);
        }
        list
    }

    /// The list of a published list's parent, which counts it (One's invariant 3); `None` for the root's.
    fn parent_of<'a>(&'a self, memcg: &Memcg, node: NodeId, guard: &'a Guard) -> Option<&'a One> {
        let parent = memcg.parent()?;
        let one = self.whole(Key::new(parent, node), guard);
        Some(one.expect("a populated group's parent is populated (L6)"))
    }

    #[inline]
    fn announce(&self, first: FirstItem, list: &Locked<'_>) {
        if let (FirstItem(true), Some(occupancy)) = (first, &self.occupancy) {
            occupancy.occupied(list.memcg(), list.one().key().node);
        }
    }

    // === making and unmaking ===

    /// Makes the lists of a group and of its ancestors, those first (L6).
    #[cold]
    fn populate(&self, memcg: &Memcg, node: NodeId, guard: &Guard) -> Result<(), Unpopulated> {
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
        let mut one = Some(try_box(One::new(memcg, node, self)).ok_or(Unpopulated::NoMemory)?);
        loop {
            {
                let mut chain = memcg.pairs().lock();
                if chain.closed && !crate::mutated!("populate_without_dying_check") {
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
                    // SAFETY: it is new, on no chain, and stays until unpublished, which takes it off the chain first.
                    unsafe { chain.push(one) };
                    table.insert(key, Slot::of_one(one), &mut writer.used);
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
        let new = Table::try_new(needed).ok_or(Unpopulated::NoMemory)?;
        // SAFETY: it was made just now.
        let table = unsafe { TableRef::of(new) };
        let mut writer = self.writer.lock();
        if writer.capacity_needed().is_none_or(|needed| needed > table.capacity()) {
            Table::discard(new);
            return Ok(()); // Others were faster; the caller looks again.
        }
        let mut used = 0;
        for entry in self.table(guard).iter().flat_map(|old| old.iter()) {
            // SAFETY: we are in the read side; the key never changes.
            table.insert(unsafe { entry.pair() }.whole().key(), entry, &mut used);
        }
        writer.used = used;
        self.replace_table(new.as_ptr(), guard);
        Ok(())
    }

    /// The caller holds the writer lock.
    fn replace_table(&self, new: *mut Table, guard: &Guard) {
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
    fn unpublish(&self, one: &One, guard: &Guard) {
        let mut writer = self.writer.lock();
        self.take_out(one, &mut writer, guard);
        Self::put_of_table(one, &writer, guard);
    }

    fn take_out(&self, one: &One, writer: &mut Writer, guard: &Guard) {
        if let Some(table) = self.table(guard) {
            table.remove(one.key(), Slot::of_one(ptr::from_ref(one).cast_mut()));
        }
        writer.live -= 1;
        if writer.live == 0 {
            writer.used = 0;
            self.replace_table(ptr::null_mut(), guard);
        }
    }

    /// Gives up the table's reference on a list that was taken out; the writer lock is held.
    fn put_of_table(one: &One, _writer: &MutexGuard<'_, Writer>, guard: &Guard) {
        let mut list = Self::lock_effective_of(one, guard);
        // SAFETY: the table's reference is given up, and this is the effective list.
        unsafe { list.put(one) };
    }

    /// Hands the items of a dying group's list to its parent's, and unmakes it. The group's chain is closed and locked, and
    /// `one` just taken off it.
    fn reparent(&self, one: &One, dying: &Memcg, guard: &Guard) {
        if crate::mutated!("erase_before_drain") {
            self.take_out(one, &mut self.writer.lock(), guard);
        }
        {
            let mut child = self.lock_without_parts(one, guard);
            let parent = self.parent_of(dying, one.key().node, guard).expect("the root does not die");
            let mut parent = parent.lock(guard);
            let first = parent.take_over(&mut child);
            if crate::mutated!("bit_of_the_dying") {
                self.occupancy.iter().for_each(|occupancy| occupancy.occupied(dying, one.key().node));
                let FirstItem(_) = first;
            } else {
                self.announce(first, &parent);
            }
        }
        if crate::mutated!("erase_before_drain") {
            Self::put_of_table(one, &self.writer.lock(), guard);
        } else {
            self.unpublish(one, guard);
        }
    }

    /// Gives the list back if it has been idle since the last sweep. Its group's chain is locked and open, and `one` on it.
    pub(super) fn sweep(&self, one: &One, chain: &mut Chain, guard: &Guard) -> Idleness {
        if !self.sweep_parts(one, chain, guard) || one.nr_items() != 0 {
            return Idleness::Busy;
        }
        let mut writer = self.writer.lock();
        let mut list = one.lock(guard);
        let found = list.idleness();
        if found == Idleness::Idle {
            let parent = self.parent_of(list.memcg(), one.key().node, guard);
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
    pub(super) fn shrink_table(&self, guard: &Guard) {
        let needed = || self.writer.lock().capacity_needed();
        if self.table(guard).is_some_and(|table| needed().is_some_and(|needed| table.capacity() > 4 * needed)) {
            // Without memory it stays as large as it is.
            let _ = self.make_room(guard);
        }
    }

    /// Unmakes every list and gives every item to `free`, as the pointer under which it was added. The caller has the only
    /// access, except for groups that go offline meanwhile.
    pub(super) fn drain(&mut self, mut free: impl FnMut(NonNull<Links>)) {
        // Children first: until then every group that goes offline meanwhile finds its parent's list to hand its items to.
        for depth in (0..=self.depth_max()).rev() {
            let mut slot = 0;
            while let Some(next) = self.drain_one(slot, depth, &mut free) {
                slot = next;
            }
        }
    }

    /// Levels below the root of the deepest group that has a list.
    fn depth_max(&self) -> usize {
        let _writer = self.writer.lock();
        let guard = pin();
        let ones = self.wholes(&guard);
        // SAFETY: the writer lock is held, and `one` is in the table.
        ones.map(|one| unsafe { one.memcg_of_published() }.depth()).max().unwrap_or(0)
    }

    /// Unmakes the first list in the table from `slot` on that is of a group of this depth; the slot to go on from.
    fn drain_one(&mut self, slot: usize, depth: usize, free: &mut impl FnMut(NonNull<Links>)) -> Option<usize> {
        let guard = pin();
        let (slot, one, memcg) = {
            let _writer = self.writer.lock();
            let is_turn = |slot: &Slot| {
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
        let mut chain = memcg.pairs().lock();
        let mut list = self.lock_without_parts(one, &guard);
        if list.is_dead() {
            return Some(slot); // Its group went offline meanwhile, and unpublished it before it gave us the chain.
        }
        // SAFETY: it is not dead, so it is published and on the chain.
        unsafe { chain.remove(ptr::from_ref(one).cast_mut()) };
        let mut items = RawList::new();
        while let Some(first) = NonNull::new(list.with_list(|l| l.first())) {
            // SAFETY: it is on the list, so it is live.
            let links = unsafe { first.as_ref() };
            // SAFETY: it is on this list, whose lock we hold.
            let pushed = unsafe { list.unlink(links, Links::PRIVATE) };
            // SAFETY: it was unlinked, and nobody touches private links but we.
            unsafe { items.push_back(pushed.as_ptr()) };
        }
        list.kill(self.parent_of(&memcg, one.key().node, &guard).map_or(ptr::null(), ptr::from_ref));
        drop(list);
        self.unpublish(one, &guard);
        drop(chain);
        // The owner's code runs without any of our locks.
        // SAFETY: the list is ours alone.
        while let Some(links) = unsafe { items.pop_front() }.and_then(NonNull::new) {
            // SAFETY: lists own their items, so it is live.
            unsafe { links.as_ref() }.set_home(ptr::null_mut());
            free(links);
        }
        Some(slot)
    }

    /// Panics unless the structure holds together. Takes every lock, one after the other; for tests.
    pub(super) fn assert_valid(&self) {
        let writer = self.writer.lock();
        let guard = pin();
        let slots: Vec<_> = self.table(&guard).iter().flat_map(|table| table.iter()).collect();
        assert_eq!(
            slots.len(),
            writer.live as usize,
            "the table must hold as many lists as were published and not unpublished"
        );
        assert_eq!(self.table(&guard).is_none(), slots.is_empty(), "lists that are none must have no table");
        assert_eq!(self.splits(&guard).count(), writer.split as usize, "as many lists must have parts as were split");
        for slot in slots {
            // SAFETY: we are in the read side.
            let pair = unsafe { slot.pair() };
            let one = pair.whole();
            // SAFETY: the writer lock is held, and `one` is in the table.
            let memcg = unsafe { one.memcg_of_published() };
            if let Some(parent) = memcg.parent() {
                let parent = self.lookup(Key::new(parent, one.key().node), &guard);
                assert!(parent.is_some() || !memcg.is_online(), "a populated group's parent must be populated (L6)");
            }
            one.lock(&guard).assert_valid_with(matches!(pair, Pair::Split(_)));
            for part in pair.lists().skip(1) {
                assert_eq!(
                    (part.key(), part.owner()),
                    (one.key(), one.owner()),
                    "a part must be of its list's group and node"
                );
                let mut part = part.lock(&guard);
                assert!(!part.is_dead(), "what the table holds must not be dead");
                part.assert_valid();
            }
        }
    }
}

/// Moves the lists of a dying group to its nearest ancestor's. O(lists of the group), however many items are on them.
pub(crate) fn reparent_group(dying: &Memcg) {
    let guard = pin();
    dying.pairs().lock().closed = true;
    loop {
        let mut chain = dying.pairs().lock();
        if chain.first().is_null() {
            return;
        }
        // SAFETY: what is on the chain is live, and not freed before we leave the read side.
        let one = unsafe { &*chain.first() };
        // SAFETY: it is the first of this chain.
        unsafe { chain.remove(ptr::from_ref(one).cast_mut()) };
        // SAFETY: it is in its owner's table, so the owner does not finish dropping before it has had this chain's lock.
        let owner = unsafe { &*one.owner() };
        owner.reparent(one, dying, &guard);
    }
}
