//! The memory of one chunk of a slab: a whole chunk, or a part of one that slabs share.
//!
//! A change must ensure that the header, or the owners of a part, are written before a slot is
//! used.

use super::numbered_memory::{get_numbered, put_numbered};
#[cfg(not(lowwater_loom))]
use super::shared_chunks::Part;
use super::spans::{Memory, Spans};
use crate::sync::atomic::Ordering;
use core::ops::Range;
use core::ptr::NonNull;
#[cfg(not(lowwater_loom))]
use lowwater_base::slots::chunk_header::OWNED_BYTES;
use lowwater_base::slots::{ChunkHeader, ChunkLayout, ChunkOwner};
use lowwater_base::NodeId;

/// The memory of one chunk of a slab; see the module.
pub(super) enum ChunkMemory {
    Whole(Memory),
    /// In a model check each slab has whole chunks only: one lock less.
    #[cfg(not(lowwater_loom))]
    Part(Part),
}

impl ChunkMemory {
    /// Allocates the memory of the next chunk of a slab that has `have` bytes, and writes that the
    /// slab owns it by this number. `None` without memory or without numbers for the slots.
    pub(super) fn get(
        have: usize,
        layout: &ChunkLayout,
        node: NodeId,
        owner: impl Fn() -> ChunkOwner,
        spans: &mut Spans,
    ) -> Option<Self> {
        let bytes = layout.next(have);
        #[cfg(not(lowwater_loom))]
        if let Some(part) = Part::get(bytes, layout, node, &owner) {
            return Some(Self::Part(part));
        }
        let (memory, table_number) = get_numbered(bytes, layout, spans)?;
        // SAFETY: the chunk begins with room for its header, and no other code has it.
        unsafe { memory.base.cast().write(ChunkHeader::whole(table_number, node, owner())) };
        Some(Self::Whole(memory))
    }

    /// Frees the memory.
    ///
    /// # Safety
    ///
    /// It came from [`get`](Self::get) with these spans and this layout. No slot is in use, and no
    /// number of one.
    pub(super) unsafe fn put(self, layout: &ChunkLayout, spans: &mut Spans) {
        match self {
            // SAFETY: the memory came from `get_numbered` and has its header; no slot and no number
            // of one is in use (this function's clause).
            Self::Whole(memory) => unsafe { put_numbered(memory, layout, spans) },
            #[cfg(not(lowwater_loom))]
            // SAFETY: no slot and no number of one is in use (this function's clause).
            Self::Part(part) => unsafe { part.put() },
        }
    }

    /// Returns the beginning of the whole chunk: the slot of number 0 is `first` bytes behind it.
    pub(super) fn base(&self) -> NonNull<u8> {
        match self {
            Self::Whole(memory) => memory.base,
            #[cfg(not(lowwater_loom))]
            Self::Part(part) => part.chunk(),
        }
    }

    /// Returns the bytes of the whole chunk that this is.
    pub(super) fn bytes(&self) -> Range<usize> {
        match self {
            Self::Whole(memory) => 0..memory.bytes,
            #[cfg(not(lowwater_loom))]
            Self::Part(part) => part.bytes(),
        }
    }

    /// Sets whether the chunk is being evacuated, for threads that do not hold the slab's lock.
    pub(super) fn set_evacuating(&self, evacuating: bool) {
        let set = |offset| {
            // SAFETY: the chunk has its header, and the offset is inside of it.
            let owner = unsafe { ChunkHeader::owner_at(self.base(), offset) };
            // SAFETY: owners were initialized in `get`.
            let owner = unsafe { owner.as_ref() };
            // Relaxed: a hint. A thread that reads the old value puts one more object into the
            // chunk, or leaves one there.
            owner.evacuating.store(evacuating, Ordering::Relaxed);
        };
        match self {
            Self::Whole(_) => set(0),
            #[cfg(not(lowwater_loom))]
            Self::Part(part) => part.bytes().step_by(OWNED_BYTES).for_each(set),
        }
    }
}
