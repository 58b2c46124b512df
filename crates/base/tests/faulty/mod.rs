//! An allocator that counts what the thread allocates, and fails when it is told to. Whoever has this module has that allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Faulty;

/// What others do.
type Others = &'static dyn Fn();

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    pub static ALLOCATED: Cell<isize> = const { Cell::new(0) };
    /// This many more allocations succeed, then one fails; `None`: all succeed.
    static FAIL_AFTER: Cell<Option<usize>> = const { Cell::new(None) };
    /// What happens in the middle of an allocation, after this many.
    static MEANWHILE: Cell<Option<(usize, Others)>> = const { Cell::new(None) };
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

/// Time passes: what others do while this thread waits for memory.
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

// SAFETY: every call goes to `System` unchanged, or answers null, which an allocator may at any time.
unsafe impl GlobalAlloc for Faulty {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails_now() {
            return std::ptr::null_mut();
        }
        time_passes();
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

/// Runs `f`, and `others` in the middle of one of its allocations, after so many. Says whether it came to that.
#[allow(dead_code, reason = "who only counts has no use for it")]
pub fn meanwhile<R>(n: usize, others: &dyn Fn(), f: impl FnOnce() -> R) -> (R, bool) {
    struct Over;
    impl Drop for Over {
        fn drop(&mut self) {
            MEANWHILE.set(None);
        }
    }
    let _over = Over;
    // SAFETY: it is forgotten when this returns or unwinds, and borrowed until then.
    let others = unsafe { std::mem::transmute::<&dyn Fn(), Others>(others) };
    MEANWHILE.set(Some((n, others)));
    let result = f();
    (result, MEANWHILE.take().is_none())
}
