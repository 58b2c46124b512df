//! Tests of [`ExtendibleIndex`](super::ExtendibleIndex), and what they share. The indexed object is
//! an [`Entry`], a key with a value; `put`, `get`, `replace` and `remove` are the calls of the
//! index with the closures that every test needs.
//!
//! `model` compares random histories with a plain map, with good and bad hashes; `threads` runs
//! several threads; `pool` tests the memory of segments; `loom` checks small models in every order.
//!
//! A change must ensure that the comparison of keys in [`get`] reads the value as well: so the
//! model checks detect a read that comes before the insert or after the free.

#[cfg(lowwater_loom)]
mod loom;
#[cfg(not(lowwater_loom))]
mod model;
#[cfg(not(lowwater_loom))]
mod pool;
#[cfg(not(lowwater_loom))]
mod threads;

use super::{ExtendibleIndex, InsertError};
use crate::slab::{Slot, SlotState};
use crate::sync::UnsafeCell;
use crate::CompressedLinks;
use lowwater_base::NodeId;
use lowwater_rcu::Guard;

pub(super) struct Entry {
    links: CompressedLinks,
    state: SlotState,
    key: u64,
    /// A cell, so that model checks detect reads that come too early or too late.
    value: UnsafeCell<u64>,
}

// SAFETY: the value is written only when the entry is created, and in a model check when it is
// dropped, where the check itself detects a race.
unsafe impl Sync for Entry {}

impl Entry {
    pub(super) fn value(&self) -> u64 {
        // SAFETY: no thread writes the value while there are readers; a model check verifies this.
        self.value.with(|value| unsafe { *value })
    }
}

#[cfg(lowwater_loom)]
impl Drop for Entry {
    fn drop(&mut self) {
        if !crate::sync::unwinding() {
            // SAFETY: none; loom detects a reader that is still inside.
            self.value.with_mut(|value| unsafe { *value = 0 });
        }
    }
}

crate::slotted!(impl[] for Entry { links, state, weight: |_| 48 });

/// Returns the footprint once it is at most `most`, or after 20 s: readers of other tests may hold
/// back segments until it is too late for operations of this index to free them.
#[cfg(not(lowwater_loom))]
pub(super) fn settled(index: &ExtendibleIndex<Entry>, most: u64) -> u64 {
    for _ in 0..20_000 {
        crate::rcu::flush();
        index.collect();
        if index.footprint().get() <= most {
            break;
        }
        std::thread::sleep(core::time::Duration::from_millis(1));
    }
    index.footprint().get()
}

pub(super) fn entry(index: &ExtendibleIndex<Entry>, key: u64, value: u64) -> Slot<Entry> {
    let entry = Entry { links: CompressedLinks::new(), state: SlotState::new(0), key, value: UnsafeCell::new(value) };
    index.slab().alloc(entry, NodeId::ZERO).unwrap_or_else(|_| panic!("memory"))
}

/// Inserts a new entry with its handle kept by `own`; returns the value of the replaced entry, if
/// any, and the result of `own`.
pub(super) fn put<'g, R>(
    index: &'g ExtendibleIndex<Entry>,
    key: u64,
    value: u64,
    hash: &impl Fn(u64) -> u64,
    guard: &'g Guard,
    own: impl FnOnce(Slot<Entry>, Option<&'g Entry>) -> R,
) -> (Option<u64>, R) {
    let slot = entry(index, key, value);
    let hasher = |entry: &Entry| hash(entry.key);
    match index.insert(
        slot,
        hash(key),
        guard,
        |there, new| there.key == new.key,
        &hasher,
        |slot, old| Ok(own(slot, old.map(|(old, _)| old))),
    ) {
        Ok((replaced, owned)) => (replaced.map(Entry::value), owned),
        Err(InsertError::NoMemory(_) | InsertError::Refused(_) | InsertError::Indexed(_)) => panic!("nothing refuses"),
    }
}

/// Puts a new entry in the place of the entry of this key, if there is one, with its handle kept by
/// `own`; returns the value of the replaced entry and the result of `own`.
pub(super) fn replace<'g, R>(
    index: &'g ExtendibleIndex<Entry>,
    key: u64,
    value: u64,
    hash: &impl Fn(u64) -> u64,
    guard: &'g Guard,
    own: impl FnOnce(Slot<Entry>) -> R,
) -> Option<(u64, R)> {
    let there = index.get(hash(key), guard, |entry| entry.key == key)?;
    match index.replace(entry(index, key, value), hash(key), guard, there, |slot, _| Ok(own(slot))) {
        Ok((new, owned)) => {
            assert_eq!(new.value(), value, "the new entry is returned");
            Some((there.value(), owned))
        }
        Err(InsertError::Refused(_)) => None,
        Err(InsertError::NoMemory(_) | InsertError::Indexed(_)) => panic!("nothing else refuses"),
    }
}

pub(super) fn get(index: &ExtendibleIndex<Entry>, key: u64, hash: &impl Fn(u64) -> u64, guard: &Guard) -> Option<u64> {
    let is = |entry: &Entry| {
        entry.value(); // A comparison of keys reads the whole entry, so that a model check sees the access.
        entry.key == key
    };
    index.get(hash(key), guard, is).map(Entry::value)
}

pub(super) fn remove(
    index: &ExtendibleIndex<Entry>,
    key: u64,
    hash: &impl Fn(u64) -> u64,
    guard: &Guard,
) -> Option<u64> {
    let hasher = |entry: &Entry| hash(entry.key);
    index.remove(hash(key), guard, |entry| entry.key == key, &hasher, |_| ()).map(|(entry, ())| entry.value())
}
