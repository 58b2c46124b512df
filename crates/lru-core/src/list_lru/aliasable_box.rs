//! A box for a value to which other pointers exist. A move of a `Box` asserts, as a `&mut` does,
//! that no other pointer to its contents is used; this type makes no such assertion.
//!
//! [`ListLru`](super::ListLru) holds its [`RawListLru`](super::raw::RawListLru) in one, since every
//! list points back to it and another thread may follow that pointer while the owner is moved. A
//! change must never create a `Box` or a `&mut` of the contents before the drop.

use alloc::boxed::Box;
use core::ops::Deref;
use core::ptr::NonNull;

/// An owning pointer without `Box`'s uniqueness assertion; see the module.
pub(super) struct AliasableBox<T>(NonNull<T>);

// SAFETY: the type owns a `T`, so sending it sends the `T`, which is `Send`.
unsafe impl<T: Send> Send for AliasableBox<T> {}
// SAFETY: a shared reference only gives `&T` (by `Deref`), and `T` is `Sync`.
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
        // SAFETY: the pointer came from a box, and the value is live until `self` is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for AliasableBox<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box in `From::from`, and is turned back once, here. The
        // owner has drained the lists, so no other pointer is used any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
