//! The header of a chunk, and the owners of its slots.
//!
//! ```text
//!     whole chunk     table number, node | owner | slot | slot ..
//!     shared chunk    table number, node | owner of each 256 bytes .. | slot | slot ..
//! ```
//!
//! A whole chunk belongs to one slab. A shared chunk consists of parts, each a multiple of
//! [`OWNED_BYTES`], of several slabs, which may have slots of different sizes. Both kinds have the
//! owner of a slot at an index that is computed without a branch.
//!
//! A change must ensure that an owner is initialized before a slot of its bytes is used, and
//! changes only while none is.

use crate::node_id::NodeId;
use crate::sync::atomic::AtomicBool;
use core::mem::offset_of;
use core::ptr::NonNull;

/// The bytes of a shared chunk that have one owner.
pub const OWNED_BYTES: usize = 256;

/// The header at the beginning of a chunk, found from the address of each of its slots. It never
/// changes while the chunk lives, except for owners.
#[repr(C)]
pub struct ChunkHeader {
    /// The number of the chunk in [`ChunkTable`](crate::slots::chunk_table::ChunkTable).
    pub table_number: u32,
    /// The node of the chunk's memory.
    pub node: NodeId,
    /// The number of owners less 1: 0, or one less than a power of two.
    owners_mask: u16,
    /// The first owner; those of a shared chunk follow.
    owner: ChunkOwner,
}

/// The slab that a slot belongs to.
#[repr(C)]
pub struct ChunkOwner {
    /// The slab, as `*const SharedSlab<T>`.
    pub slab: *const (),
    /// The number of the chunk in its slab.
    pub number: u32,
    /// Whether the chunk is being evacuated, so that its free slots should not be allocated.
    pub evacuating: AtomicBool,
}

impl ChunkOwner {
    /// Creates the owner of slots that are not being evacuated.
    pub fn new(slab: *const (), number: u32) -> Self {
        Self { slab, number, evacuating: AtomicBool::new(false) }
    }
}

impl ChunkHeader {
    /// Creates the header of a chunk that belongs to one owner.
    pub fn whole(table_number: u32, node: NodeId, owner: ChunkOwner) -> Self {
        Self { table_number, node, owners_mask: 0, owner }
    }

    /// Creates the header of a shared chunk of `bytes` bytes. Its first [`shared_size`] bytes have
    /// no owner, and the others get theirs by [`owner_at`](Self::owner_at).
    ///
    /// [`shared_size`]: Self::shared_size
    pub fn shared(table_number: u32, node: NodeId, bytes: usize) -> Self {
        let owners_mask = (bytes / OWNED_BYTES - 1) as u16;
        Self { table_number, node, owners_mask, owner: ChunkOwner::new(core::ptr::null(), 0) }
    }

    /// Returns the size of the header and of all owners of a shared chunk of `bytes` bytes.
    pub const fn shared_size(bytes: usize) -> usize {
        offset_of!(Self, owner) + bytes / OWNED_BYTES * size_of::<ChunkOwner>()
    }

    /// Returns the address of the owner of the slot that begins `offset` bytes into a chunk.
    ///
    /// # Safety
    ///
    /// The chunk has an initialized header and is longer than `offset`. If it is shared, it has
    /// room for its owners.
    #[inline]
    pub unsafe fn owner_at(chunk: NonNull<u8>, offset: usize) -> NonNull<ChunkOwner> {
        // SAFETY: the chunk begins with an initialized header (this function's clause).
        let mask = unsafe { (*chunk.as_ptr().cast::<Self>()).owners_mask };
        let at = (offset / OWNED_BYTES) & usize::from(mask);
        // SAFETY: the first owner is a part of the header.
        let first = unsafe { chunk.add(offset_of!(Self, owner)) }.cast::<ChunkOwner>();
        // SAFETY: a chunk has as many owners as the mask says (this function's clause).
        unsafe { first.add(at) }
    }
}
