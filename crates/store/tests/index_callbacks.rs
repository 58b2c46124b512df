//! An index with handles that are dropped early, hashers that lie, and callbacks that panic.
//!
//! The user's hash, comparison and insertion run under a segment's lock: whatever they do, no lock
//! may be kept and no entry lost.
//!
//! A new closure of the index needs a case for each fault.
#![forbid(unsafe_code)]

use lowwater_lru_core::NodeId;
use lowwater_rcu::{pin, Guard};
use lowwater_store::index::InsertError;
use lowwater_store::slab::{Slot, SlotState};
use lowwater_store::ExtendibleIndex;
use lowwater_store::{slotted, CompressedLinks};
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

struct Entry {
    links: CompressedLinks,
    state: SlotState,
    key: u64,
    dropped: Arc<AtomicU64>,
}
slotted!(impl[] for Entry { links, state, weight: |entry| size_of_val(entry) as u64 });

impl Drop for Entry {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn hasher(entry: &Entry) -> u64 {
    hash(entry.key)
}

fn entry(index: &ExtendibleIndex<Entry>, key: u64, dropped: &Arc<AtomicU64>) -> Slot<Entry> {
    let entry = Entry { links: CompressedLinks::new(), state: SlotState::new(0), key, dropped: Arc::clone(dropped) };
    index.slab().alloc(entry, NodeId::ZERO).map_err(|_| "no memory").unwrap()
}

/// Inserts an entry, and calls `add` with its handle.
fn put<R>(index: &ExtendibleIndex<Entry>, slot: Slot<Entry>, guard: &Guard, add: impl FnOnce(Slot<Entry>) -> R) -> R {
    let hash = hash(slot.key);
    let put = index.insert(slot, hash, guard, |there, new| there.key == new.key, &hasher, |slot, _| Ok(add(slot)));
    put.map_err(|error| error.to_string()).unwrap().1
}

fn has(index: &ExtendibleIndex<Entry>, key: u64) -> bool {
    index.get(hash(key), &pin(), |entry| entry.key == key).is_some()
}

fn remove(index: &ExtendibleIndex<Entry>, key: u64) -> bool {
    index.remove(hash(key), &pin(), |entry| entry.key == key, &hasher, |_| ()).is_some()
}

fn panics<R>(f: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

/// Collects until `all` entries are dropped; readers of other tests may delay it.
fn collect_until(index: &ExtendibleIndex<Entry>, dropped: &AtomicU64, all: u64) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while dropped.load(Ordering::Relaxed) < all {
        index.collect();
        assert!(std::time::Instant::now() < deadline, "{dropped:?} of {all} entries were dropped");
    }
    assert_eq!(dropped.load(Ordering::Relaxed), all);
    index.assert_valid(&hasher);
}

#[test]
fn an_entry_without_a_handle_is_retired_when_removed_or_replaced_or_with_the_index() {
    let (index, dropped) = (ExtendibleIndex::<Entry>::new(), Arc::default());
    let mut handles = Vec::new();
    for key in 0..3_000 {
        put(&index, entry(&index, key, &dropped), &pin(), drop);
    }
    index.collect();
    assert!((0..3_000).all(|key| has(&index, key)) && dropped.load(Ordering::Relaxed) == 0, "readers find them");
    assert!((0..1_000).all(|key| remove(&index, key)));
    collect_until(&index, &dropped, 1_000);
    for key in 1_000..2_000 {
        handles.push(put(&index, entry(&index, key, &dropped), &pin(), |slot| slot));
    }
    collect_until(&index, &dropped, 2_000);
    drop(index);
    assert_eq!(dropped.load(Ordering::Relaxed), 3_000, "those without a handle");
    drop(handles);
    assert_eq!(dropped.load(Ordering::Relaxed), 4_000);
}

#[test]
fn the_index_frees_entries_that_a_changed_hash_hides() {
    let (index, dropped) = (ExtendibleIndex::<Entry>::new(), Arc::default());
    let calls = Cell::new(0_u64);
    let lies = |entry: &Entry| {
        calls.set(calls.get() + 1);
        hash(entry.key ^ calls.get())
    };
    let guard = pin();
    for n in 0..20_000 {
        let slot = entry(&index, n % 100, &dropped);
        let at = lies(&slot);
        let put = index.insert(slot, at, &guard, |there, new| there.key == new.key, &lies, |slot, _| Ok(slot));
        let slot = put.map_err(|error| error.to_string()).unwrap().1;
        // Compared by address, as by an eviction, which has the handle and no key.
        let found = index.remove(lies(&slot), &guard, |entry| std::ptr::eq(entry, &*slot), &lies, |_| ());
        drop((found, slot));
    }
    drop(guard);
    assert!(dropped.load(Ordering::Relaxed) < 20_000, "all were found: this test shows nothing");
    drop(index);
    assert_eq!(dropped.load(Ordering::Relaxed), 20_000);
}

#[test]
fn an_add_that_panics_or_returns_another_handle_leaves_nothing() {
    let (index, dropped) = (ExtendibleIndex::<Entry>::new(), Arc::default());
    let guard = pin();
    let is = |there: &Entry, new: &Entry| there.key == new.key;
    let kept = Cell::new(None);

    assert!(panics(|| index.insert(
        entry(&index, 1, &dropped),
        hash(1),
        &guard,
        is,
        &hasher,
        |_, _| -> Result<(), _> { panic!("the caller's own fault") }
    )));
    assert!(panics(|| index.insert(
        entry(&index, 1, &dropped),
        hash(1),
        &guard,
        is,
        &hasher,
        |slot, _| -> Result<(), _> {
            kept.set(Some(slot));
            panic!("the caller's own fault")
        }
    )));
    let other = entry(&index, 7, &dropped);
    let refused = index.insert(entry(&index, 1, &dropped), hash(1), &guard, is, &hasher, |_, _| Err::<(), _>(other));
    let Err(InsertError::Refused(other)) = refused else { panic!("it was refused") };
    assert!(!has(&index, 1));
    // The handle that was kept is in no index, and can be inserted.
    let again = put(&index, kept.take().unwrap(), &guard, |slot| slot);
    assert!(has(&index, 1) && remove(&index, 1));
    drop((again, other, guard));
    collect_until(&index, &dropped, 4);
}

#[test]
fn callbacks_that_panic_leave_the_index_as_it_was_and_keep_no_lock() {
    let (index, dropped) = (ExtendibleIndex::<Entry>::new(), Arc::default());
    let guard = pin();
    let mut handles: Vec<_> =
        (0..2_000).map(|key| put(&index, entry(&index, key, &dropped), &guard, |slot| slot)).collect();
    let fails = |_: &Entry| -> bool { panic!("the caller's own fault") };
    let new = |key| entry(&index, key, &dropped);
    assert!(panics(|| index
        .insert(new(3), hash(3), &guard, |there, _| fails(there), &hasher, |slot, _| Ok(slot))
        .is_ok()));
    assert!(panics(|| index.get(hash(3), &guard, fails).is_some()));
    assert!(panics(|| index.probe_first(hash(3), &guard, fails)));
    assert!(panics(|| index.with(hash(3), &guard, fails, |_| ())));
    assert!(panics(|| index.with(hash(3), &guard, |entry| entry.key == 3, fails)));
    assert!(panics(|| index.remove(hash(3), &guard, fails, &hasher, |_| ()).is_some()));
    assert!(panics(|| index.visit(&mut Default::default(), &guard, |entry| _ = fails(entry))));
    assert!((0..2_000).all(|key| has(&index, key)));
    index.assert_valid(&hasher);

    // The entry has been removed then; effects of `gone` are the caller's responsibility.
    assert!(panics(|| index.remove(hash(3), &guard, |entry| entry.key == 3, &hasher, fails).is_some()));
    assert!(!has(&index, 3));
    handles.swap_remove(3);
    // An entry without a handle is retired.
    put(&index, new(3), &guard, drop);
    assert!(panics(|| index.remove(hash(3), &guard, |entry| entry.key == 3, &hasher, fails).is_some()));
    drop(guard);
    collect_until(&index, &dropped, 3);
    assert!((0..2_000).all(|key| has(&index, key) == (key != 3)));
    drop(index);
    drop(handles);
    assert_eq!(dropped.load(Ordering::Relaxed), 2_002);
}

/// The handle is dropped inside the calls that remove its object.
#[test]
fn a_handle_may_be_dropped_inside_the_removal_of_its_entry() {
    let (index, dropped) = (ExtendibleIndex::<Entry>::new(), Arc::default());
    let guard = pin();
    let first = put(&index, entry(&index, 1, &dropped), &guard, |slot| slot);
    let second = put(&index, entry(&index, 1, &dropped), &guard, |slot| {
        drop(first);
        slot
    });
    assert!(index.remove(hash(1), &guard, |_| true, &hasher, |_| drop(second)).is_some());
    drop(guard);
    collect_until(&index, &dropped, 2);
}

/// A refused object may be taken out of its slot, so nobody may still borrow it.
#[test]
fn an_object_whose_insert_may_be_refused_is_not_borrowed() {
    let (index, dropped) = (ExtendibleIndex::new(), Arc::new(AtomicU64::new(0)));
    let is = |there: &Entry, new: &Entry| there.key == new.key;
    let guard = pin();
    put(&index, entry(&index, 1, &dropped), &guard, drop);
    let present = index.get(hash(1), &guard, |entry| entry.key == 1).unwrap();
    let refuse = |slot: Slot<Entry>| -> Result<(), _> {
        assert!(index.borrow(&slot, &guard).is_none(), "the insert can still be refused");
        Err(slot)
    };
    let inserted = index.insert(entry(&index, 2, &dropped), hash(2), &guard, is, &hasher, |slot, _| refuse(slot));
    let Err(InsertError::Refused(slot)) = inserted else { panic!("not refused") };
    assert!(slot.into_inner().is_ok());
    let replaced = index.replace(entry(&index, 1, &dropped), hash(1), &guard, present, |slot, _| refuse(slot));
    let Err(InsertError::Refused(slot)) = replaced else { panic!("not refused") };
    assert!(slot.into_inner().is_ok());

    // One that is or was in the index is.
    let mut kept = None;
    put(&index, entry(&index, 3, &dropped), &guard, |slot| kept = Some(slot));
    let kept = kept.unwrap();
    assert!(index.borrow(&kept, &guard).is_some_and(|entry| entry.key == 3));
    assert!(remove(&index, 3));
    assert!(index.borrow(&kept, &guard).is_some_and(|entry| entry.key == 3));
    assert!(kept.into_inner().is_err(), "readers may have seen it");
}
