//! A lock without data, for structures that lay out their own fields.
//!
//! A structure puts this lock beside its fields, some of which are read without the lock or guarded
//! by the lock of another list, as a `Mutex<T>` does not allow. The lock shares 8 bytes with small
//! fields, so that a list head fits into one cache line. The guard of such a structure
//! (`LockedList`), which a walk passes to its callback, reaches lock and fields by one pointer.
//!
//! A change must ensure that it is no larger than the lock of the build.

use super::RawMutex as Inner;
use lock_api::RawMutex;

/// A lock without data: one byte with parking_lot and the spin lock. Not reentrant, not poisoned.
pub struct RawLock(Inner);

impl Default for RawLock {
    fn default() -> Self {
        Self::new()
    }
}

impl RawLock {
    /// Creates an unlocked lock.
    #[inline]
    pub const fn new() -> Self {
        Self(<Inner as RawMutex>::INIT)
    }

    /// Takes the lock, waiting if necessary.
    #[inline]
    pub fn lock(&self) {
        RawMutex::lock(&self.0);
    }

    /// Takes the lock if it is free, and returns whether it did.
    #[inline]
    pub fn try_lock(&self) -> bool {
        RawMutex::try_lock(&self.0)
    }

    /// Releases the lock.
    ///
    /// # Safety
    ///
    /// The caller holds the lock.
    #[inline]
    pub unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock (this function's clause), as `RawMutex::unlock`
        // requires.
        unsafe { RawMutex::unlock(&self.0) }
    }
}
