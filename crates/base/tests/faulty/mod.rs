//! An allocator that counts the bytes that a thread has allocated, and fails on request. It is the
//! global allocator of every test program with this module.
//!
//! Used by the tests of other crates (`#[path]`) that let each allocation of an operation fail in
//! turn. The state is per thread, so tests may run in parallel.
//!
//! A change must ensure that the allocator itself neither allocates nor panics.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Faulty;

/// An action that runs in the middle of an allocation.
type Others = &'static dyn Fn();

thread_local! {
    /// The bytes that this thread has allocated and not freed.
    pub static ALLOCATED: Cell<isize> = const { Cell::new(0) };
    /// After this many successful allocations one fails; `None`: all succeed.
    static FAIL_AFTER: Cell<Option<usize>> = const { Cell::new(None) };
    /// An action to run in the middle of an allocation, after this many allocations.
    static MEANWHILE: Cell<Option<(usize, Others)>> = const { Cell::new(None) };
}

fn add(bytes: isize) {
    // A thread that is ending has no counter any more, and no test reads it.
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

/// Runs the action that is due, if any, in place of other threads while this one waits for memory.
fn time_passes() {
    let due = MEANWHILE.try_with(|meanwhile| match meanwhile.take() {
        Some((0, others)) => Some(others),
        later => {
            meanwhile.set(later.map(|(n, others)| (n - 1, others)));
            None
        }
    });
    if let Ok(Some(others)) = due {
        others();
    }
}

// SAFETY: every call is forwarded to `System` unchanged, or returns null, which an allocator may do
// at any time.
unsafe impl GlobalAlloc for Faulty {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails_now() {
            return std::ptr::null_mut();
        }
        time_passes();
        add(layout.size() as isize);
        // SAFETY: this function's clause about `layout` is that of `System.alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: `ptr` came from `System` with this layout, since `alloc` forwards to it.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static FAULTY: Faulty = Faulty;

/// Runs `f`, in which `n` allocations succeed and the next one fails. Returns also whether that
/// failure happened.
#[allow(dead_code, reason = "not used by tests that only count")]
pub fn refused_after<R>(n: usize, f: impl FnOnce() -> R) -> (R, bool) {
    FAIL_AFTER.set(Some(n));
    let result = f();
    (result, FAIL_AFTER.take().is_none())
}

/// Runs `f`, and `others` in the middle of one of its allocations, after `n` others. Returns also
/// whether `others` ran.
#[allow(dead_code, reason = "not used by tests that only count")]
pub fn meanwhile<R>(n: usize, others: &dyn Fn(), f: impl FnOnce() -> R) -> (R, bool) {
    struct Over;
    impl Drop for Over {
        fn drop(&mut self) {
            MEANWHILE.set(None);
        }
    }
    let _over = Over;
    // SAFETY: the reference is removed when this returns or unwinds, and `others` is borrowed until
    // then.
    let others = unsafe { std::mem::transmute::<&dyn Fn(), Others>(others) };
    MEANWHILE.set(Some((n, others)));
    let result = f();
    (result, MEANWHILE.take().is_none())
}
