//! Without std: a spin lock from `core`'s atomics.
//!
//! A holder that is preempted keeps everybody spinning; that is what an embedder whose holders cannot be preempted (a kernel
//! with preemption off, one core) accepts, and why `std` builds use parking_lot.

pub use alloc::sync::{Arc, Weak};
pub use core::hint::spin_loop;

/// Atomic types, their orderings and fences.
pub mod atomic {
    pub use core::sync::atomic::*;
}

use atomic::{AtomicBool, AtomicUsize, Ordering};

/// [`lock_api::Mutex`] over the spin lock.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// The right to what a [`Mutex`] holds.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// [`lock_api::RwLock`] over the spin lock.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// The right to read what an [`RwLock`] holds.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// The right to change what an [`RwLock`] holds.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

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

/// Lets another thread run: here there is no scheduler to ask, so the processor is told that we spin.
#[inline]
pub fn yield_now() {
    spin_loop();
}

pub(crate) mod raw {
    use lock_api::RawMutex as _;

    /// A lock without data: one byte, not reentrant.
    pub struct RawLock(super::RawMutex);

    impl RawLock {
        /// Makes an unlocked lock.
        #[inline]
        pub const fn new() -> Self {
            Self(super::RawMutex::INIT)
        }

        /// Waits for the lock and takes it.
        #[inline]
        pub fn lock(&self) {
            self.0.lock();
        }

        /// Takes the lock if it is free.
        #[inline]
        pub fn try_lock(&self) -> bool {
            self.0.try_lock()
        }

        /// Gives the lock back.
        ///
        /// # Safety
        ///
        /// The caller holds the lock.
        #[inline]
        pub unsafe fn unlock(&self) {
            // SAFETY: the caller holds the lock, which is all that `RawMutex::unlock` asks.
            unsafe { self.0.unlock() }
        }
    }
}
