//! User space: crossbeam-epoch.

use super::Retired;
use alloc::boxed::Box;

/// Proof that the thread is inside the read side.
pub(crate) struct Guard(crossbeam_epoch::Guard);

/// Enters the read side. Cheap when the thread is inside already.
#[inline]
pub(crate) fn pin() -> Guard {
    Guard(crossbeam_epoch::pin())
}

impl Guard {
    /// Frees the box behind `ptr` once every reader that may have seen it is gone.
    ///
    /// # Safety
    ///
    /// `ptr` came from [`Box::into_raw`], is unreachable for readers that pin from now on, and is retired once.
    pub(crate) unsafe fn retire<T: Retired>(&self, ptr: *mut T) {
        let free = move || {
            // SAFETY: `ptr` came from `Box::into_raw` and is retired once, says the caller; the epoch says that nobody reads it.
            drop(unsafe { Box::from_raw(ptr) });
        };
        // SAFETY: `free` may run on another thread: `T` is Send. It borrows nothing.
        unsafe { self.0.defer_unchecked(free) };
    }

    /// Calls `free(ptr)` once every reader that may have seen what `ptr` names is gone.
    ///
    /// # Safety
    ///
    /// What `ptr` names is unreachable for readers that pin from now on; `free` may be called with it once, on any thread.
    pub(crate) unsafe fn retire_by(&self, ptr: *mut (), free: unsafe fn(*mut ())) {
        let call = move || {
            // SAFETY: once, says the caller; the epoch says that nobody reads it.
            unsafe { free(ptr) };
        };
        // SAFETY: `call` may run on another thread, says the caller. It borrows nothing.
        unsafe { self.0.defer_unchecked(call) };
    }
}
