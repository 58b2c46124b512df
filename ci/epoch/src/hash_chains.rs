//! Under the name that the file's visibility asks for.

#[path = "../../../crates/store/src/hash_chains/read/epoch.rs"]
mod epoch;

use epoch::pin;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicPtr, Ordering};
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What is published; loom sees each look at it, and each two that are not ordered.
struct Object(UnsafeCell<u64>);

/// Freed so far, in all executions: that anything is, is checked, too.
static FREED: AtomicUsize = AtomicUsize::new(0);

/// What nobody may read any more is no number now; loom says if somebody does.
///
/// # Safety
///
/// `object` is a boxed `Object`.
unsafe fn spoil(object: *mut ()) {
    // SAFETY: says the caller.
    let object = unsafe { &*object.cast::<Object>() };
    // SAFETY: loom says if it is not ours alone.
    object.0.with_mut(|number| unsafe { *number = 0 });
}

/// # Safety
///
/// `object` is a boxed `Object` that nobody reads any more.
unsafe fn free(object: *mut ()) {
    // SAFETY: says the caller.
    unsafe { spoil(object) };
    // SAFETY: says the caller.
    drop(unsafe { Box::from_raw(object.cast::<Object>()) });
    FREED.fetch_add(1, Relaxed);
}

/// A reader follows a pointer while another thread takes it away and lets it be freed.
fn check(at_once: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(1));
    model.check(move || {
        let object = Box::new(Object(UnsafeCell::new(7)));
        let head = Arc::new(AtomicPtr::new(Box::into_raw(object)));
        let writer = {
            let head = Arc::clone(&head);
            thread::spawn(move || {
                let guard = pin();
                // AcqRel: as `chains` unlinks.
                let object = head.swap(std::ptr::null_mut(), Ordering::AcqRel);
                if at_once {
                    // The memory stays, so that it is loom that sees the reader there.
                    // SAFETY: it is boxed.
                    unsafe { spoil(object.cast()) };
                } else {
                    // SAFETY: unreachable for those who pin from now on, and given once.
                    unsafe { guard.retire_by(object.cast(), free) };
                }
                drop(guard);
                // Each moves the epoch on by one if nobody is in its way.
                (0..4).for_each(|_| crossbeam_epoch::pin().flush());
            })
        };
        // Not on the model's own thread: what the collector keeps for a thread must go while the model still runs.
        let reader = thread::spawn(move || {
            let _guard = pin();
            // Acquire: as `chains` follows.
            let object = head.load(Ordering::Acquire);
            if !object.is_null() {
                // SAFETY: the guard keeps it alive; loom says if it does not.
                let number = unsafe { &*object }.0.with(|number| unsafe { *number });
                assert_eq!(number, 7);
            }
        });
        reader.join().unwrap();
        writer.join().unwrap();
    });
}

#[test]
fn what_is_read_is_freed_after_its_reader() {
    check(false);
    assert!(FREED.load(Relaxed) > 0, "nothing was ever freed, so nothing was checked");
}

/// In a process of its own: the collector's ends do not outlive a panic inside of a model.
#[test]
fn not_if_it_is_freed_at_once() {
    const CHILD: &str = "LOWWATER_FREE_AT_ONCE";
    if std::env::var_os(CHILD).is_some() {
        return check(true);
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "chains::not_if_it_is_freed_at_once", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success() && said.contains("Causality violation"), "{said}");
}
