//! Where in each slot something lies, and its number.

use crate::prefetch::prefetch_at;
use crate::slots::chunk_layout::{ChunkHeader, ChunkLayout};
use crate::slots::chunk_table::ChunkTable;
use core::ptr::NonNull;

/// A place at the same distance from the beginning of each slot of one size.
///
/// A number is that of the chunk, and behind it that of the slot in its chunk: 32 bits in all, for about four thousand million objects in
/// a process.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "CompressedPtr")]
pub struct PtrCompressor {
    /// Of the slots; but `first` is from the chunk to the place in its first slot.
    layout: ChunkLayout,
    /// From the beginning of a slot to the place.
    offset: usize,
}

impl PtrCompressor {
    /// `offset` bytes into each `T`.
    pub const fn of<T>(offset: usize) -> Self {
        let mut layout = ChunkLayout::of::<T>();
        layout.first += offset;
        Self { layout, offset }
    }

    /// The place of this number.
    ///
    /// # Safety
    ///
    /// It is that of a slot which is not free, or was [lent](Self::register_external).
    #[inline]
    pub unsafe fn decompress(&self, number: u32) -> *mut u8 {
        // SAFETY: a slot's chunk has its number while the slot is not free; what is lent has one of its own.
        let chunk = unsafe { ChunkTable::global().get(number >> self.layout.bits) };
        let slot = number & ((1 << self.layout.bits) - 1);
        // Wrapping: what is lent has no chunk before it.
        chunk.wrapping_add(self.layout.first + slot as usize * self.layout.slot)
    }

    /// Brings the slot closer, from its beginning to the place.
    ///
    /// # Safety
    ///
    /// As for [`decompress`](Self::decompress).
    #[inline]
    pub unsafe fn prefetch(&self, number: u32) {
        // SAFETY: the caller's promise is the same.
        let place = unsafe { self.decompress(number) };
        prefetch_at(place.wrapping_sub(self.offset));
        prefetch_at(place);
    }

    /// The number of the slot of a place.
    ///
    /// # Safety
    ///
    /// The place is in a slot that is not free, and the pointer is for all of its chunk.
    #[inline]
    pub unsafe fn compress(&self, at: *mut u8) -> u32 {
        let chunk = at.map_addr(|address| address & !(self.layout.full - 1));
        // SAFETY: chunks are aligned to the size of a full one and no larger; one begins with its header, and is there while one of its slots
        // is not free.
        let header = unsafe { &*chunk.cast::<ChunkHeader>() };
        let slot = ((at.addr() & (self.layout.full - 1)) - self.layout.first) as u32 / self.layout.slot as u32;
        header.table_number << self.layout.bits | slot
    }

    /// A number for what is in no slot, until it is given back. `None`: there is none, nor memory for more.
    pub fn register_external(&self, at: NonNull<u8>) -> Option<u32> {
        let chunk = at.as_ptr().wrapping_sub(self.layout.first);
        Some(ChunkTable::global().register(chunk, self.layout.numbers_end())? << self.layout.bits)
    }

    /// Takes back a number that was lent.
    ///
    /// # Safety
    ///
    /// It was, and nobody uses it any more.
    pub unsafe fn unregister_external(&self, number: u32) {
        // SAFETY: the caller's promise is the same.
        unsafe { ChunkTable::global().unregister(number >> self.layout.bits) };
    }
}
