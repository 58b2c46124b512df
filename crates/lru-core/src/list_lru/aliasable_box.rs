//! A box that others have pointers into. A `Box` says with each move, as a `&mut` does, that nobody else has a way to what is in it.

use alloc::boxed::Box;
use core::ops::Deref;
use core::ptr::NonNull;

/// See the module.
pub(super) struct AliasableBox<T>(NonNull<T>);

// SAFETY: it owns a `T` and gives references to it, as a box does.
unsafe impl<T: Send> Send for AliasableBox<T> {}
// SAFETY: as for Send.
unsafe impl<T: Sync> Sync for AliasableBox<T> {}

impl<T> From<Box<T>> for AliasableBox<T> {
    fn from(boxed: Box<T>) -> Self {
        Self(NonNull::from(Box::leak(boxed)))
    }
}

impl<T> Deref for AliasableBox<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: it came from a box, and is there until this is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for AliasableBox<T> {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and goes with this.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
