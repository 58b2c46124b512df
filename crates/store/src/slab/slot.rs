//! The handle of an object in a slab.

use super::shared::SharedSlab;
use super::slotted::{Slot, Slotted};
use core::fmt;
use core::ptr::NonNull;
use lowwater_base::NodeId;
use lowwater_lru_core::list::Handle;

impl<T: Slotted> Slot<T> {
    /// The node of the object's memory.
    pub fn node(&self) -> NodeId {
        // SAFETY: an object with a `Slot` is in a slab, and its slot is not free.
        unsafe { SharedSlab::<T>::header(self.0) }.node
    }

    /// True if the object is in an index. Exact: if this returns false, the caller sees everything
    /// that another thread did before it removed the object; if it returns true, the thread that
    /// removes the object later sees everything that the caller did before this call. Costs an
    /// atomic read-modify-write of one byte.
    pub fn is_indexed(&self) -> bool {
        self.state().is_still_indexed()
    }

    /// Returns the object itself if it never was in an index; otherwise readers may use it, and it
    /// must not be moved.
    ///
    /// # Errors
    ///
    /// Returns the handle if readers may use the object.
    pub fn into_inner(self) -> Result<T, Self> {
        if self.state().was_seen() {
            return Err(self);
        }
        let object = self.0;
        core::mem::forget(self);
        // SAFETY: this was the only handle, no reader has ever seen the object, and its slot is
        // given back below.
        let value = unsafe { object.read() };
        // SAFETY: the object was moved out, and no other code has the slot.
        unsafe { SharedSlab::give_back(object) };
        Ok(value)
    }
}

impl<T: Slotted> Drop for Slot<T> {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        if !self.state().is_over() {
            // Readers can still find the object, so it stays until the index removes it. Happens
            // only if the object's hash changes, or hashing panics.
            return;
        }
        // SAFETY: this was the only handle, and no index has the object.
        unsafe { SharedSlab::retire(self.0) };
    }
}

// SAFETY: an object neither moves nor is freed while its handle exists, as a `Slot` or as a raw
// pointer; the pointer is the one that the slab returned, valid for the whole object.
unsafe impl<T: Slotted> Handle for Slot<T> {
    type Target = T;
    // An object has one handle, and only the handle can be added to a list.
    const UNIQUE: bool = true;

    #[inline]
    fn into_raw(self) -> NonNull<T> {
        let object = self.0;
        core::mem::forget(self);
        object
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<T>) -> Self {
        Self(raw)
    }
}

impl<T: Slotted + fmt::Debug> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
