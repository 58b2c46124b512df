// SPDX-License-Identifier: GPL-2.0

//! The lock, the table and the clock of a cache inside the kernel.
//!
//! The same names are in `crates/shrinker/tests/one_cache.rs` for user space; a name that one of
//! them gains is needed in the other.

use kernel::{
    new_spinlock, prelude::*, sync::lock::spinlock::SpinLockBackend, sync::lock::Guard,
    sync::SpinLock, time::Ktime,
};

/// There is no memory.
pub(crate) struct NoMemory;

impl From<kernel::alloc::AllocError> for NoMemory {
    fn from(_: kernel::alloc::AllocError) -> Self {
        Self
    }
}

impl From<Error> for NoMemory {
    fn from(_: Error) -> Self {
        Self
    }
}

/// A fixed number of elements.
pub(crate) type Table<T> = KVVec<T>;

/// Creates a table of `len` elements.
pub(crate) fn try_table<T>(
    len: usize,
    mut element: impl FnMut() -> Result<T, NoMemory>,
) -> Result<Table<T>, NoMemory> {
    let mut table = KVVec::with_capacity(len, GFP_KERNEL)?;
    for _ in 0..len {
        table.push(element()?, GFP_KERNEL)?;
    }
    Ok(table)
}

/// The kernel's spin lock, which must not move.
pub(crate) struct Lock<T>(Pin<KBox<SpinLock<T>>>);

impl<T> Lock<T> {
    /// Creates a lock.
    pub(crate) fn try_new(value: T) -> Result<Self, NoMemory> {
        Ok(Self(KBox::pin_init(
            new_spinlock!(value, "one_cache"),
            GFP_KERNEL,
        )?))
    }

    /// Takes the lock.
    pub(crate) fn lock(&self) -> Guard<'_, T, SpinLockBackend> {
        self.0.lock()
    }
}

/// The time since the boot, in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    Ktime::ktime_get().to_ns() as u64
}
