//! Readers are counted; whoever finds nobody inside frees.
//!
//! # Orderings
//!
//! ```text
//!     last reader out, or an earlier one       a reader
//!       make the thing unreachable
//!       readers -= 1  (Release)                  readers += 1  (Acquire)
//!       readers == 0? free                       follow the pointer
//! ```
//!
//! - If the new reader counts itself before the last one leaves, that one is not the last, and nobody frees.
//! - If it does so after, its Acquire meets the Release of everyone who left before, and it no longer finds the thing. That the
//!   collector then reads a 0 which is out of date does no harm.
//! - Who retires a thing is inside itself, and hands it over under a lock; so a collector that finds the thing sees at least
//!   that reader counted.
//!
//! While there always is a reader nothing is freed: what an embedder gains by bringing its own.

use super::{Queues, Retired};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::Mutex;

/// The count of readers, and what waits for them to leave.
struct Domain {
    readers: AtomicUsize,
    garbage: Mutex<Queues>,
}

#[cfg(not(lowwater_loom))]
static DOMAIN: Domain = Domain { readers: AtomicUsize::new(0), garbage: Mutex::new(Queues::new()) };

#[cfg(lowwater_loom)]
::loom::lazy_static! {
    static ref DOMAIN: Domain = Domain { readers: AtomicUsize::new(0), garbage: Mutex::new(Queues::new()) };
}

/// Proof that the thread is inside the read side.
pub(crate) struct Guard(());

/// Enters the read side.
pub(crate) fn pin() -> Guard {
    // Acquire: meets the Release in the guard's drop; see the module's table.
    DOMAIN.readers.fetch_add(1, if crate::mutated!("pin_relaxed") { Ordering::Relaxed } else { Ordering::Acquire });
    Guard(())
}

/// A moment, after which readers are waited for.
#[derive(Clone, Debug)]
pub(crate) struct Stamp(());

/// The moment that is now: what was made unreachable before, inside the read side, by this thread or under a lock that it took
/// since, may be freed once this [`is_past`](Stamp::is_past).
pub(crate) fn seal() -> Stamp {
    Stamp(())
}

impl Stamp {
    /// Is nobody inside? Then every reader has left that was inside at the stamp. See the module's table: who made the thing
    /// unreachable has left since, so a 0 that is read here is no older than that.
    pub(crate) fn is_past(&self) -> bool {
        if crate::mutated!("stamp_without_waiting") {
            return true;
        }
        // Acquire: meets the Release in the guard's drop, so that readers' last reads come before the freeing.
        DOMAIN.readers.load(Ordering::Acquire) == 0
    }
}

/// Frees what can be freed: here that is done as soon as it can be.
pub(crate) fn flush() {}

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
        let mut garbage = DOMAIN.garbage.lock();
        // SAFETY: it is retired, says the caller.
        unsafe { T::queue(&mut garbage).push(ptr) };
    }
}

impl Domain {
    #[cold]
    fn collect(&self) {
        let mut garbage = self.garbage.lock();
        // Acquire: meets the Release in the guard's drop, so that readers' last reads come before the freeing.
        let ordering = if crate::mutated!("collect_relaxed") { Ordering::Relaxed } else { Ordering::Acquire };
        if self.readers.load(ordering) == 0 {
            // SAFETY: it was unreachable before it was put here, and by the table above no reader inside can hold it.
            unsafe { garbage.take().free() };
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        // Release: meets the Acquire in `pin` and in `collect`.
        let ordering = if crate::mutated!("unpin_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        if DOMAIN.readers.fetch_sub(1, ordering) == 1 {
            let waiting = DOMAIN.garbage.lock().len() != 0;
            if waiting {
                DOMAIN.collect();
            }
        }
    }
}
