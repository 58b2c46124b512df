//! Which groups have a list here, and where: read without a lock, written under the list's writer lock.
//!
//! Open addressing with linear probing over one array of pointers. A reader finds an entry, nothing (null), or the mark of an entry
//! that went ([`TOMB`]), over which it steps. Growth copies into a new array and publishes that; an array is freed when its
//! readers are gone. A list that holds nothing has no array at all.

use super::one::Key;
use super::One;
use crate::rcu::{Queue, Queues, Retired};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::UnsafeCell;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr;

const TOMB: *mut One = ptr::without_provenance_mut(1);

/// An array of slots; the capacity is a power of two.
pub(crate) struct Table {
    slots: Box<[AtomicPtr<One>]>,
    /// For who frees it.
    retired: UnsafeCell<*mut Table>,
}

// SAFETY: what the slots hold may be used from any thread, and `retired` is used only by who frees the table.
unsafe impl Send for Table {}
// SAFETY: as for Send.
unsafe impl Sync for Table {}

impl Retired for Table {
    fn link(&self) -> &UnsafeCell<*mut Self> {
        &self.retired
    }

    fn queue(queues: &mut Queues) -> &mut Queue<Self> {
        &mut queues.tables
    }

    #[cfg(lowwater_loom)]
    fn assert_unread(&mut self) {
        for slot in &mut self.slots {
            slot.with_mut(|_| ());
        }
    }
}

impl Table {
    /// An empty array of `capacity` slots, a power of two; `None` without memory.
    pub(super) fn try_new(capacity: usize) -> Option<Box<Self>> {
        debug_assert!(capacity.is_power_of_two(), "probing masks with the capacity");
        let mut slots = Vec::new();
        slots.try_reserve_exact(capacity).ok()?;
        slots.extend((0..capacity).map(|_| AtomicPtr::new(ptr::null_mut())));
        super::boxed::try_box(Self { slots: slots.into_boxed_slice(), retired: UnsafeCell::new(ptr::null_mut()) })
    }

    pub(super) fn capacity(&self) -> usize {
        self.slots.len()
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

    /// Where probing begins, before the mask.
    #[inline]
    fn start(key: Key) -> usize {
        // Fibonacci hashing of the id, with the node mixed in: ids are dense, so neighbours should spread.
        let hash = (u64::from(key.memcg.get()) << 16 | u64::from(key.node.get())).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 32) as usize
    }

    fn probe(&self, key: Key) -> impl Iterator<Item = &AtomicPtr<One>> {
        let (start, mask) = (Self::start(key), self.slots.len() - 1);
        (0..=mask).map(move |i| &self.slots[start.wrapping_add(i) & mask])
    }

    /// The list of `key`, or null. Lock-free; the caller is in the read side.
    #[inline]
    pub(super) fn get(&self, key: Key) -> *mut One {
        let mask = self.slots.len() - 1;
        let start = Self::start(key);
        for i in 0..=mask {
            // Acquire: meets the Release in `insert`, so that the list is seen as it was made.
            let one = self.slots[start.wrapping_add(i) & mask].load(Ordering::Acquire);
            if one.is_null() {
                break;
            }
            // SAFETY: what a slot holds is live for readers in the read side; the key never changes.
            if one != TOMB && unsafe { (*one).key() } == key {
                return one;
            }
        }
        ptr::null_mut()
    }

    /// Puts `one` into the first free slot of its probe. `used` says afterwards how many slots are not null.
    /// The caller holds the writer lock, `key` is not in, and there is room.
    pub(super) fn insert(&self, key: Key, one: *mut One, used: &mut u32) {
        for slot in self.probe(key) {
            // Relaxed: only writers store, and we hold their lock.
            let old = slot.load(Ordering::Relaxed);
            if old.is_null() || old == TOMB {
                *used += u32::from(old.is_null());
                // Release: meets the Acquire in `get`.
                slot.store(one, if crate::mutated!("publish_relaxed") { Ordering::Relaxed } else { Ordering::Release });
                return;
            }
        }
        unreachable!("the writer makes room before it inserts");
    }

    /// Takes `one` out. The caller holds the writer lock.
    pub(super) fn remove(&self, key: Key, one: *mut One) {
        for slot in self.probe(key) {
            // Relaxed: only writers store, and we hold their lock.
            if slot.load(Ordering::Relaxed) == one {
                // Relaxed: nothing is read through a TOMB. That readers leave first is the read side's doing.
                slot.store(TOMB, Ordering::Relaxed);
                return;
            }
        }
        unreachable!("a published list is in the table");
    }

    /// Everything in the table, as a writer or a reader in the read side sees it.
    pub(super) fn iter(&self) -> impl Iterator<Item = *mut One> + '_ {
        // Acquire: as in `get`.
        self.slots.iter().map(|slot| slot.load(Ordering::Acquire)).filter(|&one| !one.is_null() && one != TOMB)
    }

    /// The first entry at or after `slot` that `is_wanted`, and its slot. The caller holds the writer lock.
    pub(super) fn find_from(&self, slot: usize, is_wanted: impl Fn(&*mut One) -> bool) -> Option<(usize, *mut One)> {
        // Relaxed: only writers store, and we hold their lock.
        let slots = self.slots.iter().enumerate().skip(slot).map(|(i, one)| (i, one.load(Ordering::Relaxed)));
        slots.filter(|(_, one)| !one.is_null() && *one != TOMB).find(|(_, one)| is_wanted(one))
    }

    /// Bytes of an array of `capacity` slots.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.slots)
    }
}
