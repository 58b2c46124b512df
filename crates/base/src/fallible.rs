//! Fallible allocation: functions that return an error where those of `alloc` abort.
//!
//! All allocations of the `no_std` crates of lowwater on a path that a kernel can reach use this
//! module, or a `try_reserve` just before. Values whose references lowwater counts itself are
//! behind a [`TryArc`]. Where a trait object is shared with the user, the API takes an [`Arc`],
//! which cannot be allocated fallibly on Rust's stable channel. [`try_arc`] creates an `Arc`:
//! fallibly if the library is built from source with `--cfg lowwater_try_arc`, as kernels do;
//! otherwise it aborts as `Arc::new` does.
//!
//! A change must ensure that no function aborts when there is no memory, except `try_arc` and, for
//! callers that cannot return an error, `abort`.

use crate::sync::Arc;
use alloc::alloc::alloc;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::ptr;

pub use self::plain::TryArc;

// `try_arc.rs` is compiled with the plain atomics for general use, and under loom a second time
// with loom's for its own model check.
#[path = "fallible"]
mod plain {
    use core::sync::atomic::{AtomicUsize, Ordering};

    mod try_arc;
    pub use try_arc::TryArc;
}

#[cfg(all(test, lowwater_loom))]
#[path = "fallible"]
mod checked {
    use crate::sync::atomic::{AtomicUsize, Ordering};

    mod try_arc;
    pub(super) use try_arc::TryArc;
}

#[cfg(all(test, lowwater_loom))]
mod loom;

/// As [`Arc::new`], but returns `None` instead of aborting if there is no memory and the build
/// supports it (see the module).
pub fn try_arc<T>(value: T) -> Option<Arc<T>> {
    #[cfg(lowwater_try_arc)]
    {
        Arc::try_new(value).ok()
    }
    #[cfg(not(lowwater_try_arc))]
    {
        Some(Arc::new(value))
    }
}

/// As [`Box::new`], but drops the value and returns `None` instead of aborting if there is no
/// memory. Does not compile for a type of size 0.
pub fn try_box<T>(value: T) -> Option<Box<T>> {
    const { assert!(size_of::<T>() != 0, "the allocator requires a size that is not zero") };
    // SAFETY: the layout's size is not 0, by the assertion above.
    let raw = unsafe { alloc(Layout::new::<T>()) }.cast::<T>();
    if raw.is_null() {
        return None;
    }
    // SAFETY: `raw` is freshly allocated memory with the layout of `T`.
    unsafe { raw.write(value) };
    // SAFETY: `raw` came from the global allocator with the layout of `T`, and holds a `T`.
    Some(unsafe { Box::from_raw(raw) })
}

/// Returns an empty vector with capacity for `capacity` values; `None` if there is no memory.
pub fn try_vec<T>(capacity: usize) -> Option<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(capacity).ok()?;
    Some(room)
}

/// Returns a slice of `len` values, computed by `value` from the index; `None` if there is no
/// memory. If `value` panics, the slice and the values before leak.
pub fn try_slice<T>(len: usize, mut value: impl FnMut(usize) -> T) -> Option<Box<[T]>> {
    let layout = Layout::array::<T>(len).ok()?;
    let raw = if layout.size() == 0 {
        ptr::NonNull::<T>::dangling().as_ptr()
    } else {
        // SAFETY: the layout's size is not 0.
        unsafe { alloc(layout) }.cast::<T>()
    };
    if raw.is_null() {
        return None;
    }
    for i in 0..len {
        // SAFETY: `i` is less than `len`, so the element is within the array.
        let place = unsafe { raw.add(i) };
        // SAFETY: the memory is freshly allocated with the layout of `T`.
        unsafe { place.write(value(i)) };
    }
    // SAFETY: the pointer came from the global allocator with this layout, or is dangling for a
    // size of 0, and `len` values are initialized.
    Some(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(raw, len)) })
}

/// Returns a copy of a text; `None` if there is no memory.
pub fn try_str(text: &str) -> Option<Box<str>> {
    let bytes = try_slice(text.len(), |i| text.as_bytes()[i])?;
    // SAFETY: the bytes are those of a `str`.
    Some(unsafe { alloc::str::from_boxed_utf8_unchecked(bytes) })
}

/// As [`Vec::push`], but returns the value if there is no memory.
///
/// # Errors
///
/// The value.
#[inline]
pub fn try_push<T>(vec: &mut Vec<T>, value: T) -> Result<(), T> {
    if vec.try_reserve(1).is_err() {
        return Err(value);
    }
    let len = vec.len();
    if let Some(place) = vec.spare_capacity_mut().first_mut() {
        place.write(value);
        // SAFETY: the element after `len` values was initialized just now.
        unsafe { vec.set_len(len + 1) };
    }
    Ok(())
}

/// As [`Vec::insert`], but returns the value if there is no memory. An index beyond the end
/// appends.
///
/// # Errors
///
/// The value.
pub fn try_insert<T>(vec: &mut Vec<T>, at: usize, value: T) -> Result<(), T> {
    try_push(vec, value)?;
    if let Some(rest) = vec.get_mut(at..) {
        rest.rotate_right(1);
    }
    Ok(())
}

/// Reduces a vector's capacity to `capacity`, or to its length if that is more. Without memory for
/// the copy the vector stays as it is.
pub fn try_shrink<T>(vec: &mut Vec<T>, capacity: usize) {
    let mut smaller = Vec::new();
    let (len, capacity) = (vec.len(), capacity.max(vec.len()));
    if vec.capacity() <= capacity || smaller.try_reserve_exact(capacity).is_err() {
        return;
    }
    let (from, to): (*const T, *mut T) = (vec.as_ptr(), smaller.as_mut_ptr());
    // SAFETY: `smaller` has capacity for `len` values, and is a different allocation.
    unsafe { ptr::copy_nonoverlapping(from, to, len) };
    // SAFETY: the values were moved out, so they must not be dropped here.
    unsafe { vec.set_len(0) };
    // SAFETY: the values were moved here by the copy.
    unsafe { smaller.set_len(len) };
    *vec = smaller;
}

/// Aborts for lack of memory, for callers that cannot return an error.
#[cold]
pub fn abort<T>() -> ! {
    alloc::alloc::handle_alloc_error(Layout::new::<T>())
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};

    #[test]
    fn results_equal_those_of_the_infallible_functions() {
        let mut vec = Vec::new();
        for i in 0..100 {
            try_push(&mut vec, i.to_string()).unwrap();
        }
        try_insert(&mut vec, 3, String::from("here")).unwrap();
        try_insert(&mut vec, 0, String::from("first")).unwrap();
        try_insert(&mut vec, 102, String::from("last")).unwrap();
        assert_eq!((&*vec[0], &*vec[4], &*vec[5], &*vec[102]), ("first", "here", "3", "last"));
        vec.truncate(5);
        try_shrink(&mut vec, 2);
        assert_eq!((vec.capacity(), &*vec[4]), (5, "here"));
        assert_eq!(&*try_str("text").unwrap(), "text");
        assert_eq!(&*try_str("").unwrap(), "");
        assert_eq!(&*try_slice(3, |i| i.to_string()).unwrap(), ["0", "1", "2"]);
        assert_eq!(try_slice(2, |_| ()).unwrap().len(), 2);
        assert_eq!(*try_arc(7).unwrap(), 7);
    }

    #[test]
    fn impossible_sizes_return_none() {
        assert!(try_slice(usize::MAX, |_| 0_u64).is_none());
        // A size of 0 is possible without an allocation.
        let mut vec = alloc::vec![(); 3];
        try_push(&mut vec, ()).unwrap();
        assert_eq!(vec.len(), 4);
    }
}
