//! The handle of an object in a slab.
//!
//! A handle and the index each keep the object alive; the last of the two to let go retires it
//! ([`state`](super::state)). A change must ensure that an object that readers may use is retired
//! and never dropped at once.

use super::shared::{SharedSlab, RETIRE_MAX};
use super::slotted::{Slot, Slotted};
use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use lowwater_base::NodeId;
use lowwater_lru_core::list::Handle;

impl<T: Slotted> Slot<T> {
    /// Returns the node of the object's memory.
    pub fn node(&self) -> NodeId {
        // SAFETY: an object with a `Slot` is in a slab, and its slot is not free.
        unsafe { SharedSlab::<T>::node(self.0) }
    }

    /// Returns true if the object is in an index. If this returns false, the caller sees everything
    /// that the removing thread did before the removal. If this returns true, a thread that removes
    /// the object later sees everything that the caller did before this call; except a thread that
    /// has got the handle and calls [`remove_slot`](crate::ExtendibleIndex::remove_slot). Costs an
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
        unsafe { SharedSlab::return_slot(object) };
        Ok(value)
    }
}

impl<T: Slotted> Slot<T> {
    /// Drops handles, with the effect of dropping one after the other. Takes the lock of a thread
    /// cache once for every eight objects of one slab.
    ///
    /// # Panics
    ///
    /// With a panic of the iterator. The handles that it returned before are dropped.
    pub fn drop_all(handles: impl IntoIterator<Item = Self>) {
        let mut retiring = Retiring::<T> { shared: ptr::null(), objects: [NonNull::dangling(); RETIRE_MAX], len: 0 };
        for handle in handles {
            let object = handle.0;
            core::mem::forget(handle);
            // SAFETY: the object's handle existed until now, so its slot is not free.
            if unsafe { object.as_ref() }.state().drop_handle() {
                // SAFETY: the handle is gone, and the object is in no index.
                unsafe { retiring.push(object) };
            }
        }
    }
}

/// Objects of one slab, without handles and in no index. Retired together when this is full or
/// dropped.
struct Retiring<T: Slotted> {
    /// The slab of the objects.
    shared: *const SharedSlab<T>,
    objects: [NonNull<T>; RETIRE_MAX],
    len: usize,
}

impl<T: Slotted> Retiring<T> {
    /// # Safety
    ///
    /// The object was allocated by a slab, there is no handle to it, and it is in no index.
    #[inline]
    unsafe fn push(&mut self, object: NonNull<T>) {
        // SAFETY: the object is in a slab (this function's clause), and its slot is not free.
        let shared = unsafe { SharedSlab::<T>::owner(object) }.slab.cast();
        if self.len == RETIRE_MAX || !ptr::eq(shared, self.shared) {
            self.retire();
        }
        self.shared = shared;
        self.objects[self.len] = object;
        self.len += 1;
    }

    #[inline]
    fn retire(&mut self) {
        let len = core::mem::take(&mut self.len);
        if len > 0 {
            // SAFETY: the clause of `push` held for each of the objects, which are of the slab
            // `shared`; `len` is 0 now, so they are retired once.
            unsafe { SharedSlab::retire_batch(self.shared, &self.objects[..len]) };
        }
    }
}

impl<T: Slotted> Drop for Retiring<T> {
    #[inline]
    fn drop(&mut self) {
        self.retire();
    }
}

impl<T: Slotted> Drop for Slot<T> {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        if !self.state().drop_handle() {
            // Readers can still find the object. The thread that removes it from the index retires
            // it.
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
        Self(raw, PhantomData)
    }
}

impl<T: Slotted + fmt::Debug> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
