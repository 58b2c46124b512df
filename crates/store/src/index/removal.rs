//! Guards of objects that enter or leave an index.

use crate::slab::{SharedSlab, Slotted};
use core::ptr::NonNull;

/// An object that was taken out, if its handle is gone: its end is this one's.
pub(super) struct Out<T: Slotted>(pub(super) Option<NonNull<T>>);

impl<T: Slotted> Out<T> {
    /// # Safety
    ///
    /// The object is one of the index, from which this thread took it out, or where it did not get; its slot is not free. It was said once that
    /// it is in.
    #[inline]
    pub(super) unsafe fn take(&mut self, object: NonNull<T>) {
        // SAFETY: its slot is not free, by the caller's promise.
        if unsafe { object.as_ref() }.state().leave() {
            self.0 = Some(object);
        }
    }
}

impl<T: Slotted> Drop for Out<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(object) = self.0 {
            // SAFETY: it has no handle, and no reader finds it any more; of those who might end it this one took it out.
            unsafe { SharedSlab::retire(object) };
        }
    }
}

/// An object that is said to be in the index, and is not yet.
pub(super) struct Entered<T: Slotted>(pub(super) Option<NonNull<T>>);

impl<T: Slotted> Drop for Entered<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(object) = self.0 {
            // SAFETY: while it is said to be in, its slot is not free; this thread said so, and did not put it in.
            unsafe { Out(None).take(object) };
        }
    }
}
