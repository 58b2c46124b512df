//! The implementation of [`ListLru`](super::ListLru) that does not depend on the type of the items.
//!
//! ```text
//!     ListTable: (group, node) -> ListLruOne     read without a lock; published and unpublished under `writer`
//!     Memcg::attached: group -> its lists        the same lists, for the group's offline
//! ```
//!
//! Lock order: the caller's own locks, a group's `reparenting` lock, the lock of its chain,
//! `writer`, a list's lock, the locks of its shards (one at a time), the lock of an ancestor's
//! list. The listener ([`Occupancy`]) is called under a list's lock, so its locks come last.
//! Exception: listeners and walks' callbacks may be the first to add to another `ListLru`, and so
//! wait for a chain under a list's lock. So the holder of a chain waits for no lock but those of
//! shards that it joins: no walk of them is in progress then, and [`Occupancy`] forbids listeners
//! to wait for this chain under them. A group that goes offline waits for lists under
//! `reparenting`, for which no callback waits. An owner that is being dropped may wait for its own
//! list and `writer`, as none of its lists is walked then.
//!
//! # A group goes offline during an add (R1, R2)
//!
//! ```text
//!     offline                                    add, del, walk
//!       close the group's chain                    find the ListLruOne, or publish one if the chain is open
//!       lock the ListLruOne and its parent's       lock it
//!       move the items, mark it dead               dead? continue with the parent's (add), or with `forward` (del)
//!       unpublish it                               not found? continue with the parent's
//! ```
//!
//! The list is drained and marked dead before it is unpublished. So a thread that finds the list
//! either locks it before the drain or finds it dead; and a thread that no longer finds it finds
//! all items on the parent's list already.
//!
//! If the list has [shards](super::shards), its lock is held until they are empty, too.
//!
//! # A sweep frees an empty list during an add
//!
//! ```text
//!     sweep                                      add
//!       lock the writer and the ListLruOne         find the ListLruOne, lock it
//!       empty, and no other reference?
//!       mark it dead, take it out                  dead, and the group is online? look up again: it is out by now
//!       unlock both                                not found? publish one, with the writer locked
//! ```
//!
//! A dead list means either that its group died or that it was idle. The group's own state
//! distinguishes the two: the group is dying before its first list is drained. A child's list
//! counts as a reference on its parent's from its publication on, which happens under the writer
//! lock. So a list that a sweep takes out has no child, and ancestors' lists exist as long as they
//! are needed (L6).
//!
//! A change must keep the lock order and both protocols above. `mutated!("name")` leaves one step
//! out in a model check (docs/ORDERINGS.md).
//!
//! Numbers such as R2 are those of docs/INVARIANTS.md.

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

/// The lists of one `ListLru`, one for each used (group, node), without the item type; see the
/// module.
#[repr(C)]
pub(crate) struct RawListLru {
    // The first field: the lists' pointers to the head are also pointers to the whole structure.
    head: ListsHead,
    /// Null while there are no lists. Replaced under the writer lock; the old one is retired.
    table: AtomicPtr<ListTable>,
    writer: Mutex<Writer>,
    /// The set whose shards are being joined, from before the table slot refers to the list again
    /// until the shards are empty; else null. Changes under the writer lock.
    ending: AtomicPtr<ShardSet>,
    /// The listener: called when a list goes from no items to some.
    occupancy: Option<Arc<dyn Occupancy>>,
}

/// Table bookkeeping that only writers use.
struct Writer {
    /// Lists in the table.
    live: u32,
    /// Slots that are not null: lists, and tombstones of lists that were removed.
    used: u32,
    /// Lists that have shards.
    split: u32,
}

impl Writer {
    /// Returns the capacity of a table with room for one more list; `None` at the limit of lists.
    fn capacity_needed(&self) -> Option<usize> {
        (self.live < PAIRS_MAX).then(|| ListTable::capacity_for(self.live as usize + 1))
    }

    fn has_room(&self, table: TableRef<'_>) -> bool {
        (self.used as usize) < ListTable::used_max(table.capacity())
    }
}

/// The maximum number of (group, node) lists, so that the 32-bit counts of [`Writer`] do not
/// overflow; further ones are refused as if there were no memory. Their table alone takes 8 GiB.
const PAIRS_MAX: u32 = 1 << 29;

/// The reason why a list could not be created.
#[derive(Debug)]
enum Unpopulated {
    /// The group is dying.
    Closed,
    /// There is no memory.
    NoMemory,
}

impl RawListLru {
    /// Returns the pointer to this structure that its lists store.
    pub(super) fn as_owner(&self) -> *const ListsHead {
        ptr::from_ref(self).cast()
    }

    /// Returns the `RawListLru` that a list belongs to.
    ///
    /// # Safety
    ///
    /// As long as the result is used, the caller holds the list's lock, the lock of the chain that
    /// the list is on, or its group's `reparenting` lock, so that the owner is not dropped.
    pub(super) unsafe fn of<'a>(one: &ListLruOne) -> &'a Self {
        // SAFETY: every list was created with the pointer from `as_owner`, which is one to a whole
        // `RawListLru`; the structure is live (this function's clause).
        unsafe { &*one.owner().cast::<Self>() }
    }

    /// Creates the list to which `add` would add, and counts a reference on it. `None` if there is
    /// no memory.
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
                        continue; // The list was idle, and is out of the table by now.
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
        // SAFETY: the list counts the reference of `prepare`, which is given up only below, so the
        // list is not retired.
        let one = unsafe { one.as_ref() };
        let mut list = Self::lock_effective_of(one, &guard);
        // SAFETY: the reference of `prepare` is given up, and this is the effective list.
        unsafe { list.put(one) };
    }

    #[inline]
    fn table<'a>(&self, _guard: &'a Guard) -> Option<TableRef<'a>> {
        // Acquire: pairs with the Release in `replace_table`, so that the array's contents are
        // visible.
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: a table is retired after it was replaced, and the caller is in the read side for
        // `'a`, so it is live.
        NonNull::new(table).map(|table| unsafe { TableRef::of(table) })
    }

    #[inline]
    fn lookup<'a>(&self, key: Key, guard: &'a Guard) -> Option<Pair<'a>> {
        // SAFETY: entries of the table are live in the read side, in which `guard` keeps the
        // caller.
        self.table(guard)?.get(key).map(|slot| unsafe { slot.pair() })
    }

    /// Returns the list itself, whether or not it has shards.
    fn whole<'a>(&self, key: Key, guard: &'a Guard) -> Option<&'a ListLruOne> {
        self.lookup(key, guard).map(Pair::whole)
    }

    /// Iterates over all lists, without the shards.
    fn wholes<'a>(&self, guard: &'a Guard) -> impl Iterator<Item = &'a ListLruOne> {
        // SAFETY: entries of the table are live in the read side, in which `guard` keeps the
        // caller.
        self.table(guard).into_iter().flat_map(TableRef::iter).map(|slot| unsafe { slot.pair() }.whole())
    }

    /// Iterates over the sets of shards of all lists that have shards.
    fn splits<'a>(&self, guard: &'a Guard) -> impl Iterator<Item = &'a ShardSet> {
        // SAFETY: entries of the table are live in the read side, in which `guard` keeps the
        // caller.
        let pairs = self.table(guard).into_iter().flat_map(TableRef::iter).map(|slot| unsafe { slot.pair() });
        pairs.filter_map(|pair| match pair {
            Pair::ShardSet(split) => Some(split),
            Pair::ListLruOne(_) => None,
        })
    }

    /// Locks the list to which an object of `memcg` is added: the group's own list, created now if
    /// necessary, or the nearest ancestor's. No list is created for an `object` that is linked;
    /// `None` stands for the objects of a batch, which are on an `Isolated`. `missed`: the caller
    /// has found the lock taken already.
    pub(super) fn lock_to_add<'a>(
        &'a self,
        object: Option<&Hook>,
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
                        Pair::ShardSet(split) if core::mem::take(&mut missed) => split.other_shard().lock(guard),
                        Pair::ShardSet(split) => split.own_shard().lock(guard),
                    };
                    if !list.is_dead() {
                        return Ok(list);
                    }
                    if group.is_online() {
                        continue; // The list was idle, or a shard, and is out of the table by now.
                    }
                }
                // Do not create a list for an object that cannot be added to it.
                None if object.is_some_and(Hook::is_linked) => return Err(Refused::Linked),
                None if may_populate => match self.populate(group, node, guard) {
                    Ok(()) => continue,
                    Err(Unpopulated::Closed) => {}
                    Err(Unpopulated::NoMemory) => may_populate = false,
                },
                None => {}
            }
            // The group is dying or its list cannot be created: the item goes to the parent's list.
            group = group.parent().ok_or(Refused::NoMemory)?;
        }
    }

    /// Locks the list that holds the items whose home is `one` (invariant 2 of `ListLruOne`). A
    /// dead list without a forward is its own effective list: it was the root's, and nothing counts
    /// on it.
    pub(super) fn lock_effective_of<'a>(one: &'a ListLruOne, guard: &'a Guard) -> LockedList<'a> {
        Self::lock_effective_slow(one.lock(guard), guard)
    }

    #[cold]
    #[inline(never)]
    fn lock_effective_slow<'a>(mut list: LockedList<'a>, guard: &'a Guard) -> LockedList<'a> {
        while list.is_dead() && !list.forward().is_null() {
            // SAFETY: a dead list counts a reference on its `forward` until it is retired, and the
            // caller entered the read side before that.
            let next = unsafe { &*list.forward() };
            drop(list);
            list = next.lock(guard);
        }
        list
    }

    /// Returns the list of a published list's parent group, which counts a reference for the
    /// child's list (invariant 3 of `ListLruOne`); `None` for the root's.
    fn parent_of<'a>(&'a self, memcg: &Memcg, node: NodeId, guard: &'a Guard) -> Option<&'a ListLruOne> {
        let parent = memcg.parent()?;
        let one = self.whole(Key::new(parent, node), guard);
        Some(one.expect("a populated group's parent is populated (L6)"))
    }

    /// Calls the listener if `first` says that the list, which is locked, was empty before.
    #[inline]
    fn announce(&self, first: FirstItem, list: &LockedList<'_>) {
        if let (FirstItem(true), Some(occupancy)) = (first, &self.occupancy) {
            occupancy.occupied(list.memcg(), list.one().node());
        }
    }

    /// Panics unless all invariants hold. Takes the writer lock, and the lists' locks one after the
    /// other; for tests.
    pub(super) fn assert_valid(&self) {
        let guard = pin();
        let writer = self.writer.lock();
        let slots: Vec<_> = self.table(&guard).iter().flat_map(|table| table.iter()).collect();
        assert_eq!(
            slots.len(),
            writer.live as usize,
            "the table must hold as many lists as were published and not unpublished"
        );
        assert_eq!(self.table(&guard).is_none(), slots.is_empty(), "a table must exist exactly if lists do");
        assert_eq!(self.splits(&guard).count(), writer.split as usize, "as many lists must have shards as were split");
        for slot in slots {
            // SAFETY: `guard` keeps this thread in the read side, so the table's entries are live.
            let pair = unsafe { slot.pair() };
            let one = pair.whole();
            // SAFETY: the writer lock is held, and `one` is in the table.
            let memcg = unsafe { one.memcg_of_published() };
            if let Some(parent) = memcg.parent() {
                let parent = self.lookup(Key::new(parent, one.node()), &guard);
                assert!(parent.is_some() || !memcg.is_online(), "a populated group's parent must be populated (L6)");
            }
            one.lock(&guard).assert_valid_with(matches!(pair, Pair::ShardSet(_)));
            for shard in pair.lists().skip(1) {
                assert!(
                    shard.is_of(Key::new(memcg, one.node())) && shard.owner() == one.owner(),
                    "a shard must be of its list's group and node"
                );
                let mut shard = shard.lock(&guard);
                assert!(!shard.is_dead(), "a shard in the table is not dead");
                shard.assert_valid();
            }
        }
    }
}
