//! What the handle of an object in a slab does.

use super::shared::SharedSlab;
use super::slotted::{Slot, Slotted};
use core::fmt;
use core::ptr::NonNull;
use lowwater_base::NodeId;
use lowwater_lru_core::list::Handle;

impl<T: Slotted> Slot<T> {
    /// The node whose memory it is in.
    pub fn node(&self) -> NodeId {
        // SAFETY: the object is in a slab, as is every object that has such a handle.
        unsafe { SharedSlab::<T>::header(self.0) }.node
    }

    /// Is the object in an index? Exact: what another thread did before it took the object out is
    /// seen by whoever is told no, and what this thread did before it asked is seen by whoever
    /// takes the object out after that. An exchange of one byte.
    pub fn is_indexed(&self) -> bool {
        self.state().is_still_indexed()
    }

    /// The object itself, if it never was in an index; else nobody may move it.
    ///
    /// # Errors
    ///
    /// The handle, when readers may look at the object.
    pub fn into_inner(self) -> Result<T, Self> {
        if self.state().was_seen() {
            return Err(self);
        }
        let object = self.0;
        core::mem::forget(self);
        // SAFETY: the handle was the only one, nobody else has ever seen the object, and its slot is given back below.
        let value = unsafe { object.read() };
        // SAFETY: it was moved out, and nobody else knows the slot.
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
            // Readers find it, so it stays until the index takes it out. Only a hash that changes, or panics, leads here.
            return;
        }
        // SAFETY: the handle was the only one, and no index has the object any more.
        unsafe { SharedSlab::retire(self.0) };
    }
}

// SAFETY: an object neither moves nor is freed while its handle is there, turned into a pointer or not; the pointer is the one that the
// slab gave out, for all of the object.
unsafe impl<T: Slotted> Handle for Slot<T> {
    type Target = T;
    // There is one handle, and only it can be added to a list.
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
