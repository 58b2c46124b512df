//! The pointer by which a list owns what is on it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ptr::NonNull;

/// An owning pointer that can be kept as a raw one: `Box<T>`, or `Arc<T>` (then the list holds one reference).
///
/// # Safety
///
/// `into_raw` gives a pointer to a live `Target` that neither moves nor is freed before `from_raw` takes it back, and that
/// may be used for everything the handle could be used for.
pub unsafe trait Handle {
    /// What is pointed to.
    type Target;

    /// Is there one handle for each object? Then no other thread can add the object meanwhile, and adding needs no atomic exchange.
    ///
    /// True only if there is.
    const UNIQUE: bool = false;

    /// Turns the handle into a pointer.
    fn into_raw(self) -> NonNull<Self::Target>;

    /// Turns the pointer back.
    ///
    /// # Safety
    ///
    /// `raw` came from [`into_raw`](Self::into_raw) of the same type, and is taken back once.
    unsafe fn from_raw(raw: NonNull<Self::Target>) -> Self;
}

// SAFETY: a box's content lives at a fixed place until the box is dropped, and `into_raw` does not drop it.
unsafe impl<T> Handle for Box<T> {
    type Target = T;
    // Nobody else has a reference to a box's content while the box is given away.
    const UNIQUE: bool = true;

    #[inline]
    fn into_raw(self) -> NonNull<T> {
        NonNull::from(Box::leak(self))
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<T>) -> Self {
        // SAFETY: `raw` came from `Box::leak`, once, says the caller.
        unsafe { Box::from_raw(raw.as_ptr()) }
    }
}

// SAFETY: an Arc's content lives at a fixed place while one reference is held, and `into_raw` keeps its reference.
unsafe impl<T> Handle for Arc<T> {
    type Target = T;

    #[inline]
    fn into_raw(self) -> NonNull<T> {
        let raw = Arc::into_raw(self).cast_mut();
        // SAFETY: an Arc never points to null.
        unsafe { NonNull::new_unchecked(raw) }
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<T>) -> Self {
        // SAFETY: `raw` came from `Arc::into_raw`, and its reference is taken back once, says the caller.
        unsafe { Arc::from_raw(raw.as_ptr()) }
    }
}
