//! How a chunk is laid out: a header, then slots of one size. It is aligned to the size of a full one, so that a slot's address leads
//! to the header by a mask.

use crate::node_id::NodeId;
use crate::sync::atomic::AtomicBool;

/// The least size of a full chunk.
const FULL_MIN: usize = 64 << 10;
/// The size of a slab's first chunk; each is as large as all before, up to a full one.
const FIRST: usize = 1 << 10;
/// Slots that the smallest chunk has at least.
const SLOTS_MIN: usize = 4;

/// The header at the begin of a chunk, to which the address of each of its slots leads. But for `evacuating` it never changes while the chunk lives.
pub struct ChunkHeader {
    /// The slab that the chunk belongs to, as `*const Shared<T>`.
    pub slab: *const (),
    /// Which of the slab's chunks it is.
    pub number: u32,
    /// Its number in [`ChunkTable`](crate::slots::chunk_table::ChunkTable).
    pub table_number: u32,
    /// The node of its memory.
    pub node: NodeId,
    /// Is it to be emptied, so that nothing should be put in it?
    pub evacuating: AtomicBool,
}

impl ChunkHeader {
    /// The header of a chunk that is not evacuated.
    pub fn new(slab: *const (), number: u32, table_number: u32, node: NodeId) -> Self {
        Self { slab, number, table_number, node, evacuating: AtomicBool::new(false) }
    }
}

/// The sizes for one type.
#[derive(Clone, Copy, Debug)]
pub struct ChunkLayout {
    /// Of a slot.
    pub slot: usize,
    /// From the chunk to its first slot.
    pub first: usize,
    /// Of a full chunk, and what every chunk is aligned to.
    pub full: usize,
    /// Bits of a slot's number inside its chunk.
    pub bits: u32,
}

impl ChunkLayout {
    /// The layout of chunks of `T`s.
    pub const fn of<T>() -> Self {
        assert!(size_of::<T>() >= size_of::<*const ()>(), "a free slot holds a pointer");
        let slot = size_of::<T>();
        let first = size_of::<ChunkHeader>().next_multiple_of(align_of::<T>());
        let wanted = first + 16 * slot;
        let full = if wanted > FULL_MIN { wanted.next_power_of_two() } else { FULL_MIN };
        let bits = usize::BITS - ((full - first) / slot - 1).leading_zeros();
        Self { slot, first, full, bits }
    }

    /// Slots of a chunk of so many bytes.
    pub const fn slots(&self, bytes: usize) -> usize {
        (bytes - self.first) / self.slot
    }

    /// The size of the next chunk of a slab that has so many bytes in chunks.
    pub fn next(&self, have: usize) -> usize {
        let least = (self.first + SLOTS_MIN * self.slot).max(FIRST);
        if have >= self.full {
            self.full
        } else {
            have.max(least).next_power_of_two().min(self.full)
        }
    }

    /// Numbers of chunks end here, so that those of all slots fit in 32 bits.
    pub const fn numbers_end(&self) -> u32 {
        1 << (u32::BITS - self.bits)
    }
}
