//! Slabs and indexes against an allocator that counts and that fails.

#![cfg(all(feature = "std", not(lowwater_loom)))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lowwater_lru_core::list_lru::sweep;
use lowwater_lru_core::slab::{Slab, Slot, SlotState};
use lowwater_lru_core::{slotted, Links, MemcgTree, NodeId};

struct Faulty;

thread_local! {
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
    /// This many more allocations succeed, then one fails; `None`: all succeed.
    static FAIL_AFTER: Cell<Option<usize>> = const { Cell::new(None) };
}

fn add(bytes: isize) {
    // A thread that is ending has no counter any more, and no test to tell.
    let _ = ALLOCATED.try_with(|allocated| allocated.set(allocated.get() + bytes));
}

fn fails_now() -> bool {
    let fails = FAIL_AFTER.try_with(|after| {
        let left = after.get();
        after.set(left.and_then(|n| n.checked_sub(1)));
        left == Some(0)
    });
    fails.unwrap_or(false)
}

// SAFETY: every call goes to `System` unchanged, or answers null, which an allocator may at any time.
unsafe impl GlobalAlloc for Faulty {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails_now() {
            return std::ptr::null_mut();
        }
        add(layout.size() as isize);
        // SAFETY: the caller's promise about `layout` is the one that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: `ptr` came from `System` with this layout, since `alloc` goes there.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static FAULTY: Faulty = Faulty;

struct Thing(Links, SlotState);

slotted!(impl[] for Thing { 0, 1, weight: |thing| size_of_val(thing) as u64 });

fn thing(slab: &Slab<Thing>) -> Option<Slot<Thing>> {
    slab.alloc(Thing(Links::new(), SlotState::new(0)), NodeId::ZERO).ok()
}

/// Frees what was retired.
fn settle() {
    sweep(MemcgTree::new(0).root());
}

/// One test at a time: what one retires another would free, and count.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    settle();
    guard
}

/// Runs `f`, in which so many allocations succeed and then one fails. Says whether it came to that.
fn refused_after<R>(n: usize, f: impl FnOnce() -> R) -> (R, bool) {
    FAIL_AFTER.set(Some(n));
    let result = f();
    (result, FAIL_AFTER.take().is_none())
}

const THINGS: usize = 3_000;

#[test]
fn a_slab_that_is_refused_memory_once_loses_nothing_and_goes_on() {
    let _alone = alone();
    let before = ALLOCATED.get();
    let (mut footprints, mut unseen) = (Vec::with_capacity(200), 0);
    for nth in 0.. {
        let slab = Slab::new();
        let mut things = Vec::with_capacity(THINGS);
        let fill = || (0..THINGS).for_each(|_| things.extend(thing(&slab)));
        let ((), came) = refused_after(nth, fill);
        slab.assert_valid();
        assert!(things.len() >= THINGS - 1, "one is refused at most ({nth})");
        unseen += usize::from(came && things.len() == THINGS);
        things.extend((things.len()..THINGS).filter_map(|_| thing(&slab)));
        assert_eq!(things.len(), THINGS);
        footprints.push(slab.footprint());
        if !came {
            break;
        }
    }
    assert!(footprints.len() > 10, "{footprints:?}");
    assert!(footprints.iter().all(|footprint| footprint == &footprints[0]), "all is as with memory: {footprints:?}");
    assert_eq!(unseen, 2, "stripes, and what leads to them, can be done without for a while");
    drop(footprints);
    settle();
    assert_eq!(ALLOCATED.get(), before);
}
