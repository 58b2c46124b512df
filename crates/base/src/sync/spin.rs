//! Spin locks from `core`'s atomics.

use super::atomic::{AtomicBool, AtomicUsize, Ordering};
use super::spin_loop;

/// A test-and-test-and-set spin lock.
#[derive(Debug)]
pub struct RawMutex(AtomicBool);

// SAFETY: `lock` and `try_lock` return as holder only after they changed false to true, `unlock` alone changes it back, so
// there is at most one holder; Acquire and Release on that word order what the holders did.
unsafe impl lock_api::RawMutex for RawMutex {
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardSend;

    #[inline]
    fn lock(&self) {
        while !self.try_lock() {
            // Relaxed: only a hint when to try again; `try_lock` does the ordering.
            while self.0.load(Ordering::Relaxed) {
                spin_loop();
            }
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        // Acquire: meets the Release in `unlock`, so that we see what the last holder wrote. Relaxed on failure: nothing is read.
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // Release: meets the Acquire in `try_lock`.
        self.0.store(false, Ordering::Release);
    }
}

/// A reader-writer spin lock: the word counts readers, all ones means a writer.
#[derive(Debug)]
pub struct RawRwLock(AtomicUsize);

const WRITER: usize = usize::MAX;

// SAFETY: a writer enters only from 0 and stores WRITER, a reader enters only from a value below WRITER - 1 and adds one, so
// a writer is never inside with anybody else; Acquire on entry meets Release on exit.
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: Self = Self(AtomicUsize::new(0));
    type GuardMarker = lock_api::GuardSend;

    fn lock_shared(&self) {
        while !self.try_lock_shared() {
            spin_loop();
        }
    }

    fn try_lock_shared(&self) -> bool {
        // Relaxed: the value only chooses what the exchange tries.
        let readers = self.0.load(Ordering::Relaxed);
        // Acquire: meets the Release of the last writer.
        readers < WRITER - 1
            && self.0.compare_exchange(readers, readers + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    unsafe fn unlock_shared(&self) {
        // Release: a writer that sees 0 must come after our reads.
        self.0.fetch_sub(1, Ordering::Release);
    }

    fn lock_exclusive(&self) {
        while !self.try_lock_exclusive() {
            spin_loop();
        }
    }

    fn try_lock_exclusive(&self) -> bool {
        // Acquire: meets the Release of readers and of the last writer.
        self.0.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    unsafe fn unlock_exclusive(&self) {
        // Release: meets the Acquire of whoever enters next.
        self.0.store(0, Ordering::Release);
    }
}
