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

/// What waits for readers.
pub trait Garbage: Sized {
    /// Is there none?
    fn is_empty(&self) -> bool;

    /// Takes all.
    fn take(&mut self) -> Self;

    /// Frees it.
    ///
    /// # Safety
    ///
    /// No reader sees any of it.
    unsafe fn free(self);
}

/// The count of readers, and what waits for them to leave.
pub struct ReaderCount<G> {
    active: AtomicUsize,
    waiting: Mutex<Waiting<G>>,
}

struct Waiting<G> {
    garbage: G,
    /// Is somebody freeing what was here? He looks again before he is done: what is freed may use the read side itself, and would else
    /// have the next freed, and so on, each deeper in the stack.
    is_freeing: bool,
}

impl<G: Garbage> ReaderCount<G> {
    /// Nobody is inside.
    #[cfg(not(lowwater_loom))]
    pub const fn new(garbage: G) -> Self {
        Self { active: AtomicUsize::new(0), waiting: Mutex::new(Waiting { garbage, is_freeing: false }) }
    }

    /// Nobody is inside.
    #[cfg(lowwater_loom)]
    pub fn new(garbage: G) -> Self {
        Self { active: AtomicUsize::new(0), waiting: Mutex::new(Waiting { garbage, is_freeing: false }) }
    }

    /// Comes in.
    pub fn enter(&self) {
        // Acquire: meets the Release in `leave`; see the module's table.
        let ordering = if crate::mutated!("pin_relaxed") { Ordering::Relaxed } else { Ordering::Acquire };
        crate::guard_overflow::check_guards(self.active.fetch_add(1, ordering));
    }

    /// Goes out; the last one frees.
    ///
    /// # Safety
    ///
    /// The caller [entered](Self::enter), and leaves once for each time.
    pub unsafe fn leave(&self) {
        // Release: meets the Acquire in `enter` and in `is_quiescent`.
        let ordering = if crate::mutated!("unpin_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        if self.active.fetch_sub(1, ordering) == 1 {
            let waits = !self.waiting.lock().garbage.is_empty();
            if waits {
                self.collect();
            }
        }
    }

    /// Puts garbage where it waits.
    ///
    /// # Safety
    ///
    /// The caller is inside, and what it adds is unreachable for readers that enter from now on.
    pub unsafe fn put(&self, put: impl FnOnce(&mut G)) {
        put(&mut self.waiting.lock().garbage);
    }

    /// Is nobody inside? Then everybody has left who was, and so have those who made something unreachable before: a 0 that is read
    /// here is no older than that.
    pub fn is_quiescent(&self) -> bool {
        // Acquire: meets the Release in `leave`, so that readers' last reads come before the freeing.
        let ordering = if crate::mutated!("collect_relaxed") { Ordering::Relaxed } else { Ordering::Acquire };
        self.active.load(ordering) == 0
    }

    #[cold]
    fn collect(&self) {
        let mut waiting = self.waiting.lock();
        if waiting.is_freeing {
            return;
        }
        while !waiting.garbage.is_empty() && self.is_quiescent() {
            waiting.is_freeing = true;
            let gone = waiting.garbage.take();
            drop(waiting);
            let again = Again(self);
            // SAFETY: it was unreachable before it was put here, and by the table above no reader inside can hold it.
            unsafe { gone.free() };
            core::mem::forget(again);
            waiting = self.waiting.lock();
            waiting.is_freeing = false;
        }
    }
}

/// Has others free, should the freeing panic.
struct Again<'a, G: Garbage>(&'a ReaderCount<G>);

impl<G: Garbage> Drop for Again<'_, G> {
    fn drop(&mut self) {
        self.0.waiting.lock().is_freeing = false;
    }
}
