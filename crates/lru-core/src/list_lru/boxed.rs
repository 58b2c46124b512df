//! A box that may fail. See [`fallible`](crate::fallible).

use alloc::alloc::alloc;
use alloc::boxed::Box;
use core::alloc::Layout;

/// [`Box::new`], with `None` instead of an abort where there is no memory.
pub fn try_box<T>(value: T) -> Option<Box<T>> {
    const { assert!(size_of::<T>() != 0, "the allocator is not asked for nothing") };
    // SAFETY: the layout's size is not 0.
    let raw = unsafe { alloc(Layout::new::<T>()) }.cast::<T>();
    if raw.is_null() {
        return None;
    }
    // SAFETY: `raw` is fresh memory of the layout of `T`.
    unsafe { raw.write(value) };
    // SAFETY: `raw` came from the global allocator with the layout of `T`, and holds a `T`.
    Some(unsafe { Box::from_raw(raw) })
}
