//! Drop guards for objects that enter or leave an index.
//!
//! Retiring an object may run its destructor and so any code of the caller. So the functions of the
//! index put removed objects into these guards, which are declared before the segment's lock and
//! drop after it. A change must ensure that order in every function that removes an object.

use crate::slab::{SharedSlab, Slot, Slotted};
use core::ptr::NonNull;

/// A removed object whose handle has been dropped before; `None` if no object was removed, or the
/// object still has its handle. Dropping this retires the object.
pub(super) struct Removed<T: Slotted>(pub(super) Option<NonNull<T>>);

impl<T: Slotted> Removed<T> {
    /// Removes the object's mark as indexed. If the object has no handle any more, this guard is to
    /// retire it.
    ///
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

impl<T: Slotted> Drop for Removed<T> {
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

/// An object that is marked as indexed but not inserted: dropping this removes the mark, and
/// retires the object if it has no handle.
pub(super) struct Entered<T: Slotted>(pub(super) Option<NonNull<T>>);

impl<T: Slotted> Entered<T> {
    /// Marks an object as indexed and calls `add` with its handle. Returns the object's slot
    /// number, which the caller stores in the index, and the result of `add`.
    ///
    /// The object stays in `self` if `add` panics, returns another object's handle, or refuses an
    /// object that was in an index before and whose state readers may therefore change.
    #[inline]
    pub(super) fn enter<R>(
        &mut self,
        slot: Slot<T>,
        add: impl FnOnce(Slot<T>) -> Result<R, Slot<T>>,
    ) -> Result<(u32, R), Slot<T>> {
        let object = slot.0;
        // SAFETY: the slot's handle is `slot`, so the slot is allocated and its object live.
        let number = unsafe { SharedSlab::number(object) };
        let was_seen = slot.state().was_seen();
        slot.state().enter();
        // Before `add`, which may refuse or panic: the mark is removed in any case.
        self.0 = Some(object);
        match add(slot) {
            Ok(added) => {
                self.0 = None;
                Ok((number, added))
            }
            Err(slot) => {
                if slot.0 == object && !was_seen {
                    slot.state().withdraw();
                    self.0 = None;
                }
                Err(slot)
            }
        }
    }
}

impl<T: Slotted> Drop for Entered<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(object) = self.0 {
            // SAFETY: the slot is not free while the object is marked as indexed; this thread
            // marked it and did not insert it.
            unsafe { Removed(None).take(object) };
        }
    }
}
