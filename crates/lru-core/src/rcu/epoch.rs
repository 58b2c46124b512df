//! Where the system does not help: crossbeam-epoch.

use super::Retired;

/// Proof that the thread is inside the read side.
pub(crate) struct Guard(crossbeam_epoch::Guard);

/// Enters the read side. Cheap when the thread is inside already.
#[inline]
pub(crate) fn pin() -> Guard {
    Guard(crossbeam_epoch::pin())
}

/// Frees what can be freed: gives this thread's part to the collector, which does it in time.
pub(crate) fn flush() {
    crossbeam_epoch::pin().flush();
}

impl Guard {
    /// Frees what is behind `ptr` once every reader that may have seen it is gone.
    ///
    /// # Safety
    ///
    /// `ptr` is what [`Retired::free`] frees, is unreachable for readers that pin from now on, and is retired once.
    pub(crate) unsafe fn retire<T: Retired>(&self, ptr: *mut T) {
        let free = move || {
            // SAFETY: `ptr` is retired once, says the caller; the epoch says that nobody reads it.
            unsafe { T::free(ptr) };
        };
        // SAFETY: `free` may run on another thread: a `Retired` is Send. It borrows nothing.
        unsafe { self.0.defer_unchecked(free) };
    }
}
