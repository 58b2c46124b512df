//! The machine behind [`ListLru`](super::ListLru): everything that does not know the type of the items.
//!
//! ```text
//!     ListTable: (group, node) -> ListLruOne      read without a lock; published and unpublished under `writer`
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
//!       close the group's chain              find the ListLruOne, or publish one if the chain is open
//!       lock the ListLruOne and its parent's        lock it
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
//!       lock the writer, and the ListLruOne         find the ListLruOne, lock it
//!       empty, and counted on by nobody?
//!       mark it dead, take it out            dead, and the group is online? look again: it is out by now
//!       unlock both                          not found? publish one, with the writer locked
//! ```
//!
//! A dead list means "its group died" or "it was idle". The group's own state tells which: it is dying before its first list
//! is drained. A child's list counts as a reference on its parent's from the moment it is published, under the writer lock;
//! so what a sweep takes out has no child, and ancestors are there for as long as they are needed (L6).

mod count;
mod items;
mod lifecycle;
mod refused;
mod splitting;
#[cfg(all(test, not(lowwater_loom)))]
mod tests;

pub(super) use refused::Refused;
pub(super) use splitting::WalkRound;

use super::key::Key;
use super::list_lru_one::ListLruOne;
use super::lists_head::ListsHead;
use super::locked::{FirstItem, LockedList};
use super::occupancy::Occupancy;
use super::shards::ShardSet;
use super::table::{ListTable, Pair, TableRef};
use crate::list::Hook;
use crate::rcu::{pin, Guard};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::{Arc, Mutex};
use crate::{Memcg, NodeId};
use alloc::vec::Vec;
use core::ptr::{self, NonNull};

/// See the module.
#[repr(C)]
pub(crate) struct RawListLru {
    // First: a pointer to it, which its lists have, is one to the whole.
    head: ListsHead,
    table: AtomicPtr<ListTable>,
    writer: Mutex<Writer>,
    /// The split whose parts are emptied now, when the slot leads to its list already; or null.
    /// Changes under the writer lock.
    ending: AtomicPtr<ShardSet>,
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
        (self.live < PAIRS_MAX).then(|| ListTable::capacity_for(self.live as usize + 1))
    }

    fn has_room(&self, table: TableRef<'_>) -> bool {
        (self.used as usize) < ListTable::used_max(table.capacity())
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

impl RawListLru {
    /// This, as its lists point to it.
    pub(super) fn as_owner(&self) -> *const ListsHead {
        ptr::from_ref(self).cast()
    }

    /// The `ListLru` of a list.
    ///
    /// # Safety
    ///
    /// The answer is used only while the owner is there: the caller has the list's lock, or the chain of its group, on which the list is.
    pub(super) unsafe fn of<'a>(one: &ListLruOne) -> &'a Self {
        // SAFETY: each list was made by a `RawListLru`, which `as_owner` turned into this pointer; it is live (this function's clause).
        unsafe { &*one.owner().cast::<Self>() }
    }

    /// Makes the list to which `add` would add, and counts a reference on it. `None` without memory.
    pub(super) fn prepare(&self, memcg: &Memcg, node: NodeId) -> Option<NonNull<ListLruOne>> {
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
    pub(super) fn unprepare(&self, one: NonNull<ListLruOne>) {
        let guard = pin();
        // SAFETY: it counts our reference, so it is not retired.
        let one = unsafe { one.as_ref() };
        let mut list = Self::lock_effective_of(one, &guard);
        // SAFETY: the reference is given up, and this is the effective list.
        unsafe { list.put(one) };
    }

    #[inline]
    fn table<'a>(&self, _guard: &'a Guard) -> Option<TableRef<'a>> {
        // Acquire: meets the Release in `replace_table`, so that the array is seen filled.
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
    fn whole<'a>(&self, key: Key, guard: &'a Guard) -> Option<&'a ListLruOne> {
        self.lookup(key, guard).map(Pair::whole)
    }

    /// All lists, without the parts.
    fn wholes<'a>(&self, guard: &'a Guard) -> impl Iterator<Item = &'a ListLruOne> {
        // SAFETY: what the table holds is live in the read side.
        self.table(guard).into_iter().flat_map(TableRef::iter).map(|slot| unsafe { slot.pair() }.whole())
    }

    fn splits<'a>(&self, guard: &'a Guard) -> impl Iterator<Item = &'a ShardSet> {
        // SAFETY: as in `wholes`.
        let pairs = self.table(guard).into_iter().flat_map(TableRef::iter).map(|slot| unsafe { slot.pair() });
        pairs.filter_map(|pair| match pair {
            Pair::ShardSet(split) => Some(split),
            Pair::ListLruOne(_) => None,
        })
    }

    /// The list to which an object of `memcg` goes: its own, made now if need be; else its nearest ancestor's. `missed`: the
    /// caller has found it taken already.
    pub(super) fn lock_to_add<'a>(
        &'a self,
        object: &Hook,
        memcg: &Memcg,
        node: NodeId,
        mut missed: bool,
        guard: &'a Guard,
    ) -> Result<LockedList<'a>, Refused> {
        let mut group = memcg;
        let mut may_populate = true;
        loop {
            match self.lookup(Key::new(group, node), guard) {
                Some(pair) => {
                    let list = match pair {
                        Pair::ListLruOne(one) => {
                            let mut list = one.lock(guard);
                            if core::mem::take(&mut missed) && list.count_miss() {
                                drop(list);
                                self.split(group, node, guard);
                                continue;
                            }
                            list
                        }
                        Pair::ShardSet(split) if core::mem::take(&mut missed) => split.elsewhere().lock(guard),
                        Pair::ShardSet(split) => split.here().lock(guard),
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
    pub(super) fn lock_effective_of<'a>(one: &'a ListLruOne, guard: &'a Guard) -> LockedList<'a> {
        Self::lock_effective_slow(one.lock(guard), guard)
    }

    #[cold]
    #[inline(never)]
    fn lock_effective_slow<'a>(mut list: LockedList<'a>, guard: &'a Guard) -> LockedList<'a> {
        while list.is_dead() && !list.forward().is_null() {
            // SAFETY: a dead list counts on what it forwards to until it is retired, and we entered the read side before that.
            let next = unsafe { &*list.forward() };
            drop(list);
            list = next.lock(guard);
        }
        list
    }

    /// The list of a published list's parent, which counts it (One's invariant 3); `None` for the root's.
    fn parent_of<'a>(&'a self, memcg: &Memcg, node: NodeId, guard: &'a Guard) -> Option<&'a ListLruOne> {
        let parent = memcg.parent()?;
        let one = self.whole(Key::new(parent, node), guard);
        Some(one.expect("a populated group's parent is populated (L6)"))
    }

    #[inline]
    fn announce(&self, first: FirstItem, list: &LockedList<'_>) {
        if let (FirstItem(true), Some(occupancy)) = (first, &self.occupancy) {
            occupancy.occupied(list.memcg(), list.one().node());
        }
    }

    /// Panics unless the structure holds together. Takes every lock, one after the other; for tests.
    pub(super) fn assert_valid(&self) {
        let guard = pin();
        let writer = self.writer.lock();
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
                let parent = self.lookup(Key::new(parent, one.node()), &guard);
                assert!(parent.is_some() || !memcg.is_online(), "a populated group's parent must be populated (L6)");
            }
            one.lock(&guard).assert_valid_with(matches!(pair, Pair::ShardSet(_)));
            for part in pair.lists().skip(1) {
                assert!(
                    part.is_of(Key::new(memcg, one.node())) && part.owner() == one.owner(),
                    "a part must be of its list's group and node"
                );
                let mut part = part.lock(&guard);
                assert!(!part.is_dead(), "what the table holds must not be dead");
                part.assert_valid();
            }
        }
    }
}
