//! A lock without data, for structures that lay out their own fields.

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
    /// Makes an unlocked lock.
    #[inline]
    pub const fn new() -> Self {
        Self(<Inner as RawMutex>::INIT)
    }

    /// Waits for the lock and takes it.
    #[inline]
    pub fn lock(&self) {
        RawMutex::lock(&self.0);
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        RawMutex::try_lock(&self.0)
    }

    /// Gives the lock back.
    ///
    /// # Safety
    ///
    /// The caller holds the lock.
    #[inline]
    pub unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock, which is all that `RawMutex::unlock` asks.
        unsafe { RawMutex::unlock(&self.0) }
    }
}
