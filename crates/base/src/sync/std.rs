//! User space: parking_lot and the standard library.
//!
//! parking_lot's locks take one byte and have no poisoning. `core.rs` and `loom.rs` replace this
//! file in the other builds. `core.rs` has no `thread` and no `Condvar`, as it has no scheduler:
//! code that uses them is compiled only with `std` or under loom.
//!
//! A name that is added here and used in every build must be added to `core.rs` and `loom.rs`, with
//! the same interface. `RawMutex` is only for `raw.rs`; `loom.rs` has a lock of its own for it.

pub use ::std::thread;
pub use alloc::sync::{Arc, Weak};
pub use core::hint::spin_loop;
pub use parking_lot::{Condvar, Mutex, MutexGuard, RawMutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Atomic types, their orderings and fences.
pub mod atomic {
    pub use core::sync::atomic::*;
    // Emulated with a few global locks, on some processors with 32 bits.
    #[cfg(not(target_has_atomic = "64"))]
    pub use portable_atomic::AtomicU64;
}

/// Yields to other threads, in a lock-free loop that waits for a step of another thread.
#[inline]
pub fn yield_now() {
    thread::yield_now();
}
