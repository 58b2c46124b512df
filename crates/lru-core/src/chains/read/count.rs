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

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::Mutex;
use alloc::vec::Vec;

struct Garbage {
    ptr: *mut (),
    free: unsafe fn(*mut ()),
}

// SAFETY: only things that another thread may free are retired (a promise to `retire_by`).
unsafe impl Send for Garbage {}

/// The count of readers, and what waits for them to leave.
struct Domain {
    readers: AtomicUsize,
    garbage: Mutex<Vec<Garbage>>,
}

#[cfg(not(lowwater_loom))]
static DOMAIN: Domain = Domain { readers: AtomicUsize::new(0), garbage: Mutex::new(Vec::new()) };

#[cfg(lowwater_loom)]
::loom::lazy_static! {
    static ref DOMAIN: Domain = Domain { readers: AtomicUsize::new(0), garbage: Mutex::new(Vec::new()) };
}

/// Proof that the thread is inside the read side.
pub(in crate::chains) struct Guard(());

/// Enters the read side.
pub(in crate::chains) fn pin() -> Guard {
    // Acquire: meets the Release in the guard's drop; see the module's table.
    DOMAIN.readers.fetch_add(1, if crate::mutated!("pin_relaxed") { Ordering::Relaxed } else { Ordering::Acquire });
    Guard(())
}

impl Guard {
    /// Calls `free(ptr)` once every reader that may have seen what `ptr` names is gone. Where no memory is left to remember it,
    /// that never happens.
    ///
    /// # Safety
    ///
    /// What `ptr` names is unreachable for readers that pin from now on; `free` may be called with it once, on any thread.
    pub(in crate::chains) unsafe fn retire_by(&self, ptr: *mut (), free: unsafe fn(*mut ())) {
        let mut garbage = DOMAIN.garbage.lock();
        if garbage.try_reserve(1).is_ok() {
            garbage.push(Garbage { ptr, free });
        }
    }
}

impl Domain {
    #[cold]
    fn collect(&self) {
        let mut garbage = self.garbage.lock();
        // Acquire: meets the Release in the guard's drop, so that readers' last reads come before the freeing.
        if self.readers.load(Ordering::Acquire) == 0 {
            for g in garbage.drain(..) {
                // SAFETY: `g` was unreachable before it was put here, and by the table above no reader inside can hold it.
                unsafe { (g.free)(g.ptr) };
            }
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
            let waiting = !DOMAIN.garbage.lock().is_empty();
            if waiting {
                DOMAIN.collect();
            }
        }
    }
}
