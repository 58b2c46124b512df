//! An allocator that counts what the thread allocates, and fails when it is told to. Whoever has this module has that allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Faulty;

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    pub static ALLOCATED: Cell<isize> = const { Cell::new(0) };
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

/// Runs `f`, in which so many allocations succeed and then one fails. Says whether it came to that.
#[allow(dead_code, reason = "who only counts has no use for it")]
pub fn refused_after<R>(n: usize, f: impl FnOnce() -> R) -> (R, bool) {
    FAIL_AFTER.set(Some(n));
    let result = f();
    (result, FAIL_AFTER.take().is_none())
}
