//! User space: parking_lot and the standard library.

pub use ::std::thread;
pub use alloc::sync::{Arc, Weak};
pub use core::hint::spin_loop;
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Atomic types, their orderings and fences.
pub mod atomic {
    pub use core::sync::atomic::*;
}

/// Lets another thread run, where a lock-free loop waits for somebody else's next step.
#[inline]
pub fn yield_now() {
    thread::yield_now();
}

#[doc(hidden)]
pub mod raw {
    use lock_api::RawMutex as _;

    /// A lock without data: one byte, not reentrant, not poisoned.
    pub struct RawLock(parking_lot::RawMutex);

    impl Default for RawLock {
        fn default() -> Self {
            Self::new()
        }
    }

    impl RawLock {
        /// Makes an unlocked lock.
        #[inline]
        pub const fn new() -> Self {
            Self(parking_lot::RawMutex::INIT)
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
