//! The read side for systems without `membarrier`: crossbeam-epoch.
//!
//! Same interface as the other backends (`guard.rs` names them), without `heavy_fences`.
//! crossbeam-epoch may abort without memory, and frees later than the others, so tests that count
//! frees or fail allocations are left out with `--cfg lowwater_epoch`.
//!
//! A change of the interface must be made in all backends.

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

/// Enters the read side; never `None`.
#[inline]
pub(crate) fn try_pin() -> Option<Guard> {
    Some(pin())
}

/// A cookie for a grace period.
#[derive(Clone, Debug)]
pub struct GracePeriod(Arc<AtomicBool>);

/// Starts a grace period.
///
/// An object may be freed once [`poll`](GracePeriod::poll) returns true, if it was made unreachable
/// before this call, by a thread that was inside the read side. If another thread made it
/// unreachable, that thread must have done so under a lock which this thread has taken afterwards.
/// Allocates, and may free retired objects.
#[doc(alias = "start_poll_synchronize_rcu")]
pub fn start_poll() -> GracePeriod {
    let past = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&past);
    let guard = crossbeam_epoch::pin();
    // Release: pairs with the Acquire in `poll`.
    guard.defer(move || theirs.store(true, Ordering::Release));
    guard.flush();
    GracePeriod(past)
}

impl GracePeriod {
    /// Returns whether [`poll`](Self::poll) can be called without a fence on every processor.
    /// Always true: `poll` runs a fence on this processor only.
    pub fn is_fenced(&self) -> bool {
        true
    }

    /// Returns whether all readers that were inside when the grace period started have left. May
    /// return false for some time after they have left.
    #[doc(alias = "poll_state_synchronize_rcu")]
    pub fn poll(&self) -> bool {
        // The collector advances its epoch only when threads pin.
        crossbeam_epoch::pin().flush();
        // Acquire: pairs with the Release in `start_poll`.
        self.0.load(Ordering::Acquire)
    }
}

/// Hands this thread's retired objects to the collector, which frees them when their grace period
/// is over. Unlike Linux' `rcu_barrier`, does not wait for that.
#[doc(alias = "rcu_barrier")]
pub fn flush() {
    crossbeam_epoch::pin().flush();
}

impl Guard {
    /// Frees `ptr` once every reader that may have seen it has left. A panic of its destructor is
    /// caught.
    ///
    /// # Safety
    ///
    /// `ptr` is an object that [`Retired::free`] can free, is unreachable for readers that pin from
    /// now on, and is retired once.
    pub(crate) unsafe fn retire<T: Retired>(&self, ptr: *mut T) {
        let free = move || {
            // The collector would forget the other objects of its batch if this panicked.
            lowwater_base::unwind::caught(|| {
                // SAFETY: `ptr` is retired once (this function's clause), and the collector runs
                // this after the grace period, when no reader uses the object.
                unsafe { T::free(ptr) };
            });
        };
        // SAFETY: `free` may run on another thread, and a `Retired` is `Send`. The closure borrows
        // nothing.
        unsafe { self.0.defer_unchecked(free) };
    }
}
