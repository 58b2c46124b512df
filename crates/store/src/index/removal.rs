//! Drop guards for objects that enter or leave an index.

use crate::slab::{SharedSlab, Slotted};
use core::ptr::NonNull;

/// An object that was removed from the index and has no handle any more: dropping this retires it.
pub(super) struct Out<T: Slotted>(pub(super) Option<NonNull<T>>);

impl<T: Slotted> Out<T> {
    /// # Safety
    ///
    /// The object belongs to this index; this thread removed it, or marked it as indexed without
    /// inserting it. Its slot is not free, and it was marked as indexed (`enter`) exactly once.
    #[inline]
    pub(super) unsafe fn take(&mut self, object: NonNull<T>) {
        // SAFETY: the caller's clause: the slot of the object is not free.
        if unsafe { object.as_ref() }.state().leave() {
            self.0 = Some(object);
        }
    }
}

impl<T: Slotted> Drop for Out<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(object) = self.0 {
            // SAFETY: the object has no handle, and no new reader finds it. Of the two parties that
            // might retire it, the handle's drop and its removal from the index, this removal came
            // last (`leave`).
            unsafe { SharedSlab::retire(object) };
        }
    }
}

/// An object that is marked as indexed but not yet inserted.
pub(super) struct Entered<T: Slotted>(pub(super) Option<NonNull<T>>);

impl<T: Slotted> Drop for Entered<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(object) = self.0 {
            // SAFETY: the slot is not free while the object is marked as indexed; this thread
            // marked it and did not insert it.
            unsafe { Out(None).take(object) };
        }
    }
}
