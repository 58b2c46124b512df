//! Readers are [counted](super::reader_count); what is retired is [queued](super::queue) through itself.

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

/// Proof that the thread is inside the read side. Not `Send`, as `std` builds' guards are not: a
/// feature must not remove an implementation.
pub(crate) struct Guard(PhantomData<*const ()>);

/// Enters the read side.
pub(crate) fn pin() -> Guard {
    READERS.enter();
    Guard(PhantomData)
}

/// A moment, after which readers are waited for.
#[derive(Clone, Debug)]
pub struct GracePeriod(());

/// Starts a grace period. What was made unreachable before this call, inside the read side, by this thread or under a lock that it
/// took since, may be freed once [`poll`](GracePeriod::poll) returns true. O(1), a lock.
#[doc(alias = "start_poll_synchronize_rcu")]
pub fn start_poll() -> GracePeriod {
    GracePeriod(())
}

impl GracePeriod {
    /// Can [`poll`](Self::poll) be asked without a fence on every processor?
    pub fn is_fenced(&self) -> bool {
        true
    }

    /// Has everybody left who was inside at the stamp?
    #[doc(alias = "poll_state_synchronize_rcu")]
    pub fn poll(&self) -> bool {
        crate::mutated!("stamp_without_waiting") || READERS.is_quiescent()
    }
}

/// Frees what can be freed: here that is done as soon as it can be.
#[doc(alias = "rcu_barrier")]
pub fn flush() {}

impl Guard {
    /// Frees what is behind `ptr` once every reader that may have seen it is gone.
    ///
    /// # Safety
    ///
    /// `ptr` is what [`Retired::free`] frees, is unreachable for readers that pin from now on, and is retired once.
    pub(crate) unsafe fn retire<T: Retired>(&self, ptr: *mut T) {
        #[cfg(lowwater_loom)]
        if crate::mutated!("free_without_waiting") {
            // SAFETY: it is live. It is not really freed, so that whoever still reads it can be found out.
            return unsafe { T::assert_unread(ptr) };
        }
        let push = |garbage: &mut Queues| {
            // SAFETY: the object is retired (this function's clause).
            unsafe { garbage.push(ptr) };
        };
        // SAFETY: the guard is inside, and the object was unlinked (this function's clause).
        unsafe { READERS.put(push) };
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        // SAFETY: the guard entered, and is dropped once.
        unsafe { READERS.leave() };
    }
}
