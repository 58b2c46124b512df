//! The model checks, in a module with the name that `pub(in crate::hash_chains)` in epoch.rs
//! requires.
//!
//! crossbeam-epoch has a loom mode, with its own cfg; a model takes minutes, so these do not run
//! with the others.
//!
//! A change must ensure that each check has a twin that fails, and that `epoch.rs` is included
//! unchanged.

#[path = "../../../crates/store/src/hash_chains/read/epoch.rs"]
mod epoch;

use epoch::pin;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicPtr, Ordering};
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The published object. Loom tracks each access, and reports two that are not ordered.
struct Object(UnsafeCell<u64>);

/// Objects freed in all executions. Without any, the model would check nothing.
static FREED: AtomicUsize = AtomicUsize::new(0);

/// Overwrites the number of an object that no reader may read any more. Loom reports a reader that
/// still does.
///
/// # Safety
///
/// `object` points to a live boxed `Object`.
unsafe fn spoil(object: *mut ()) {
    // SAFETY: `object` points to a live `Object`, by the contract of this function.
    let object = unsafe { &*object.cast::<Object>() };
    // SAFETY: the pointer is valid inside the closure. Loom checks that the access is exclusive,
    // and fails the model if it is not.
    object.0.with_mut(|number| unsafe { *number = 0 });
}

/// Frees an object, and counts it.
///
/// # Safety
///
/// `object` is the pointer of a boxed `Object` that no reader can reach any more, and is freed
/// once.
unsafe fn free(object: *mut ()) {
    // SAFETY: `object` points to a live boxed `Object`, by the contract of this function.
    unsafe { spoil(object) };
    // SAFETY: the pointer is from `Box::into_raw`, and is freed once, by the contract of this
    // function.
    drop(unsafe { Box::from_raw(object.cast::<Object>()) });
    FREED.fetch_add(1, Relaxed);
}

/// A reader follows a pointer while another thread unlinks the object and retires it. With
/// `at_once` the object is overwritten without a grace period, and the model has to fail.
fn check(at_once: bool) {
    let mut model = loom::model::Builder::new();
    // With two preemptions a model takes long: only on request, by LOOM_MAX_PREEMPTIONS.
    model.preemption_bound = model.preemption_bound.or(Some(1));
    model.check(move || {
        let object = Box::new(Object(UnsafeCell::new(7)));
        let head = Arc::new(AtomicPtr::new(Box::into_raw(object)));
        let writer = {
            let head = Arc::clone(&head);
            thread::spawn(move || {
                let guard = pin();
                // Release: as the unlink (`HashLink::leave`). That runs under the bucket's lock,
                // which this model lacks, so the swap acquires as well.
                let object = head.swap(std::ptr::null_mut(), Ordering::AcqRel);
                if at_once {
                    // The memory is not freed, so that loom, and not the allocator, detects the
                    // reader.
                    // SAFETY: `object` came from `Box::into_raw` and is never freed in this case.
                    unsafe { spoil(object.cast()) };
                } else {
                    // SAFETY: the swap made the object unreachable for readers that pin from now
                    // on; it is retired once; and `free` may run on any thread.
                    unsafe { guard.retire_by(object.cast(), free) };
                }
                drop(guard);
                // Each flush advances the epoch by one, unless a pinned thread prevents it; the
                // object is freed two epochs after its retirement.
                (0..4).for_each(|_| crossbeam_epoch::pin().flush());
            })
        };
        // On a thread of its own: the collector's data of a thread must be dropped while the model
        // still runs.
        let reader = thread::spawn(move || {
            let _guard = pin();
            // Acquire: as the traversal in `hash_chains`.
            let object = head.load(Ordering::Acquire);
            if !object.is_null() {
                // SAFETY: the object was reachable while `_guard` was pinned, so it is not freed
                // before the guard is dropped. Loom fails the model if a write to it is not
                // ordered.
                let number = unsafe { &*object }.0.with(|number| unsafe { *number });
                assert_eq!(number, 7);
            }
        });
        reader.join().unwrap();
        writer.join().unwrap();
    });
}

#[test]
fn an_object_is_freed_after_its_reader_has_left() {
    check(false);
    assert!(FREED.load(Relaxed) > 0, "nothing was ever freed, so nothing was checked");
}

/// Runs in a child process, because the collector's state does not survive a panic inside a model.
#[test]
fn fails_if_the_object_is_freed_at_once() {
    const CHILD: &str = "LOWWATER_FREE_AT_ONCE";
    if std::env::var_os(CHILD).is_some() {
        return check(true);
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "hash_chains::fails_if_the_object_is_freed_at_once", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success() && said.contains("Causality violation"), "{said}");
}
