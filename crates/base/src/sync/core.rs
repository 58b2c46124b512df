//! Without std: the spin locks of the crate `spin`, or with `embedder` the embedder's lock.
//!
//! A holder of the spin lock that is preempted keeps everybody spinning; that is what an embedder whose holders cannot be preempted (a kernel
//! with preemption off, one core) accepts, and why `std` builds use parking_lot.

pub use alloc::sync::{Arc, Weak};
pub use core::hint::spin_loop;

/// Atomic types, their orderings and fences.
pub mod atomic {
    pub use core::sync::atomic::*;
    // Behind a lock, of which there are few in the whole program. Not from interrupts.
    #[cfg(not(target_has_atomic = "64"))]
    pub use portable_atomic::AtomicU64;
}

#[cfg(feature = "embedder")]
#[path = "embedded.rs"]
mod locks;
#[cfg(not(feature = "embedder"))]
mod locks {
    /// A test-and-test-and-set spin lock.
    pub type RawMutex = spin::mutex::SpinMutex<()>;
    /// A reader-writer spin lock.
    pub type RawRwLock = spin::rwlock::RwLock<()>;
}

pub use locks::{RawMutex, RawRwLock};

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

/// Lets another thread run: here there is no scheduler to ask, so the processor is told that we spin.
#[inline]
pub fn yield_now() {
    spin_loop();
}
