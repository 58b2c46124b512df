//! Compression of pointers into slots to 32-bit numbers.
//!
//! The two links of a cache entry take 4 bytes each instead of 8. A number is valid only while its
//! chunk is registered in the chunk table.
//!
//! A change must ensure that `decompress` returns the pointer that `compress` was given, and that 0
//! stays the number of no slot: the chunk table gives no chunk the number 0.

use crate::prefetch::prefetch_at;
use crate::slots::chunk_header::ChunkHeader;
use crate::slots::chunk_layout::ChunkLayout;
use crate::slots::chunk_table::ChunkTable;
use core::ptr::NonNull;

/// A converter between pointers at a fixed offset in slots of one size and 32-bit numbers.
///
/// A number consists of the chunk's number in the high bits and the slot's number in its chunk in
/// the low bits: 32 bits in all, for about four thousand million objects in a process.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "CompressedPtr")]
pub struct PtrCompressor {
    /// The layout of the slots, except that `first` is the offset in a chunk of the first slot's
    /// field.
    layout: ChunkLayout,
    /// The offset of the field in a slot.
    offset: usize,
}

impl PtrCompressor {
    /// Creates a converter for pointers `offset` bytes into each `T`.
    pub const fn of<T>(offset: usize) -> Self {
        let mut layout = ChunkLayout::of::<T>();
        layout.first += offset;
        Self { layout, offset }
    }

    /// Returns the pointer for a number.
    ///
    /// # Safety
    ///
    /// The number is that of a slot which is not free, or was returned by
    /// [`register_external`](Self::register_external) and is still registered.
    #[inline]
    pub unsafe fn decompress(&self, number: u32) -> *mut u8 {
        // SAFETY: a slot's chunk keeps its number while a slot is not free; a registered external
        // pointer has a number of its own.
        let chunk = unsafe { ChunkTable::global().get(number >> self.layout.bits) };
        let slot = number & ((1 << self.layout.bits) - 1);
        // Wrapping: an external pointer has no chunk before it.
        chunk.wrapping_add(self.layout.first + slot as usize * self.layout.slot)
    }

    /// Prefetches the slot, at its beginning and at the field.
    ///
    /// # Safety
    ///
    /// The clause of [`decompress`](Self::decompress).
    #[inline]
    pub unsafe fn prefetch(&self, number: u32) {
        // SAFETY: this function's clause is that of `decompress`.
        let place = unsafe { self.decompress(number) };
        prefetch_at(place.wrapping_sub(self.offset));
        prefetch_at(place);
    }

    /// Returns the number for a pointer.
    ///
    /// # Safety
    ///
    /// The pointer points to the field of a slot that is not free, and its provenance covers the
    /// whole chunk.
    #[inline]
    pub unsafe fn compress(&self, at: *mut u8) -> u32 {
        let chunk = at.map_addr(|address| address & !(self.layout.full - 1));
        // SAFETY: chunks are aligned to the size of a full one and no larger, so the mask gives the
        // chunk's address. It begins with its header, and lives while one of its slots is not free.
        let header = unsafe { &*chunk.cast::<ChunkHeader>() };
        let slot = ((at.addr() & (self.layout.full - 1)) - self.layout.first) as u32 / self.layout.slot as u32;
        header.table_number << self.layout.bits | slot
    }

    /// Registers a pointer that is in no slot under a number, until it is unregistered. `None`:
    /// there is no free number, or no memory.
    pub fn register_external(&self, at: NonNull<u8>) -> Option<u32> {
        let chunk = at.as_ptr().wrapping_sub(self.layout.first);
        Some(ChunkTable::global().register(chunk, self.layout.numbers_end())? << self.layout.bits)
    }

    /// Releases the number of an external pointer.
    ///
    /// # Safety
    ///
    /// The number was returned by [`register_external`](Self::register_external), and no code uses
    /// it any more.
    pub unsafe fn unregister_external(&self, number: u32) {
        // SAFETY: the number is registered, and no code uses it any more (this function's clause).
        unsafe { ChunkTable::global().unregister(number >> self.layout.bits) };
    }
}
