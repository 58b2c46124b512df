//! An `RcuCell` with an allocator that fails on request, in a process where no other code retires
//! objects.
//!
//! A replacement without memory must drop the new value, keep the old one, and return false.

// crossbeam-epoch, the read side with `lowwater_epoch`, aborts when there is no memory, and frees
// at unspecified times. The other systems' read side frees at unspecified times as well.
#![cfg(all(not(lowwater_loom), not(lowwater_epoch), any(not(feature = "std"), target_os = "linux")))]

#[path = "../../base/tests/faulty/mod.rs"]
mod faulty;

use faulty::refused_after;
use lowwater_base::ZeroedAtomics;
use lowwater_rcu::{pin, RcuCell};
use std::sync::atomic::{AtomicUsize, Ordering};

static DROPPED: AtomicUsize = AtomicUsize::new(0);

struct Counted(u32);

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

// A single test, so that no other thread is inside.
#[test]
fn a_value_is_freed_after_its_readers_and_kept_if_its_replacement_has_no_memory() {
    let cell = RcuCell::new();
    assert!(cell.replace(None, Counted(1), &pin()));
    let guard = pin();
    let (replaced, came) = refused_after(0, || cell.replace(cell.load(&guard), Counted(2), &guard));
    assert!(came && !replaced, "the header of the new value needs memory");
    assert_eq!((cell.load(&guard).unwrap().0, DROPPED.load(Ordering::Relaxed)), (1, 1), "only the new one is dropped");
    for n in 2..5 {
        let guard = pin();
        assert!(cell.replace(cell.load(&guard), Counted(n), &guard));
    }
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1, "there is a reader from before");
    drop(guard);
    // No full batch is needed: a thread that has replaced or cleared a value collects when it drops
    // its last guard. The values are the four of the cell, and the one that found no memory.
    cell.clear(&pin());
    assert_eq!(DROPPED.load(Ordering::Relaxed), 5);
    let (words, came) = refused_after(0, || ZeroedAtomics::try_new(100));
    assert!(came && words.is_none());
    a_first_guard_without_memory_is_a_reader();
}

/// The first guard of a thread allocates the thread's registration.
fn a_first_guard_without_memory_is_a_reader() {
    let cell = &RcuCell::new();
    assert!(cell.replace(None, Counted(1), &pin()));
    let before = DROPPED.load(Ordering::Relaxed);
    let reads = || {
        let (guard, came) = refused_after(0, pin);
        assert!(came || cfg!(not(feature = "std")), "it needs none");
        let value = cell.load(&guard).unwrap();
        std::thread::scope(|s| {
            s.spawn(|| (2..5).for_each(|n| assert!(cell.replace(cell.load(&pin()), Counted(n), &pin()))));
        });
        assert_eq!((value.0, DROPPED.load(Ordering::Relaxed)), (1, before));
        drop(guard);
        assert_eq!(cell.load(&pin()).unwrap().0, 4);
    };
    std::thread::scope(|s| s.spawn(reads).join()).unwrap();
    cell.clear(&pin());
    assert_eq!(DROPPED.load(Ordering::Relaxed), before + 4);
}
