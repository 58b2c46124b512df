//! Memory that may not be there: what `alloc` aborts on, said instead.
//!
//! Everything that the `no_std` crates of lowwater allocate on a path that a kernel can reach goes through here, or through a
//! `try_reserve` just before. What they count references of themselves is behind a [`TryArc`].
//! Where a trait object is to be shared
//! with others it takes an [`Arc`], which cannot fail on std's stable channel: [`try_arc`] is for
//! those who make one, and can where
//! the library is built from source anyway and `--cfg lowwater_try_arc` says so, as kernels do;
//! elsewhere it aborts as `Arc::new` does.

use crate::sync::Arc;
use alloc::alloc::alloc;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::ptr;

pub use self::plain::TryArc;

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

/// [`Arc::new`], with `None` instead of an abort where there is no memory and the build can tell (see the module).
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

/// Returns an empty vector with room for `capacity` values; `None` without memory.
pub fn try_vec<T>(capacity: usize) -> Option<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(capacity).ok()?;
    Some(room)
}

/// A slice of `len` values; none without memory.
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
        // SAFETY: it is within the array, says `i`.
        let place = unsafe { raw.add(i) };
        // SAFETY: it is fresh memory of the layout of `T`. If `value` panics, it leaks.
        unsafe { place.write(value(i)) };
    }
    // SAFETY: it came from the global allocator with this layout, or is no memory at all, and holds `len` values.
    Some(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(raw, len)) })
}

/// A copy of a text; none without memory.
pub fn try_str(text: &str) -> Option<Box<str>> {
    let bytes = try_slice(text.len(), |i| text.as_bytes()[i])?;
    // SAFETY: these are the bytes of a text.
    Some(unsafe { alloc::str::from_boxed_utf8_unchecked(bytes) })
}

/// [`Vec::push`]; gives the value back where there is no memory.
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
        // SAFETY: one more value is there, in the first place after `len`.
        unsafe { vec.set_len(len + 1) };
    }
    Ok(())
}

/// [`Vec::insert`]; gives the value back where there is no memory. Beyond the end it is pushed.
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

/// Gives back what a vector has beyond `capacity`; without memory to move to it stays as it is.
pub fn try_shrink<T>(vec: &mut Vec<T>, capacity: usize) {
    let mut smaller = Vec::new();
    let (len, capacity) = (vec.len(), capacity.max(vec.len()));
    if vec.capacity() <= capacity || smaller.try_reserve_exact(capacity).is_err() {
        return;
    }
    let (from, to): (*const T, *mut T) = (vec.as_ptr(), smaller.as_mut_ptr());
    // SAFETY: `smaller` has room for `len` values, and is other memory.
    unsafe { ptr::copy_nonoverlapping(from, to, len) };
    // SAFETY: the values were moved away.
    unsafe { vec.set_len(0) };
    // SAFETY: they were moved here.
    unsafe { smaller.set_len(len) };
    *vec = smaller;
}

/// What is left to who has no way to say that there is no memory.
#[cold]
pub fn abort<T>() -> ! {
    alloc::alloc::handle_alloc_error(Layout::new::<T>())
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};

    #[test]
    fn as_the_ones_that_abort() {
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
    fn too_much_is_refused() {
        assert!(try_slice(usize::MAX, |_| 0_u64).is_none());
        let mut vec = alloc::vec![(); 3];
        try_push(&mut vec, ()).unwrap();
        assert_eq!(vec.len(), 4);
    }
}
