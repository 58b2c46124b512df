//! User space: parking_lot and the standard library.
//!
//! parking_lot's locks take one byte and have no poisoning; `core.rs` and `loom.rs` have the same
//! names for the other builds.
//!
//! A name that is added here must be added there, too.

pub use ::std::thread;
pub use alloc::sync::{Arc, Weak};
pub use core::hint::spin_loop;
pub use parking_lot::{Condvar, Mutex, MutexGuard, RawMutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Atomic types, their orderings and fences.
pub mod atomic {
    pub use core::sync::atomic::*;
}

/// Yields to other threads, in a lock-free loop that waits for a step of another thread.
#[inline]
pub fn yield_now() {
    thread::yield_now();
}
