//! An object that was found in the index under its segment's lock.
//!
//! Its address is computed from its number once. A change must ensure that the address keeps its
//! access to the whole chunk, whose header has the node: a reference to the object loses it.

use super::removal::Removed;
use super::segment::{LockedSegment, WayIndex};
use crate::slab::{SharedSlab, Slotted};
use core::marker::PhantomData;
use core::ptr::NonNull;
use lowwater_base::NodeId;

/// An object that was found in the index under its segment's lock, and is not freed during `'g`.
pub(super) struct Present<'g, T> {
    /// With access to the whole chunk of the object, which a reference does not have.
    object: NonNull<T>,
    pub(super) place: WayIndex,
    guard: PhantomData<&'g T>,
}

impl<T> Clone for Present<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Present<'_, T> {}

impl<'g, T: Slotted> Present<'g, T> {
    /// Finds the object with `hash` for which `is` returns true, in the segment of the hash.
    #[inline]
    pub(super) fn find(segment: &LockedSegment<'g>, hash: u64, is: impl Fn(&T) -> bool) -> Option<Self> {
        let mut object = None;
        let place = segment.find(hash, |number| {
            // SAFETY: the number is in the index and the segment's lock is held, so its slot is not
            // free.
            let there = unsafe { SharedSlab::<T>::at(number) };
            object = Some(there);
            // SAFETY: the object is live, as its slot is not free; objects in an index are only
            // borrowed shared.
            is(unsafe { there.as_ref() })
        })?;
        // The last object that was tried is the one that was found.
        object.map(|object| Self { object, place, guard: PhantomData })
    }

    /// Returns the object at a place of a segment.
    pub(super) fn at(segment: &LockedSegment<'g>, place: WayIndex) -> Self {
        // SAFETY: the number is in the index and the segment's lock is held, so its slot is not
        // free. The lock was taken by a caller with a guard, so the slot is not freed during `'g`.
        Self { object: unsafe { SharedSlab::at(segment.number(place)) }, place, guard: PhantomData }
    }

    #[inline]
    pub(super) fn object(self) -> &'g T {
        // SAFETY: the object is live during `'g` (`find`, `at`), and objects in an index are
        // only borrowed shared.
        unsafe { self.object.as_ref() }
    }

    /// Returns the node of the object's memory.
    #[inline]
    pub(super) fn node(self) -> NodeId {
        // SAFETY: the object is in a slot of a slab, which is not free during `'g`.
        unsafe { SharedSlab::node(self.object) }
    }

    /// Ends the object's presence: it goes to `removed` if it has no handle any more.
    ///
    /// # Safety
    ///
    /// This thread has removed the object from the index, and calls this once.
    #[inline]
    pub(super) unsafe fn leave(self, removed: &mut Removed<T>) {
        // SAFETY: the object was in the index, so it was marked as indexed, and its slot is not
        // freed during `'g`. This thread removed it (this function's clause).
        unsafe { removed.take(self.object) };
    }
}
