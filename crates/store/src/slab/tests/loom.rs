//! Model checks of the slab: all interleavings of small models, with at most three preemptions
//! (`ci/loom.sh`).
//!
//! A test `…_fails_with_MUTANT` repeats a check with one ordering weakened or one step removed, and
//! must fail. A change must keep such a test, here or in `index/tests/loom.rs`, for each mutant of
//! the slab in docs/ORDERINGS.md.

use crate::slab::{Slab, Slot, SlotState};
use crate::sync::atomic::{AtomicBool, AtomicPtr};
use crate::sync::{model, with_mutant, UnsafeCell};
use crate::CompressedLinks;
use ::loom::thread;
use alloc::boxed::Box;
use core::sync::atomic::Ordering;
use lowwater_base::NodeId;
use lowwater_rcu::pin;

/// An object that a model checker observes: read by readers, written when it is dropped.
struct Watched {
    links: CompressedLinks,
    state: SlotState,
    content: UnsafeCell<u32>,
}

// SAFETY: loom checks each access to the cell; that is the test.
unsafe impl Sync for Watched {}
// SAFETY: loom checks each access to the cell, from whichever thread.
unsafe impl Send for Watched {}

crate::slotted!(impl[] for Watched { links, state, weight: |_| 1 });

impl Drop for Watched {
    fn drop(&mut self) {
        if !crate::sync::unwinding() {
            // SAFETY: none; loom detects a reader that is still inside.
            self.content.with_mut(|content| unsafe { *content = 0 });
        }
    }
}

fn watched(slab: &Slab<Watched>, content: u32) -> Slot<Watched> {
    let watched =
        Watched { links: CompressedLinks::new(), state: SlotState::new(0), content: UnsafeCell::new(content) };
    slab.alloc(watched, NodeId::ZERO).unwrap_or_else(|_| panic!("memory"))
}

/// An object that a reader finds through a pointer is not dropped, nor its slot reused, while the
/// reader uses it.
fn a_reader_beside_an_end() {
    let slab: &'static Slab<Watched> = Box::leak(Box::new(Slab::new()));
    let first = watched(slab, 1);
    let place: &'static AtomicPtr<Watched> = Box::leak(Box::new(AtomicPtr::new(first.0.as_ptr())));
    let reader = thread::spawn(move || {
        let guard = pin();
        let found = place.load(Ordering::Acquire);
        if !found.is_null() {
            // SAFETY: none; loom detects a concurrent drop.
            let content = unsafe { &*found }.content.with(|content| unsafe { *content });
            assert_eq!(content, 1, "it is the one that was there");
        }
        drop(guard);
    });
    {
        let guard = pin();
        place.store(core::ptr::null_mut(), Ordering::Release);
        drop(guard);
    }
    drop(first);
    slab.collect();
    drop(watched(slab, 2));
    reader.join().unwrap();
    slab.collect();
    slab.assert_valid();
    assert_eq!(slab.shared().unwrap().used(), 0, "the chunk went back");
    // SAFETY: the slab came from `Box::leak`, and the other thread is joined.
    drop(unsafe { Box::from_raw(core::ptr::from_ref(slab).cast_mut()) });
    // SAFETY: `place` came from `Box::leak`, and the other thread is joined.
    drop(unsafe { Box::from_raw(core::ptr::from_ref(place).cast_mut()) });
}

#[test]
fn an_object_is_dropped_after_its_readers_have_left() {
    model(a_reader_beside_an_end);
}

#[test]
#[should_panic]
fn a_retired_object_fails_with_stamp_without_waiting() {
    with_mutant("stamp_without_waiting", || model(a_reader_beside_an_end));
}

/// Two threads retire an object each, and a third object is allocated: slots and chunks change
/// hands only under locks.
#[test]
fn two_concurrent_retirements_keep_the_slab_valid() {
    model(|| {
        let slab: &'static Slab<Watched> = Box::leak(Box::new(Slab::new()));
        let (one, two) = (watched(slab, 1), watched(slab, 2));
        let other = thread::spawn(move || drop(one));
        drop(two);
        let three = watched(slab, 3);
        other.join().unwrap();
        drop(three);
        slab.collect();
        slab.assert_valid();
        assert_eq!(slab.shared().unwrap().used(), 0);
        // SAFETY: the slab came from `Box::leak`, and the other thread is joined.
        drop(unsafe { Box::from_raw(core::ptr::from_ref(slab).cast_mut()) });
    });
}

/// Handles are dropped beside the drop of their slab. The call that frees the last slot frees the
/// shared part, while it holds none of its locks.
fn ends_beside_the_end_of_the_slab() {
    let slab = Slab::new();
    let handles = [watched(&slab, 1), watched(&slab, 2)];
    let other = thread::spawn(move || drop(handles));
    drop(slab);
    other.join().unwrap();
}

#[test]
fn a_slab_may_be_dropped_while_its_objects_are() {
    model(ends_beside_the_end_of_the_slab);
}

#[test]
#[should_panic]
fn dropping_the_slab_fails_with_slots_back_under_lock() {
    with_mutant("slots_back_under_lock", || model(ends_beside_the_end_of_the_slab));
}

/// Two threads allocate the first objects; one of them creates the shared part and the thread
/// caches.
fn a_first_object_beside_another() {
    let slab: &'static Slab<Watched> = Box::leak(Box::new(Slab::new()));
    let other = thread::spawn(move || watched(slab, 1));
    let mine = watched(slab, 2);
    drop((mine, other.join().unwrap()));
    slab.collect();
    slab.assert_valid();
    assert_eq!(slab.shared().unwrap().used(), 0);
    // SAFETY: the slab came from `Box::leak`, and the other thread is joined.
    drop(unsafe { Box::from_raw(core::ptr::from_ref(slab).cast_mut()) });
}

#[test]
fn thread_caches_are_initialized_when_other_threads_find_them() {
    model(a_first_object_beside_another);
}

#[test]
#[should_panic]
fn thread_caches_fail_with_stripes_relaxed() {
    with_mutant("stripes_relaxed", || model(a_first_object_beside_another));
}

#[test]
#[should_panic]
fn the_shared_part_fails_with_slab_relaxed() {
    with_mutant("slab_relaxed", || model(a_first_object_beside_another));
}

/// The owner of an object's handle removes the object from its index. A thread that sees the object
/// in no index sees everything that the owner did before the removal.
///
/// The state is not checked at the end: loom does not order a plain store and a concurrent
/// read-modify-write, and would show the store undone.
fn a_removal_by_the_owner_beside_a_look() {
    struct Both {
        state: SlotState,
        content: UnsafeCell<u32>,
    }
    // SAFETY: loom checks each access to the cell; that is the test.
    unsafe impl Sync for Both {}
    let both: &'static Both = Box::leak(Box::new(Both { state: SlotState::new(0), content: UnsafeCell::new(0) }));
    both.state.enter();
    let owner = thread::spawn(move || {
        // SAFETY: none; loom detects a reader that comes too early.
        both.content.with_mut(|content| unsafe { *content = 1 });
        both.state.leave_held(both.state.bits() | 2);
    });
    if !both.state.is_still_indexed() {
        // SAFETY: none; loom detects a write that may still happen.
        let content = both.content.with(|content| unsafe { *content });
        assert_eq!((content, both.state.bits()), (1, 2), "all of the removal is seen");
    }
    owner.join().unwrap();
}

#[test]
fn a_removal_by_the_owner_publishes_what_it_did_before() {
    model(a_removal_by_the_owner_beside_a_look);
}

#[test]
#[should_panic]
fn a_removal_by_the_owner_fails_with_left_held_relaxed() {
    with_mutant("left_held_relaxed", || model(a_removal_by_the_owner_beside_a_look));
}

/// A reader that found an object in an index changes the owner's bits while the object is inserted
/// again.
fn a_change_beside_a_second_entry() {
    let state: &'static SlotState = Box::leak(Box::new(SlotState::new(0)));
    state.enter();
    assert!(!state.leave());
    let reader = thread::spawn(move || state.update(|bits| Some(bits | 1)));
    state.enter();
    reader.join().unwrap();
    assert_eq!((state.bits(), state.is_indexed()), (1, true), "neither is lost");
}

#[test]
fn a_change_of_the_owners_bits_during_a_second_insert_is_kept() {
    model(a_change_beside_a_second_entry);
}

#[test]
#[should_panic]
fn a_second_insert_fails_with_entered_by_a_store() {
    with_mutant("entered_by_a_store", || model(a_change_beside_a_second_entry));
}

/// An object is removed from its index while its handle is stored where other threads look for it:
/// at least one of the two threads sees that the handle has to be dropped. (If both see it, the
/// lock of the list, which is not modelled, decides which of them gets the handle.)
fn a_handle_that_is_put_back_beside_a_removal() {
    struct Both {
        state: SlotState,
        /// Stands for the place where the handle is looked for, as a list's links are before the
        /// list's lock is taken.
        is_there: AtomicBool,
    }
    let both: &'static Both = Box::leak(Box::new(Both { state: SlotState::new(0), is_there: AtomicBool::new(false) }));
    both.state.enter();
    let remover = thread::spawn(move || {
        both.state.leave();
        // Relaxed: the read-modify-writes of the state provide the ordering; that is the test.
        both.is_there.load(Ordering::Relaxed)
    });
    // Relaxed: the read-modify-writes of the state provide the ordering; that is the test.
    both.is_there.store(true, Ordering::Relaxed);
    let is_ours = !both.state.is_still_indexed();
    assert!(remover.join().unwrap() || is_ours, "one of the two ends it");
    // SAFETY: `both` came from `Box::leak`, and the other thread is joined.
    drop(unsafe { Box::from_raw(core::ptr::from_ref(both).cast_mut()) });
}

#[test]
fn a_handle_stored_during_a_removal_is_found_by_one_thread() {
    model(a_handle_that_is_put_back_beside_a_removal);
}

#[test]
#[should_panic]
fn a_stored_handle_fails_with_still_indexed_by_a_load() {
    with_mutant("still_indexed_by_a_load", || model(a_handle_that_is_put_back_beside_a_removal));
}
