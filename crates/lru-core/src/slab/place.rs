//! Where in each slot something lies, and its number.

use super::chunk::{Geometry, Header};
use super::frames::Frames;
use crate::prefetch::prefetch_at;
use core::ptr::NonNull;

/// A place at the same distance from the beginning of each slot of one size.
///
/// A number is that of the chunk, and behind it that of the slot in its chunk: 32 bits in all, for about four thousand million objects in
/// a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Of the slots; but `first` is from the chunk to the place in its first slot.
    geometry: Geometry,
    /// From the beginning of a slot to the place.
    offset: usize,
}

impl Place {
    /// `offset` bytes into each `T`.
    pub(crate) const fn of<T>(offset: usize) -> Self {
        let mut geometry = Geometry::of::<T>();
        geometry.first += offset;
        Self { geometry, offset }
    }

    /// The place of this number.
    ///
    /// # Safety
    ///
    /// It is that of a slot which is not free, or was [lent](Self::lend).
    #[inline]
    pub(crate) unsafe fn at(&self, number: u32) -> *mut u8 {
        // SAFETY: a slot's chunk has its number while the slot is not free; what is lent has one of its own.
        let chunk = unsafe { Frames::all().get(number >> self.geometry.bits) };
        let slot = number & ((1 << self.geometry.bits) - 1);
        // Wrapping: what is lent has no chunk before it.
        chunk.wrapping_add(self.geometry.first + slot as usize * self.geometry.slot)
    }

    /// Brings the slot closer, from its beginning to the place.
    ///
    /// # Safety
    ///
    /// As for [`at`](Self::at).
    #[inline]
    pub(crate) unsafe fn prefetch(&self, number: u32) {
        // SAFETY: the caller's promise is the same.
        let place = unsafe { self.at(number) };
        prefetch_at(place.wrapping_sub(self.offset));
        prefetch_at(place);
    }

    /// The number of the slot of a place.
    ///
    /// # Safety
    ///
    /// The place is in a slot that is not free, and the pointer is for all of its chunk.
    #[inline]
    pub(crate) unsafe fn number(&self, at: *mut u8) -> u32 {
        let chunk = at.map_addr(|address| address & !(self.geometry.full - 1));
        // SAFETY: chunks are aligned to the size of a full one and no larger; one begins with its header, and is there while one of its slots
        // is not free.
        let header = unsafe { &*chunk.cast::<Header>() };
        let slot = ((at.addr() & (self.geometry.full - 1)) - self.geometry.first) as u32 / self.geometry.slot as u32;
        header.frame << self.geometry.bits | slot
    }

    /// A number for what is in no slot, until it is given back. `None`: there is none, nor memory for more.
    pub(crate) fn lend(&self, at: NonNull<u8>) -> Option<u32> {
        let chunk = at.as_ptr().wrapping_sub(self.geometry.first);
        Some(Frames::all().take(chunk, self.geometry.frames_end())? << self.geometry.bits)
    }

    /// Takes back a number that was lent.
    ///
    /// # Safety
    ///
    /// It was, and nobody uses it any more.
    pub(crate) unsafe fn give_back(&self, number: u32) {
        // SAFETY: the caller's promise is the same.
        unsafe { Frames::all().give(number >> self.geometry.bits) };
    }
}
