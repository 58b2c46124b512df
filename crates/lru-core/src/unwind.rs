//! Calls of code that may panic and must not end the thread that makes them.

/// Calls `f`. None if it panicked; a panic of the payload's own `Drop` is kept from the caller too.
///
/// Without `std` a panic cannot be caught.
#[cfg(any(feature = "std", lowwater_loom))]
pub fn caught<R>(f: impl FnOnce() -> R) -> Option<R> {
    use core::panic::AssertUnwindSafe;
    use std::panic::catch_unwind;

    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => Some(result),
        Err(payload) => {
            // A payload is a value of any type, and its `Drop` is user code. A second payload is leaked: its `Drop` may
            // panic as well, and there is no end to it.
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                core::mem::forget(second);
            }
            None
        }
    }
}

/// Calls `f`. Without `std` a panic cannot be caught.
#[cfg(not(any(feature = "std", lowwater_loom)))]
pub fn caught<R>(f: impl FnOnce() -> R) -> Option<R> {
    Some(f())
}
