//! The layout of a chunk: a header, then slots of one size (of a shared chunk: of one size in each
//! part, see `chunk_header.rs`). A chunk is aligned to the size of a full one, so that masking a
//! slot's address gives the header's.
//!
//! Because of the equal slots and the alignment, a pointer to a slot converts to a 32-bit number
//! and back (`ptr_compressor.rs`). A change must ensure that the number of a chunk and the number
//! of a slot in its chunk together fit into 32 bits.

use crate::slots::chunk_header::{ChunkHeader, OWNED_BYTES};
use core::ops::Range;

/// The minimum size of a full chunk: of the pieces in which memory returns to the system. README.md
/// and `slab.rs` of `lowwater-store` give this number.
const FULL_MIN: usize = 64 << 10;
/// The minimum size of a slab's first chunk; each further one is as large as all before together,
/// up to a full one.
const FIRST: usize = OWNED_BYTES;
/// The minimum number of slots in a first chunk, or one less where it is a part of a shared chunk.
const SLOTS_MIN: usize = 4;

/// The sizes of chunks and slots for one type, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct ChunkLayout {
    /// The size of a slot.
    pub slot: usize,
    /// The offset of the first slot in a chunk.
    pub first: usize,
    /// The size of a full chunk, and the alignment of every chunk.
    pub full: usize,
    /// The number of bits of a slot's number in its chunk.
    pub bits: u32,
}

impl ChunkLayout {
    /// Returns the layout of chunks of `T`s. A full chunk has 64 KiB, or the next power of two that
    /// holds at least 16 slots. Panics if a `T` is smaller than a pointer.
    pub const fn of<T>() -> Self {
        assert!(size_of::<T>() >= size_of::<*const ()>(), "a free slot holds a pointer");
        let slot = size_of::<T>();
        let first = size_of::<ChunkHeader>().next_multiple_of(align_of::<T>());
        let wanted = first + 16 * slot;
        let full = if wanted > FULL_MIN { wanted.next_power_of_two() } else { FULL_MIN };
        assert!(full as u64 <= 1 << 32, "positions in a chunk are computed in 32 bits");
        let bits = usize::BITS - ((full - first) / slot - 1).leading_zeros();
        Self { slot, first, full, bits }
    }

    /// Returns the number of slots in a chunk of `bytes` bytes.
    pub const fn slots(&self, bytes: usize) -> usize {
        (bytes - self.first) / self.slot
    }

    /// Returns the numbers of the slots that lie in these bytes of a chunk.
    pub fn slots_between(&self, bytes: Range<usize>) -> Range<u32> {
        let begin = bytes.start.saturating_sub(self.first).div_ceil(self.slot);
        begin as u32..self.slots(bytes.end) as u32
    }

    /// Returns the size of the next chunk of a slab that has `have` bytes in chunks.
    pub fn next(&self, have: usize) -> usize {
        let least = (self.first + SLOTS_MIN * self.slot).max(FIRST);
        if have >= self.full {
            self.full
        } else {
            have.max(least).next_power_of_two().min(self.full)
        }
    }

    /// Returns the exclusive upper bound of chunk numbers, so that the numbers of all slots fit in
    /// 32 bits.
    pub const fn numbers_end(&self) -> u32 {
        1 << (u32::BITS - self.bits)
    }
}
