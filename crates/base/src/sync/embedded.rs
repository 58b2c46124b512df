//! The embedder's lock.
//!
//! The guards are not `Send`, because a kernel's lock may have to be released by the thread that
//! took it. There is one lock type for both interfaces: an embedder provides no reader-writer lock.
//!
//! A change must keep the names of the other builds.

use crate::embedder::{hooks, LockSpace};

/// The embedder's lock.
#[derive(Debug)]
pub struct RawMutex(LockSpace);

// SAFETY: every call is forwarded to the embedder's lock, which is a `lock_api::RawMutex` itself.
unsafe impl lock_api::RawMutex for RawMutex {
    const INIT: Self = Self(LockSpace::new());
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        hooks::__lowwater_lock(&self.0);
    }

    #[inline]
    fn try_lock(&self) -> bool {
        hooks::__lowwater_try_lock(&self.0)
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock (clause of `RawMutex::unlock`).
        unsafe { hooks::__lowwater_unlock(&self.0) }
    }
}

/// The embedder's lock as a reader-writer lock: one reader or one writer at a time.
#[derive(Debug)]
pub struct RawRwLock(RawMutex);

// SAFETY: readers and writers hold the mutex, so a writer excludes all others.
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: Self = Self(<RawMutex as lock_api::RawMutex>::INIT);
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        lock_api::RawMutex::lock(&self.0);
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        lock_api::RawMutex::try_lock(&self.0)
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller holds the lock shared (clause of `unlock_shared`), so it holds the
        // mutex.
        unsafe { lock_api::RawMutex::unlock(&self.0) }
    }

    #[inline]
    fn lock_exclusive(&self) {
        lock_api::RawMutex::lock(&self.0);
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        lock_api::RawMutex::try_lock(&self.0)
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller holds the lock exclusively (clause of `unlock_exclusive`), so it holds
        // the mutex.
        unsafe { lock_api::RawMutex::unlock(&self.0) }
    }
}
