//! A shared pointer that reports a failed allocation: [`TryArc`].
//!
//! `Arc::try_new` does not exist on a stable compiler, so the `no_std` crates share values through
//! this type, except trait objects of the user. A change must keep the Release and Acquire of
//! `drop`, which docs/ORDERINGS.md lists, and that the count never wraps.
//!
//! Under loom this file is compiled twice: with plain atomics for general use, since otherwise
//! every model would pay for the clones of its handles, and with loom's atomics for its own model
//! check (`loom.rs`).

use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

use alloc::boxed::Box;

use super::{AtomicUsize, Ordering};
use crate::fallible::try_box;
use crate::mutated;

/// A clone panics if there are more handles of its value than this. Far enough from the count's
/// maximum: concurrent clones, each of which adds one before it panics, cannot wrap the count.
const HANDLES_MAX: usize = isize::MAX as usize;

/// An `Arc` that can be allocated fallibly, by [`try_new`](Self::try_new), which the standard
/// library's cannot on a stable compiler. For sized values only, without weak handles; one word of
/// count instead of two.
///
/// # Invariants
///
/// 1. The count is the number of handles, including leaked ones; the value lives as long as the
///    count is not 0.
/// 2. The pointer came from a `Box` that was leaked.
pub struct TryArc<T>(NonNull<Counted<T>>, PhantomData<Counted<T>>);

struct Counted<T> {
    handles: AtomicUsize,
    value: T,
}

// SAFETY: a handle gives `&T` to the thread that has it, and the last handle drops the value on
// that thread.
unsafe impl<T: Send + Sync> Send for TryArc<T> {}
// SAFETY: a thread with a reference to a handle can clone it, so the bounds are those of `Send`.
unsafe impl<T: Send + Sync> Sync for TryArc<T> {}

impl<T> TryArc<T> {
    /// The bytes that one value takes on the heap, with its count of handles and without the
    /// allocator's rounding.
    pub const BYTES: usize = size_of::<Counted<T>>();

    /// Allocates `value` with a first handle; `None` if there is no memory, and then `value` is
    /// dropped.
    pub fn try_new(value: T) -> Option<Self> {
        let counted = try_box(Counted { handles: AtomicUsize::new(1), value })?;
        Some(Self(NonNull::from(Box::leak(counted)), PhantomData))
    }

    /// Returns whether both handles are of one value.
    #[inline]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.0 == other.0
    }

    /// Returns the address of the allocation, which is unique while there is a handle. Does not
    /// access the allocation.
    #[inline]
    pub fn addr(this: &Self) -> usize {
        this.0.as_ptr().addr()
    }

    #[inline]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: the value lives as long as there is a handle (invariant 1), and this is one. No
        // mutable reference to it exists.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Clone for TryArc<T> {
    /// # Panics
    ///
    /// If there are more than [`isize::MAX`] handles. They were leaked, as no memory holds so many.
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: `self` keeps the value alive; the synchronization by which the new handle
        // reaches another thread also publishes the count.
        if self.counted().handles.fetch_add(1, Ordering::Relaxed) > HANDLES_MAX {
            // Relaxed: undoes the increment above, which nothing has observed as a handle.
            self.counted().handles.fetch_sub(1, Ordering::Relaxed);
            too_many();
        }
        Self(self.0, PhantomData)
    }
}

#[cold]
fn too_many() -> ! {
    panic!("a value has too many handles: they are leaked")
}

impl<T> Drop for TryArc<T> {
    #[inline]
    fn drop(&mut self) {
        let release = if mutated!("handle_dropped_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        // Release: pairs with the Acquire of the last handle, so that all uses of the value happen
        // before its drop.
        if self.counted().handles.fetch_sub(1, release) == 1 {
            self.drop_value();
        }
    }
}

impl<T> TryArc<T> {
    #[cold]
    fn drop_value(&mut self) {
        let acquire = if mutated!("last_handle_relaxed") { Ordering::Relaxed } else { Ordering::Acquire };
        // Acquire: pairs with the Release of every handle that was dropped. A load instead of a
        // fence, which ThreadSanitizer does not support.
        self.counted().handles.load(acquire);
        // SAFETY: the pointer came from a `Box` (invariant 2). The count was 1 and counted this
        // handle, so no other handle exists or can be created (invariant 1).
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<T> Deref for TryArc<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T: fmt::Debug> fmt::Debug for TryArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use alloc::sync::Arc;

    #[test]
    fn the_value_is_dropped_with_its_last_handle() {
        let value = Arc::new(7);
        let first = TryArc::try_new(Arc::clone(&value)).unwrap();
        let second = first.clone();
        assert!(TryArc::ptr_eq(&first, &second) && **first == 7);
        assert!(!TryArc::ptr_eq(&first, &TryArc::try_new(Arc::clone(&value)).unwrap()));
        drop(first);
        assert_eq!((Arc::strong_count(&value), alloc::format!("{second:?}")), (2, "7".into()));
        drop(second);
        assert_eq!(Arc::strong_count(&value), 1);
        assert_eq!(TryArc::<usize>::BYTES, 2 * size_of::<usize>());
    }

    #[test]
    fn threads_that_clone_and_drop_leave_one_handle() {
        let value = Arc::new(());
        let handle = TryArc::try_new(Arc::clone(&value)).unwrap();
        std::thread::scope(|s| {
            for _ in 0..4 {
                let handle = handle.clone();
                s.spawn(move || (0..1_000).for_each(|_| drop(handle.clone())));
            }
        });
        assert_eq!((handle.counted().handles.load(Ordering::Relaxed), Arc::strong_count(&value)), (1, 2));
    }

    // `docs/HAZARDS.md` quotes this name.
    #[test]
    #[should_panic = "too many handles"]
    fn the_count_does_not_wrap() {
        let handle = TryArc::try_new(()).unwrap();
        // As if so many handles had been leaked. `ManuallyDrop`, since the count is wrong until it
        // is set to 1 again.
        handle.counted().handles.store(HANDLES_MAX + 1, Ordering::Relaxed);
        let handle = core::mem::ManuallyDrop::new(handle);
        let count = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| (*handle).clone()));
        assert_eq!(handle.counted().handles.load(Ordering::Relaxed), HANDLES_MAX + 1);
        handle.counted().handles.store(1, Ordering::Relaxed);
        drop(core::mem::ManuallyDrop::into_inner(handle));
        std::panic::resume_unwind(count.unwrap_err());
    }
}
