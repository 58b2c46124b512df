//! The table of a `ListLru`'s lists by (group, node): read without a lock, written under the writer
//! lock.
//!
//! Open addressing with linear probing over one array of pointers. A slot is empty (null), an
//! entry, or the tombstone of a removed entry ([`TOMB`]), over which readers step. An entry is a
//! list, or, distinguished by a bit of the pointer, a list with its shards. An array that is full
//! (tombstones count) or much too large is replaced: the entries are copied into a new array, and
//! the old one is freed after a grace period. A `ListLru` without lists has no array.
//!
//! A change must ensure that no slot of an array becomes empty again: a reader that probes without
//! a lock would miss an entry behind the slot. An entry changes to a tombstone or to another entry
//! of its key, and a tombstone to an entry of any key. `mutated!("name")` weakens one ordering in a
//! model check (docs/ORDERINGS.md).

#[cfg(all(test, not(lowwater_loom)))]
mod tests;

use super::key::Key;
use super::list_lru_one::ListLruOne;
use super::shards::ShardSet;
use crate::rcu::{Retired, RetiredKind};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::UnsafeCell;
use alloc::alloc::{alloc, dealloc};
use core::alloc::Layout;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

/// The tombstone of a removed entry.
const TOMB: *mut ListLruOne = ptr::without_provenance_mut(1);

/// The bit of a slot's pointer that marks a [`ShardSet`].
const SPLIT: usize = 2;

/// The tag bits. No list and no `ShardSet` has an address with one of these set.
const TAGS: usize = 3;

/// An entry of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TableSlot(*mut ListLruOne);

/// The lists of one pair of a group and a node: the target of an entry.
#[derive(Clone, Copy)]
pub(super) enum Pair<'a> {
    ListLruOne(&'a ListLruOne),
    ShardSet(&'a ShardSet),
}

impl TableSlot {
    #[inline]
    pub(super) fn of_one(one: *mut ListLruOne) -> Self {
        Self(one)
    }

    pub(super) fn of_split(split: *mut ShardSet) -> Self {
        Self(split.map_addr(|addr| addr | SPLIT).cast())
    }

    /// Returns the target of the entry.
    ///
    /// # Safety
    ///
    /// The entry was read from a table while the caller was in the read side, and the result is not
    /// used after the caller leaves it.
    #[inline]
    pub(super) unsafe fn pair<'a>(self) -> Pair<'a> {
        if self.0.addr() & SPLIT == 0 {
            // SAFETY: the caller is in the read side (this function's clause), in which a table
            // entry is live; without the bit it is a list.
            Pair::ListLruOne(unsafe { &*self.0 })
        } else {
            // SAFETY: the caller is in the read side (this function's clause), in which a table
            // entry is live; by the bit it is a `ShardSet`.
            Pair::ShardSet(unsafe { &*self.split() })
        }
    }

    /// Returns the pointer that was passed to [`of_split`](Self::of_split).
    pub(super) fn split(self) -> *mut ShardSet {
        self.0.map_addr(|addr| addr & !TAGS).cast()
    }
}

impl<'a> Pair<'a> {
    /// Returns the list itself, whether or not it has shards.
    #[inline]
    pub(super) fn whole(self) -> &'a ListLruOne {
        match self {
            Self::ListLruOne(one) => one,
            Self::ShardSet(split) => split.whole(),
        }
    }

    /// Returns the number of items on the list and its shards.
    pub(super) fn nr_items(self) -> u64 {
        match self {
            Self::ListLruOne(one) => one.nr_items().into(),
            Self::ShardSet(split) => split.nr_items(),
        }
    }

    /// Iterates over the list and its shards.
    pub(super) fn lists(self) -> impl Iterator<Item = &'a ListLruOne> {
        let shards = match self {
            Self::ListLruOne(_) => None,
            Self::ShardSet(split) => Some(split.shards()),
        };
        core::iter::once(self.whole()).chain(shards.into_iter().flatten())
    }
}

/// The head of an array of slots. The slots follow it in the same allocation, so that a reader
/// follows one pointer to both. The capacity is a power of two.
#[repr(C)]
pub(crate) struct ListTable {
    capacity: usize,
    /// The link of the queue of retired objects.
    retired: UnsafeCell<*mut ListTable>,
}

/// A table that is live for `'a`. Not a reference, since a reference's provenance would cover the
/// head only.
#[derive(Clone, Copy)]
pub(super) struct TableRef<'a>(NonNull<ListTable>, PhantomData<&'a ListTable>);

// SAFETY: the lists that the slots point to may be used from any thread, and `retired` is used only
// by the thread that frees the table.
unsafe impl Send for ListTable {}
// SAFETY: the slots are atomics, the capacity does not change, and `retired` is used only by the
// thread that frees the table.
unsafe impl Sync for ListTable {}

// SAFETY: `kind` returns one static, and no code but the retire queue uses the link of a retired
// `ListTable`.
unsafe impl Retired for ListTable {
    fn link(&self) -> &UnsafeCell<*mut Self> {
        &self.retired
    }

    fn kind() -> &'static RetiredKind {
        static KIND: RetiredKind = RetiredKind::of::<ListTable>();
        &KIND
    }

    unsafe fn free(this: *mut Self) {
        // SAFETY: a retired pointer is not null.
        let table = unsafe { NonNull::new_unchecked(this) };
        // SAFETY: the table came from `try_new`, and is freed only at the end of this call (clause
        // of `free`).
        let table = unsafe { TableRef::of(table) };
        let layout = Self::layout(table.capacity()).expect("the table has the layout of its allocation");
        let slots = table.slots_raw().as_ptr();
        // SAFETY: no other thread has the table any more (clause of `free`).
        unsafe { ptr::drop_in_place(slots) };
        // SAFETY: no other thread has the table any more (clause of `free`).
        unsafe { ptr::drop_in_place(this) };
        // SAFETY: the memory came from `try_new`, which allocates with this layout.
        unsafe { dealloc(this.cast(), layout) };
    }

    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut Self) {
        // SAFETY: a retired pointer is not null.
        let table = unsafe { NonNull::new_unchecked(this) };
        // SAFETY: the table is live, and the caller alone has it (clause of `assert_unread`).
        let table = unsafe { TableRef::of(table) };
        let slots = table.slots_raw().as_ptr();
        // SAFETY: the caller alone has the table (clause of `assert_unread`), so the reference is
        // unique.
        for slot in unsafe { &mut *slots } {
            slot.with_mut(|_| ());
        }
    }
}

impl ListTable {
    /// Creates an empty array of `capacity` slots, a power of two; `None` if there is no memory.
    pub(super) fn try_new(capacity: usize) -> Option<NonNull<Self>> {
        debug_assert!(capacity.is_power_of_two(), "probing masks with the capacity");
        #[cfg(test)]
        if super::refusable::fault::is_now() {
            return None;
        }
        // SAFETY: the layout includes the head, so its size is not 0.
        let table = NonNull::new(unsafe { alloc(Self::layout(capacity)?) })?.cast::<Self>();
        let head = Self { capacity, retired: UnsafeCell::new(ptr::null_mut()) };
        // SAFETY: the memory is freshly allocated with this layout, and the head comes first.
        unsafe { table.write(head) };
        for n in 0..capacity {
            // SAFETY: the allocation has `capacity` slots behind the head, and `n` is less.
            let slot = unsafe { Self::first_slot(table).add(n) };
            // SAFETY: `slot` lies in the fresh allocation, aligned.
            unsafe { slot.write(AtomicPtr::new(ptr::null_mut())) };
        }
        Some(table)
    }

    /// Frees an array that was not published.
    pub(super) fn discard(this: NonNull<Self>) {
        // SAFETY: it came from `try_new` and was not published, so no other thread has it.
        unsafe { Self::free(this.as_ptr()) };
    }

    fn layout(capacity: usize) -> Option<Layout> {
        let slots = Layout::array::<AtomicPtr<ListLruOne>>(capacity).ok()?;
        Layout::new::<Self>().extend(slots).ok().map(|(all, _)| all)
    }

    #[inline]
    fn first_slot(this: NonNull<Self>) -> NonNull<AtomicPtr<ListLruOne>> {
        const {
            assert!(
                align_of::<AtomicPtr<ListLruOne>>() <= align_of::<ListTable>(),
                "the slots begin where the head ends"
            )
        };
        // SAFETY: the allocation continues behind the head with the slots (possibly none, then this
        // is one past its end).
        unsafe { this.add(1) }.cast()
    }

    /// Returns the number of entries and tombstones that an array of this capacity may have: more
    /// would make probes long. Arrays of up to 8 slots may fill up.
    pub(super) fn used_max(capacity: usize) -> usize {
        if capacity <= 8 {
            capacity
        } else {
            capacity / 4 * 3
        }
    }

    /// Returns the capacity for `live` entries. Beyond 8 slots, an eighth of the capacity is left
    /// below [`used_max`](Self::used_max), so that the next replacement is as many inserts away.
    pub(super) fn capacity_for(live: usize) -> usize {
        let mut capacity = live.next_power_of_two();
        while capacity > 8 && live + capacity / 8 > Self::used_max(capacity) {
            capacity *= 2;
        }
        capacity
    }
}

impl<'a> TableRef<'a> {
    /// Wraps a pointer to a table.
    ///
    /// # Safety
    ///
    /// `table` came from [`ListTable::try_new`], and is not freed as long as the result is used.
    #[inline]
    pub(super) unsafe fn of(table: NonNull<ListTable>) -> Self {
        Self(table, PhantomData)
    }

    #[inline]
    pub(super) fn capacity(self) -> usize {
        // SAFETY: the table is live for `'a` (clause of `of`).
        unsafe { (*self.0.as_ptr()).capacity }
    }

    #[inline]
    fn slots(self) -> &'a [AtomicPtr<ListLruOne>] {
        // SAFETY: `try_new` initialized `capacity` slots behind the head, and the table is live for
        // `'a` (clause of `of`).
        unsafe { self.slots_raw().as_ref() }
    }

    #[inline]
    fn slots_raw(self) -> NonNull<[AtomicPtr<ListLruOne>]> {
        NonNull::slice_from_raw_parts(ListTable::first_slot(self.0), self.capacity())
    }

    /// Returns the slot at which a probe begins, before masking.
    #[inline]
    fn start(key: Key) -> usize {
        // The node is known before the group is loaded, so its multiplication overlaps with that
        // load: two additions are all that is added to the critical path.
        let (of_node, high) = (usize::from(key.node.get()).wrapping_mul(0x9E37_79B1), (key.id.get() as usize) << 16);
        usize::from(key.spread).wrapping_add(of_node).wrapping_add(high)
    }

    fn probe(self, key: Key) -> impl Iterator<Item = &'a AtomicPtr<ListLruOne>> {
        let (start, mask, slots) = (Self::start(key), self.capacity() - 1, self.slots());
        (0..=mask).map(move |i| &slots[start.wrapping_add(i) & mask])
    }

    /// Returns the entry of `key`. Lock-free; the caller is in the read side.
    #[inline]
    pub(super) fn get(self, key: Key) -> Option<TableSlot> {
        let (mask, slots) = (self.capacity() - 1, self.slots());
        let start = Self::start(key);
        for i in 0..=mask {
            // Acquire: pairs with the Release in `insert` and `replace`, so that the contents of
            // the list and its shards are visible.
            let one = slots[start.wrapping_add(i) & mask].load(Ordering::Acquire);
            if one.is_null() {
                break;
            }
            // SAFETY: the caller is in the read side, in which a table entry is live.
            let is_it = one != TOMB
                && match unsafe { TableSlot(one).pair() } {
                    Pair::ListLruOne(one) => one.is_of(key),
                    Pair::ShardSet(split) => split.key() == key,
                };
            if is_it {
                return Some(TableSlot(one));
            }
        }
        None
    }

    /// Puts an entry into the first free slot of its probe sequence, and adds one to `used` if the
    /// slot was null before. The caller holds the writer lock, `key` is not in the table, and there
    /// is room.
    pub(super) fn insert(self, key: Key, entry: TableSlot, used: &mut u32) {
        for slot in self.probe(key) {
            // Relaxed: only writers store, and we hold their lock.
            let old = slot.load(Ordering::Relaxed);
            if old.is_null() || old == TOMB {
                *used += u32::from(old.is_null());
                // Release: pairs with the Acquire in `get`.
                let ordering = if crate::mutated!("publish_relaxed") { Ordering::Relaxed } else { Ordering::Release };
                slot.store(entry.0, ordering);
                return;
            }
        }
        unreachable!("the writer makes room before it inserts");
    }

    /// Replaces an entry. The caller holds the writer lock.
    pub(super) fn replace(self, key: Key, old: TableSlot, new: TableSlot) {
        // Relaxed: only writers store, and we hold their lock.
        let slot = self.probe(key).find(|slot| slot.load(Ordering::Relaxed) == old.0);
        // Release: pairs with the Acquire in `get`.
        let ordering = if crate::mutated!("split_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        slot.expect("a published list is in the table").store(new.0, ordering);
    }

    /// Removes an entry, which leaves a tombstone. The caller holds the writer lock.
    pub(super) fn remove(self, key: Key, entry: TableSlot) {
        for slot in self.probe(key) {
            // Relaxed: only writers store, and we hold their lock.
            if slot.load(Ordering::Relaxed) == entry.0 {
                // Relaxed: nothing is read through a TOMB. The removed list is kept alive for
                // readers by the read side.
                slot.store(TOMB, Ordering::Relaxed);
                return;
            }
        }
        unreachable!("a published list is in the table");
    }

    /// Iterates over all entries, for a caller that holds the writer lock or is in the read side.
    pub(super) fn iter(self) -> impl Iterator<Item = TableSlot> + 'a {
        // Acquire: pairs with the Release in `insert` and `replace`, so that the contents of the
        // lists are visible.
        let slots = self.slots().iter().map(|slot| slot.load(Ordering::Acquire));
        slots.filter(|&one| !one.is_null() && one != TOMB).map(TableSlot)
    }

    /// Returns the first entry at or after `slot` for which `is_wanted` holds, and its slot. The
    /// caller holds the writer lock.
    pub(super) fn find_from(self, slot: usize, is_wanted: impl Fn(&TableSlot) -> bool) -> Option<(usize, TableSlot)> {
        // Relaxed: only writers store, and we hold their lock.
        let slots = self.slots().iter().enumerate().skip(slot).map(|(i, one)| (i, one.load(Ordering::Relaxed)));
        let mut entries = slots.filter(|(_, one)| !one.is_null() && *one != TOMB).map(|(i, one)| (i, TableSlot(one)));
        entries.find(|(_, entry)| is_wanted(entry))
    }

    /// Returns the size of the allocation.
    pub(super) fn bytes(self) -> usize {
        size_of::<ListTable>() + size_of_val(self.slots())
    }
}
