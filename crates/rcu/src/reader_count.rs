//! Reader counting: retired objects are freed when the count of readers is 0.
//!
//! # Orderings
//!
//! ```text
//!     last reader out, or an earlier one       a reader
//!       make the object unreachable
//!       readers -= 1  (Release)                  readers += 1  (Acquire)
//!       readers == 0? free                       follow the pointer
//! ```
//!
//! - If a new reader is counted before the leaving one subtracts itself, the count does not become
//!   0, and the leaving reader frees nothing.
//! - If the new reader is counted afterwards, its Acquire pairs with the Release of every reader
//!   that left before, and it no longer finds the object. So the collector may overlook this
//!   reader, and read a 0 that is outdated.
//! - A thread that retires an object is itself a reader, and hands the object over under a lock. So
//!   a collector that finds the object reads no 0 that is older than that reader's entry.
//!
//! While there is always at least one reader, nothing is freed; an embedder's own read side avoids
//! this.
//!
//! A change must keep these orderings, and must not free under the lock: destructors may retire.
//! docs/ORDERINGS.md lists the model checks, and their mutants `pin_relaxed`, `unpin_relaxed` and
//! `collect_relaxed`.

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::Mutex;

/// Retired objects that wait for readers.
pub trait Garbage: Sized {
    /// Returns whether there are no objects.
    fn is_empty(&self) -> bool;

    /// Removes and returns all objects.
    fn take(&mut self) -> Self;

    /// Frees all objects.
    ///
    /// # Safety
    ///
    /// No reader uses any of them.
    unsafe fn free(self);
}

/// The count of readers, and the retired objects that wait for them to leave.
pub struct ReaderCount<G> {
    /// The number of readers inside.
    active: AtomicUsize,
    waiting: Mutex<Waiting<G>>,
}

struct Waiting<G> {
    garbage: G,
    /// Whether a thread is freeing objects now. That thread checks again before it finishes.
    /// Destructors may use the read side themselves, and without this flag would free the next
    /// objects recursively, each level deeper in the stack.
    is_freeing: bool,
}

impl<G: Garbage> ReaderCount<G> {
    /// Creates a count of zero readers, with `garbage` as the objects that wait.
    #[cfg(not(lowwater_loom))]
    pub const fn new(garbage: G) -> Self {
        Self { active: AtomicUsize::new(0), waiting: Mutex::new(Waiting { garbage, is_freeing: false }) }
    }

    /// Creates a count of zero readers, with `garbage` as the objects that wait.
    #[cfg(lowwater_loom)]
    pub fn new(garbage: G) -> Self {
        Self { active: AtomicUsize::new(0), waiting: Mutex::new(Waiting { garbage, is_freeing: false }) }
    }

    /// Enters the read side: until the matching [`leave`](Self::leave), no object that this reader
    /// can reach is freed. Aborts the process if more than `isize::MAX` readers are inside.
    pub fn enter(&self) {
        // Acquire: pairs with the Release in `leave`; see the module's table.
        let ordering = if crate::mutated!("pin_relaxed") { Ordering::Relaxed } else { Ordering::Acquire };
        crate::guard_overflow::check_guards(self.active.fetch_add(1, ordering));
    }

    /// Leaves the read side. The last reader to leave frees the retired objects.
    ///
    /// # Safety
    ///
    /// The caller [entered](Self::enter), and leaves once for each time it entered.
    pub unsafe fn leave(&self) {
        // Release: pairs with the Acquire in `enter` and in `is_quiescent`.
        let ordering = if crate::mutated!("unpin_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        if self.active.fetch_sub(1, ordering) == 1 {
            let waits = !self.waiting.lock().garbage.is_empty();
            if waits {
                self.collect();
            }
        }
    }

    /// Adds retired objects: calls `put`, which must free none, under the lock.
    ///
    /// # Safety
    ///
    /// The caller is inside the read side, and the objects it adds are unreachable for readers that
    /// enter from now on.
    pub unsafe fn put(&self, put: impl FnOnce(&mut G)) {
        put(&mut self.waiting.lock().garbage);
    }

    /// Returns whether no reader is inside. If true, all readers whose entry happened before the
    /// call have left: the count that is read is not older than such an entry. A reader that enters
    /// meanwhile may be overlooked; it cannot find objects that were retired before the call.
    pub fn is_quiescent(&self) -> bool {
        // Acquire: pairs with the Release in `leave`, so that the readers' last reads happen before
        // the freeing.
        let ordering = if crate::mutated!("collect_relaxed") { Ordering::Relaxed } else { Ordering::Acquire };
        self.active.load(ordering) == 0
    }

    /// Frees the waiting objects, unless a reader is inside or another thread is freeing.
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
            // SAFETY: the objects were unreachable before they were added (the clause of `put`),
            // and by the table in the module's documentation no reader that is inside can have a
            // pointer to one.
            unsafe { gone.free() };
            core::mem::forget(again);
            waiting = self.waiting.lock();
            waiting.is_freeing = false;
        }
    }
}

/// Allows other threads to free again if a destructor panics.
struct Again<'a, G: Garbage>(&'a ReaderCount<G>);

impl<G: Garbage> Drop for Again<'_, G> {
    fn drop(&mut self) {
        self.0.waiting.lock().is_freeing = false;
    }
}
