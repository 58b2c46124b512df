//! The read side for builds with neither `std` nor an embedder's read side, and for model checks:
//! readers are [counted](super::reader_count), and retired objects are [queued](super::queue)
//! through a link inside them.
//!
//! Bare metal has neither `membarrier` nor threads' ends, so one shared count is the only way to
//! know that no reader is inside. The last reader to leave frees, so the drop of a guard may take
//! long.
//!
//! A change of the interface must be made in the other backends, too (`guard.rs` names them).

use crate::queue::Queues;
use crate::reader_count::{Garbage, ReaderCount};
use crate::retired::Retired;
use core::marker::PhantomData;

#[cfg(not(lowwater_loom))]
static READERS: ReaderCount<Queues> = ReaderCount::new(Queues::new());

#[cfg(lowwater_loom)]
::loom::lazy_static! {
    static ref READERS: ReaderCount<Queues> = ReaderCount::new(Queues::new());
}

impl Garbage for Queues {
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take(&mut self) -> Self {
        Queues::take(self)
    }

    unsafe fn free(self) {
        // SAFETY: the clause of `Garbage::free`, which is that of `Queues::free`.
        unsafe { Queues::free(self) };
    }
}

/// Proof that the thread is inside the read side. Not `Send`, like the guards of `std` builds:
/// enabling a feature must not remove an implementation.
pub(crate) struct Guard(PhantomData<*const ()>);

/// Enters the read side.
pub(crate) fn pin() -> Guard {
    READERS.enter();
    Guard(PhantomData)
}

/// Enters the read side; never `None`.
#[inline]
pub(crate) fn try_pin() -> Option<Guard> {
    Some(pin())
}

/// A cookie for a grace period, from [`start_poll`]. Empty: [`poll`](Self::poll) tests for readers
/// when it is called.
#[derive(Clone, Debug)]
pub struct GracePeriod(());

/// Starts a grace period. An object may be freed once [`poll`](GracePeriod::poll) returns true if
/// it was made unreachable before this call, inside the read side, by this thread or under a lock
/// that this thread took since.
#[doc(alias = "start_poll_synchronize_rcu")]
pub fn start_poll() -> GracePeriod {
    GracePeriod(())
}

impl GracePeriod {
    /// Returns whether [`poll`](Self::poll) can be called without a fence on every processor.
    pub fn is_fenced(&self) -> bool {
        true
    }

    /// Returns true only if all readers that were inside when the grace period started have left.
    /// Returns false while any reader is inside, also a later one.
    #[doc(alias = "poll_state_synchronize_rcu")]
    pub fn poll(&self) -> bool {
        crate::mutated!("stamp_without_waiting") || READERS.is_quiescent()
    }
}

/// Frees retired objects whose grace period is over. Does nothing in this build, in which the last
/// reader has freed them.
#[doc(alias = "rcu_barrier")]
pub fn flush() {}

impl Guard {
    /// Frees `ptr` once every reader that may have seen it has left.
    ///
    /// # Safety
    ///
    /// `ptr` is an object that [`Retired::free`] can free, is unreachable for readers that pin from
    /// now on, and is retired once.
    pub(crate) unsafe fn retire<T: Retired>(&self, ptr: *mut T) {
        #[cfg(lowwater_loom)]
        if crate::mutated!("free_without_waiting") {
            // SAFETY: the object is live. It is deliberately not freed, so that the model check
            // detects a thread that still reads it.
            return unsafe { T::assert_unread(ptr) };
        }
        let push = |garbage: &mut Queues| {
            // SAFETY: the object is retired (this function's clause).
            unsafe { garbage.push(ptr) };
        };
        // SAFETY: the guard is inside the read side, and the object was unlinked (this function's
        // clause).
        unsafe { READERS.put(push) };
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        // SAFETY: the guard entered the read side in `pin`, and is dropped once.
        unsafe { READERS.leave() };
    }
}
