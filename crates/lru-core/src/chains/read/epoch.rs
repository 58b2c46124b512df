//! User space: crossbeam-epoch.

/// Proof that the thread is inside the read side.
pub(in crate::chains) struct Guard(crossbeam_epoch::Guard);

/// Enters the read side. Cheap when the thread is inside already.
#[inline]
pub(in crate::chains) fn pin() -> Guard {
    Guard(crossbeam_epoch::pin())
}

impl Guard {
    /// Calls `free(ptr)` once every reader that may have seen what `ptr` names is gone.
    ///
    /// # Safety
    ///
    /// What `ptr` names is unreachable for readers that pin from now on; `free` may be called with it once, on any thread.
    pub(in crate::chains) unsafe fn retire_by(&self, ptr: *mut (), free: unsafe fn(*mut ())) {
        let call = move || {
            // SAFETY: once, says the caller; the epoch says that nobody reads it.
            unsafe { free(ptr) };
        };
        // SAFETY: `call` may run on another thread, says the caller. It borrows nothing.
        unsafe { self.0.defer_unchecked(call) };
    }
}
