//! [`try_box`] and [`try_vec`] of `lowwater-base`, with fault injection for tests.
//!
//! Lists, shards and their arrays are allocated by these two functions, so a test can make each
//! allocation fail in turn (L17 in docs/INVARIANTS.md). The table, whose array has a length known
//! only at run time, asks the same `fault`. A change must not allocate a list in any other way.

use crate::fallible;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// As [`fallible::try_box`]; a test can make it fail.
pub(super) fn try_box<T>(value: T) -> Option<Box<T>> {
    #[cfg(test)]
    if fault::is_now() {
        return None;
    }
    fallible::try_box(value)
}

/// As [`fallible::try_vec`]; a test can make it fail.
pub(super) fn try_vec<T>(capacity: usize) -> Option<Vec<T>> {
    #[cfg(test)]
    if fault::is_now() {
        return None;
    }
    fallible::try_vec(capacity)
}

/// Allocation failures for tests, injected per thread.
#[cfg(test)]
pub(super) mod fault {
    extern crate std;
    use core::cell::Cell;

    // A std thread-local also under loom, where all threads of the model share one OS thread:
    // `after`, which arms it, is compiled out there.
    std::thread_local! { static AFTER: Cell<Option<usize>> = const { Cell::new(None) }; }

    /// Runs `f`, in which `n` allocations may succeed and the next one fails. Returns also whether
    /// the failure happened.
    #[cfg(not(lowwater_loom))]
    pub(in crate::list_lru) fn after<R>(n: usize, f: impl FnOnce() -> R) -> (R, bool) {
        AFTER.set(Some(n));
        let result = f();
        (result, AFTER.take().is_none())
    }

    pub(in crate::list_lru) fn is_now() -> bool {
        let after = AFTER.get();
        AFTER.set(after.and_then(|n| n.checked_sub(1)));
        after == Some(0)
    }
}
