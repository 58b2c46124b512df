//! Where the system does not help: crossbeam-epoch.

use crate::retired::Retired;
use crate::sync::atomic::{AtomicBool, Ordering};
use alloc::sync::Arc;

/// Proof that the thread is inside the read side.
pub(crate) struct Guard(crossbeam_epoch::Guard);

/// Enters the read side. Cheap when the thread is inside already.
#[inline]
pub(crate) fn pin() -> Guard {
    Guard(crossbeam_epoch::pin())
}

/// A moment, after which readers are waited for.
#[derive(Clone, Debug)]
pub struct GracePeriod(Arc<AtomicBool>);

/// Starts a grace period. What was made unreachable before this call, inside the read side, by this thread or under a lock that it
/// took since, may be freed once [`poll`](GracePeriod::poll) returns true. O(1), a lock.
#[doc(alias = "start_poll_synchronize_rcu")]
pub fn start_poll() -> GracePeriod {
    let past = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&past);
    let guard = crossbeam_epoch::pin();
    // Release: meets the Acquire in `poll`.
    guard.defer(move || theirs.store(true, Ordering::Release));
    guard.flush();
    GracePeriod(past)
}

impl GracePeriod {
    /// Can [`poll`](Self::poll) be asked without a fence on every processor?
    pub fn is_fenced(&self) -> bool {
        true
    }

    /// Has every reader left that was inside then?
    #[doc(alias = "poll_state_synchronize_rcu")]
    pub fn poll(&self) -> bool {
        // The collector moves on when threads come and go.
        crossbeam_epoch::pin().flush();
        // Acquire: meets the Release in `start_poll`.
        self.0.load(Ordering::Acquire)
    }
}

/// Frees what can be freed: gives this thread's part to the collector, which does it in time.
#[doc(alias = "rcu_barrier")]
pub fn flush() {
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
