//! Readers are counted; whoever finds nobody inside frees.
//!
//! # Orderings
//!
//! ```text
//!     reader                         collector
//!       readers += 1                   (thing made unreachable)
//!       fence(SeqCst)                  fence(SeqCst)
//!       follow the pointer             readers == 0? free
//! ```
//!
//! - If the reader's fence comes first, the collector sees it counted, and keeps the garbage.
//! - If the collector's comes first, the reader no longer finds the thing.
//!
//! While there always is a reader nothing is freed: what an embedder gains by bringing its own.

use crate::sync::atomic::{fence, AtomicUsize, Ordering};
use crate::sync::Mutex;
use alloc::boxed::Box;
use alloc::vec::Vec;

struct Garbage {
    ptr: *mut (),
    free: unsafe fn(*mut ()),
}

// SAFETY: only `Send` things are retired (bound of `retire`), so another thread may free them.
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
pub(crate) struct Guard(());

/// Enters the read side.
pub(crate) fn pin() -> Guard {
    // Relaxed: the fence below orders it.
    DOMAIN.readers.fetch_add(1, Ordering::Relaxed);
    if !crate::mutated!("pin_without_fence") {
        // SeqCst: meets the fence in `collect`; see the module's table.
        fence(Ordering::SeqCst);
    }
    Guard(())
}

impl Guard {
    /// Frees the box behind `ptr` once every reader that may have seen it is gone. Where no memory is left to remember it, it
    /// is leaked.
    ///
    /// # Safety
    ///
    /// `ptr` came from [`Box::into_raw`], is unreachable for readers that pin from now on, and is retired once.
    pub(crate) unsafe fn retire<T: Send + 'static>(&self, ptr: *mut T) {
        unsafe fn free<T>(ptr: *mut ()) {
            // SAFETY: `retire` stored this function beside a pointer to a boxed `T`.
            drop(unsafe { Box::from_raw(ptr.cast::<T>()) });
        }
        if crate::mutated!("free_without_waiting") {
            // SAFETY: none; this is the fault that the model check must catch.
            return unsafe { free::<T>(ptr.cast()) };
        }
        let mut garbage = DOMAIN.garbage.lock();
        if garbage.try_reserve(1).is_ok() {
            garbage.push(Garbage { ptr: ptr.cast(), free: free::<T> });
        }
    }
}

impl Domain {
    #[cold]
    fn collect(&self) {
        let mut garbage = self.garbage.lock();
        if !crate::mutated!("collect_without_fence") {
            // SeqCst: meets the fence in `pin`; see the module's table.
            fence(Ordering::SeqCst);
        }
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
        // Release: meets the Acquire in `collect`.
        let ordering = if crate::mutated!("unpin_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        if DOMAIN.readers.fetch_sub(1, ordering) == 1 {
            let waiting = !DOMAIN.garbage.lock().is_empty();
            if waiting {
                DOMAIN.collect();
            }
        }
    }
}

impl Drop for Domain {
    /// Runs at the end of each model check only; elsewhere a static is never dropped.
    fn drop(&mut self) {
        for g in self.garbage.lock().drain(..) {
            // SAFETY: no guard is left, so nobody reads what was kept.
            unsafe { (g.free)(g.ptr) };
        }
    }
}
