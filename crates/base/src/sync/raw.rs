//! A lock without data, for structures that lay out their own fields.
//!
//! List heads fit into one cache line only because this lock takes a byte, and a walk's callback
//! gets the lock as a value, which `lock_api`'s guards would not allow.
//!
//! A change must keep it at one byte.

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
