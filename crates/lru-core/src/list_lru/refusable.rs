//! [`try_box`] and [`try_vec`] of `lowwater-base`, which tests can have refused.

use crate::fallible;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// [`fallible::try_box`].
pub(super) fn try_box<T>(value: T) -> Option<Box<T>> {
    #[cfg(test)]
    if fault::is_now() {
        return None;
    }
    fallible::try_box(value)
}

/// [`fallible::try_vec`].
pub(super) fn try_vec<T>(capacity: usize) -> Option<Vec<T>> {
    #[cfg(test)]
    if fault::is_now() {
        return None;
    }
    fallible::try_vec(capacity)
}

/// Refusals for tests, on the thread that asks for them.
#[cfg(test)]
pub(super) mod fault {
    extern crate std;
    use core::cell::Cell;

    // In a model check too: nobody is refused there, and its threads are one.
    std::thread_local! { static AFTER: Cell<Option<usize>> = const { Cell::new(None) }; }

    /// Runs `f`, in which so many are not refused and then one is. Says whether it came to that.
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
