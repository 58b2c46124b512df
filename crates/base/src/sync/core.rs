//! Builds without `std`: the spin locks of the crate `spin`, or with `embedder` the embedder's
//! lock.
//!
//! If the holder of a spin lock is preempted, all waiters spin until it runs again. This is
//! acceptable for an embedder whose lock holders cannot be preempted (a kernel with preemption
//! disabled, a single core), and is the reason why `std` builds use parking_lot.
//!
//! A change must ensure that the names are those of `std.rs`, except `thread` and `Condvar`, which
//! need a scheduler.

pub use alloc::sync::{Arc, Weak};
pub use core::hint::spin_loop;

/// Atomic types, their orderings and fences.
pub mod atomic {
    pub use core::sync::atomic::*;
    // Emulated with a few global locks; must not be used in interrupt handlers.
    #[cfg(not(target_has_atomic = "64"))]
    pub use portable_atomic::AtomicU64;
}

#[cfg(feature = "embedder")]
#[path = "embedded.rs"]
mod locks;
// `unlock` of both ends with the store that releases the lock, as `embedder::Lock` demands.
#[cfg(not(feature = "embedder"))]
mod locks {
    /// A test-and-test-and-set spin lock.
    pub type RawMutex = spin::mutex::SpinMutex<()>;
    /// A reader-writer spin lock.
    pub type RawRwLock = spin::rwlock::RwLock<()>;
}

pub use locks::{RawMutex, RawRwLock};

/// [`lock_api::Mutex`] over the lock of this build.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// A guard that gives access to the value of a [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// [`lock_api::RwLock`] over the lock of this build.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// A guard that gives read access to the value of an [`RwLock`].
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// A guard that gives write access to the value of an [`RwLock`].
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// Yields to other threads: without a scheduler this is a spin-loop hint to the processor.
#[inline]
pub fn yield_now() {
    spin_loop();
}
