//! Handles: the pointers by which a list owns its items.
//!
//! A list stores raw pointers and is generic over neither the item nor its handle. `from_raw` is
//! called once for each `into_raw`, with the same pointer.
//!
//! A change must ensure that an object stays at its address between `into_raw` and `from_raw`, and
//! that `UNIQUE` is true only where an object has at most one handle.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ptr::NonNull;

/// An owning pointer that can be converted to a raw pointer and back: `Box<T>`, or `Arc<T>` (then
/// the list owns one reference).
///
/// # Safety
///
/// `into_raw` returns a pointer to a live `Target` that neither moves nor is freed before
/// `from_raw` takes it back, and that may be used for everything that the handle could be used for.
pub unsafe trait Handle {
    /// The type that the handle points to.
    type Target;

    /// Whether there is at most one handle for each object. Then no other thread can add the object
    /// concurrently, and adding needs no atomic exchange. Must not be true otherwise.
    const UNIQUE: bool = false;

    /// Converts the handle to a raw pointer.
    fn into_raw(self) -> NonNull<Self::Target>;

    /// Converts the raw pointer back to the handle.
    ///
    /// # Safety
    ///
    /// `raw` came from [`into_raw`](Self::into_raw) of the same type, and is taken back once.
    unsafe fn from_raw(raw: NonNull<Self::Target>) -> Self;
}

// SAFETY: a box's content lives at a fixed address until the box is dropped, and `into_raw` does
// not drop it.
unsafe impl<T> Handle for Box<T> {
    type Target = T;
    // A box is the only handle on its content.
    const UNIQUE: bool = true;

    #[inline]
    fn into_raw(self) -> NonNull<T> {
        NonNull::from(Box::leak(self))
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<T>) -> Self {
        // SAFETY: `raw` came from `Box::leak` in `into_raw`, and is taken back once (this
        // function's clause).
        unsafe { Box::from_raw(raw.as_ptr()) }
    }
}

// SAFETY: an `Arc`'s content lives at a fixed address while a reference exists, and `into_raw`
// keeps its reference.
unsafe impl<T> Handle for Arc<T> {
    type Target = T;

    #[inline]
    fn into_raw(self) -> NonNull<T> {
        let raw = Arc::into_raw(self).cast_mut();
        // SAFETY: `Arc::into_raw` never returns null.
        unsafe { NonNull::new_unchecked(raw) }
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<T>) -> Self {
        // SAFETY: `raw` came from `Arc::into_raw`, and its reference is taken back once (this
        // function's clause).
        unsafe { Arc::from_raw(raw.as_ptr()) }
    }
}
