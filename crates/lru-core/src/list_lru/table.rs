//! Which groups have a list here, and where: read without a lock, written under the list's writer lock.
//!
//! Open addressing with linear probing over one array of pointers. A reader finds an entry, nothing (null), or the mark of an entry
//! that went ([`TOMB`]), over which it steps. An entry is a list, or, told by a bit of the pointer, a list with its parts. Growth
//! copies into a new array and publishes that; an array is freed when its readers are gone. A list that holds nothing has no
//! array at all.

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

const TOMB: *mut ListLruOne = ptr::without_provenance_mut(1);

/// The bit of a slot that leads to a [`ShardSet`].
const SPLIT: usize = 2;

/// No list and no split has an address with one of these.
const TAGS: usize = 3;

/// An entry of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TableSlot(*mut ListLruOne);

/// What an entry leads to.
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

    /// # Safety
    ///
    /// It came from a table while the caller was in the read side, and is used no longer than that.
    #[inline]
    pub(super) unsafe fn pair<'a>(self) -> Pair<'a> {
        if self.0.addr() & SPLIT == 0 {
            // SAFETY: what a slot holds is live in the read side, says the caller.
            Pair::ListLruOne(unsafe { &*self.0 })
        } else {
            // SAFETY: as above; by the bit it is a split.
            Pair::ShardSet(unsafe { &*self.split() })
        }
    }

    /// The split to which it leads, as it was given.
    pub(super) fn split(self) -> *mut ShardSet {
        self.0.map_addr(|addr| addr & !TAGS).cast()
    }
}

impl<'a> Pair<'a> {
    /// The list itself, with or without parts beside it.
    #[inline]
    pub(super) fn whole(self) -> &'a ListLruOne {
        match self {
            Self::ListLruOne(one) => one,
            Self::ShardSet(split) => split.whole(),
        }
    }

    /// How many items are on it and on its parts.
    pub(super) fn nr_items(self) -> u64 {
        match self {
            Self::ListLruOne(one) => one.nr_items().into(),
            Self::ShardSet(split) => split.nr_items(),
        }
    }

    /// The list and the parts beside it.
    pub(super) fn lists(self) -> impl Iterator<Item = &'a ListLruOne> {
        let parts = match self {
            Self::ListLruOne(_) => None,
            Self::ShardSet(split) => Some(split.parts()),
        };
        core::iter::once(self.whole()).chain(parts.into_iter().flatten())
    }
}

/// The head of an array of slots, which lie right behind it, so that a reader follows one pointer to both. The capacity is a
/// power of two.
#[repr(C)]
pub(crate) struct ListTable {
    capacity: usize,
    /// For who frees it.
    retired: UnsafeCell<*mut ListTable>,
}

/// A table that is live for `'a`. Not a reference, as that would lead to the head alone.
#[derive(Clone, Copy)]
pub(super) struct TableRef<'a>(NonNull<ListTable>, PhantomData<&'a ListTable>);

// SAFETY: what the slots hold may be used from any thread, and `retired` is used only by who frees the table.
unsafe impl Send for ListTable {}
// SAFETY: as for Send.
unsafe impl Sync for ListTable {}

// SAFETY: one static; nobody uses the link of a retired ListTable.
unsafe impl Retired for ListTable {
    fn link(&self) -> &UnsafeCell<*mut Self> {
        &self.retired
    }

    fn kind() -> &'static RetiredKind {
        static KIND: RetiredKind = RetiredKind::of::<ListTable>();
        &KIND
    }

    unsafe fn free(this: *mut Self) {
        // SAFETY: what is retired is not null.
        let table = unsafe { NonNull::new_unchecked(this) };
        // SAFETY: it is live until we are done, says the caller.
        let table = unsafe { TableRef::of(table) };
        let layout = Self::layout(table.capacity()).expect("it was allocated with this layout");
        let slots = table.slots_raw().as_ptr();
        // SAFETY: nobody else has it.
        unsafe { ptr::drop_in_place(slots) };
        // SAFETY: as above.
        unsafe { ptr::drop_in_place(this) };
        // SAFETY: it came from `try_new`, which allocates with this layout.
        unsafe { dealloc(this.cast(), layout) };
    }

    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut Self) {
        // SAFETY: what is retired is not null.
        let table = unsafe { NonNull::new_unchecked(this) };
        // SAFETY: it is live, says the caller, who alone has it.
        let table = unsafe { TableRef::of(table) };
        let slots = table.slots_raw().as_ptr();
        // SAFETY: as above.
        for slot in unsafe { &mut *slots } {
            slot.with_mut(|_| ());
        }
    }
}

impl ListTable {
    /// An empty array of `capacity` slots, a power of two; `None` without memory.
    pub(super) fn try_new(capacity: usize) -> Option<NonNull<Self>> {
        debug_assert!(capacity.is_power_of_two(), "probing masks with the capacity");
        #[cfg(test)]
        if super::refusable::fault::is_now() {
            return None;
        }
        // SAFETY: the layout's size is not 0, as the head has one.
        let table = NonNull::new(unsafe { alloc(Self::layout(capacity)?) })?.cast::<Self>();
        let head = Self { capacity, retired: UnsafeCell::new(ptr::null_mut()) };
        // SAFETY: this is fresh memory, and the head comes first.
        unsafe { table.write(head) };
        for n in 0..capacity {
            // SAFETY: so many slots lie behind the head.
            let slot = unsafe { Self::first_slot(table).add(n) };
            // SAFETY: as above.
            unsafe { slot.write(AtomicPtr::new(ptr::null_mut())) };
        }
        Some(table)
    }

    /// Frees one that was not published.
    pub(super) fn discard(this: NonNull<Self>) {
        // SAFETY: it came from `try_new`, and nobody saw it.
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
        // SAFETY: the allocation goes on behind the head.
        unsafe { this.add(1) }.cast()
    }

    /// How many entries, present or gone, an array of this capacity takes before probing gets long. Small ones may fill.
    pub(super) fn used_max(capacity: usize) -> usize {
        if capacity <= 8 {
            capacity
        } else {
            capacity / 4 * 3
        }
    }

    /// The capacity for so many entries. An eighth stays free beyond that, so that the next replacement is as many changes away.
    pub(super) fn capacity_for(live: usize) -> usize {
        let mut capacity = live.next_power_of_two();
        while capacity > 8 && live + capacity / 8 > Self::used_max(capacity) {
            capacity *= 2;
        }
        capacity
    }
}

impl<'a> TableRef<'a> {
    /// # Safety
    ///
    /// It came from [`ListTable::try_new`], and is not freed as long as this is used.
    #[inline]
    pub(super) unsafe fn of(table: NonNull<ListTable>) -> Self {
        Self(table, PhantomData)
    }

    #[inline]
    pub(super) fn capacity(self) -> usize {
        // SAFETY: it is live for as long as we are.
        unsafe { (*self.0.as_ptr()).capacity }
    }

    #[inline]
    fn slots(self) -> &'a [AtomicPtr<ListLruOne>] {
        // SAFETY: so many slots lie behind the head, and are live for as long as we are.
        unsafe { self.slots_raw().as_ref() }
    }

    #[inline]
    fn slots_raw(self) -> NonNull<[AtomicPtr<ListLruOne>]> {
        NonNull::slice_from_raw_parts(ListTable::first_slot(self.0), self.capacity())
    }

    /// Where probing begins, before the mask.
    #[inline]
    fn start(key: Key) -> usize {
        // The node is at hand when the group is looked at, so that all this adds to the way there is two additions.
        let (of_node, high) = (usize::from(key.node.get()).wrapping_mul(0x9E37_79B1), (key.id.get() as usize) << 16);
        usize::from(key.spread).wrapping_add(of_node).wrapping_add(high)
    }

    fn probe(self, key: Key) -> impl Iterator<Item = &'a AtomicPtr<ListLruOne>> {
        let (start, mask, slots) = (Self::start(key), self.capacity() - 1, self.slots());
        (0..=mask).map(move |i| &slots[start.wrapping_add(i) & mask])
    }

    /// The entry of `key`. Lock-free; the caller is in the read side.
    #[inline]
    pub(super) fn get(self, key: Key) -> Option<TableSlot> {
        let (mask, slots) = (self.capacity() - 1, self.slots());
        let start = Self::start(key);
        for i in 0..=mask {
            // Acquire: meets the Release in `insert` and `replace`, so that the list is seen as it was made, and its parts.
            let one = slots[start.wrapping_add(i) & mask].load(Ordering::Acquire);
            if one.is_null() {
                break;
            }
            // SAFETY: what a slot holds is live for readers in the read side.
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

    /// Puts an entry into the first free slot of its probe. `used` says afterwards how many slots are not null.
    /// The caller holds the writer lock, `key` is not in, and there is room.
    pub(super) fn insert(self, key: Key, entry: TableSlot, used: &mut u32) {
        for slot in self.probe(key) {
            // Relaxed: only writers store, and we hold their lock.
            let old = slot.load(Ordering::Relaxed);
            if old.is_null() || old == TOMB {
                *used += u32::from(old.is_null());
                // Release: meets the Acquire in `get`.
                let ordering = if crate::mutated!("publish_relaxed") { Ordering::Relaxed } else { Ordering::Release };
                slot.store(entry.0, ordering);
                return;
            }
        }
        unreachable!("the writer makes room before it inserts");
    }

    /// Puts an entry in place of another. The caller holds the writer lock.
    pub(super) fn replace(self, key: Key, old: TableSlot, new: TableSlot) {
        // Relaxed: only writers store, and we hold their lock.
        let slot = self.probe(key).find(|slot| slot.load(Ordering::Relaxed) == old.0);
        // Release: meets the Acquire in `get`.
        let ordering = if crate::mutated!("split_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        slot.expect("a published list is in the table").store(new.0, ordering);
    }

    /// Takes an entry out. The caller holds the writer lock.
    pub(super) fn remove(self, key: Key, entry: TableSlot) {
        for slot in self.probe(key) {
            // Relaxed: only writers store, and we hold their lock.
            if slot.load(Ordering::Relaxed) == entry.0 {
                // Relaxed: nothing is read through a TOMB. That readers leave first is the read side's doing.
                slot.store(TOMB, Ordering::Relaxed);
                return;
            }
        }
        unreachable!("a published list is in the table");
    }

    /// Everything in the table, as a writer or a reader in the read side sees it.
    pub(super) fn iter(self) -> impl Iterator<Item = TableSlot> + 'a {
        // Acquire: as in `get`.
        let slots = self.slots().iter().map(|slot| slot.load(Ordering::Acquire));
        slots.filter(|&one| !one.is_null() && one != TOMB).map(TableSlot)
    }

    /// The first entry at or after `slot` that `is_wanted`, and its slot. The caller holds the writer lock.
    pub(super) fn find_from(self, slot: usize, is_wanted: impl Fn(&TableSlot) -> bool) -> Option<(usize, TableSlot)> {
        // Relaxed: only writers store, and we hold their lock.
        let slots = self.slots().iter().enumerate().skip(slot).map(|(i, one)| (i, one.load(Ordering::Relaxed)));
        let mut entries = slots.filter(|(_, one)| !one.is_null() && *one != TOMB).map(|(i, one)| (i, TableSlot(one)));
        entries.find(|(_, entry)| is_wanted(entry))
    }

    /// Bytes of an array of `capacity` slots.
    pub(super) fn bytes(self) -> usize {
        size_of::<ListTable>() + size_of_val(self.slots())
    }
}
