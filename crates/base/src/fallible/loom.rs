//! Model check of `TryArc`'s count.
//!
//! Each `fails_with_` test repeats the check with one ordering weakened; it must fail.
//! docs/ORDERINGS.md names the weakened orderings.

use super::checked::TryArc;
use crate::sync::{model, with_mutant};
use ::loom::{cell::UnsafeCell, thread};
use alloc::sync::Arc;

/// A value whose accesses loom checks: read through handles, written by its drop.
struct Watched(UnsafeCell<u32>, Arc<core::sync::atomic::AtomicUsize>);

// SAFETY: none needed; an unsynchronized access is what loom reports.
unsafe impl Send for Watched {}
// SAFETY: none needed; an unsynchronized access is what loom reports.
unsafe impl Sync for Watched {}

impl Watched {
    fn look(&self) -> u32 {
        // SAFETY: the value lives while `self` is borrowed; loom reports races.
        self.0.with(|value| unsafe { *value })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if crate::sync::unwinding() {
            return;
        }
        // SAFETY: this is the value's drop; loom reports races.
        self.0.with_mut(|value| unsafe { *value += 1 });
        self.1.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    }
}

fn two_handles_are_dropped() {
    model(|| {
        let drops = Arc::new(core::sync::atomic::AtomicUsize::new(0));
        let first = TryArc::try_new(Watched(UnsafeCell::new(0), Arc::clone(&drops))).unwrap();
        let second = first.clone();
        let other = thread::spawn(move || {
            let third = second.clone();
            drop(second);
            assert_eq!(third.look(), 0);
        });
        assert_eq!(first.look(), 0);
        drop(first);
        other.join().unwrap();
        assert_eq!(drops.load(core::sync::atomic::Ordering::Relaxed), 1, "dropped once");
    });
}

#[test]
fn a_value_is_dropped_once_and_after_all_its_uses() {
    two_handles_are_dropped();
}

#[test]
#[should_panic]
fn fails_with_handle_dropped_relaxed() {
    with_mutant("handle_dropped_relaxed", two_handles_are_dropped);
}

#[test]
#[should_panic]
fn fails_with_last_handle_relaxed() {
    with_mutant("last_handle_relaxed", two_handles_are_dropped);
}
