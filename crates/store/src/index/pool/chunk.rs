//! A chunk of a segment pool: which of its slots are allocated.
//!
//! A chunk has at most 60 slots, so one word of bits says which are allocated. A change must ensure
//! that the bookkeeping is outside the chunk's memory, so that spare memory can be returned to the
//! system.

use super::chunk_format::{slots, SegmentChunkHeader, GEOMETRY};
use crate::index::class::Class;
use crate::index::segment_header::{bytes, Segment};
use crate::slab::{GroupLink, HasGroupLink, Memory};
use core::ptr::NonNull;

/// The bookkeeping of a chunk.
pub(super) struct SegmentChunk {
    pub(super) memory: Option<Memory>,
    /// One bit for each allocated slot.
    pub(super) allocated: u64,
    pub(super) class: Class,
    /// True while the chunk is being evacuated: no slot is allocated in it while other chunks have
    /// room.
    pub(super) is_evacuating: bool,
    pub(super) group_link: GroupLink,
}

impl HasGroupLink for SegmentChunk {
    fn group_link(&mut self) -> &mut GroupLink {
        &mut self.group_link
    }
}

impl SegmentChunk {
    pub(super) fn new(memory: Memory, class: Class) -> Self {
        Self { memory: Some(memory), allocated: 0, class, is_evacuating: false, group_link: GroupLink::new() }
    }

    pub(super) fn is_there(&self) -> bool {
        self.memory.is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.allocated == 0
    }

    /// Returns the number of free slots.
    pub(super) fn free(&self) -> u32 {
        slots(self.class) - self.allocated.count_ones()
    }

    /// Allocates the first free slot. The chunk must not be full.
    pub(super) fn take(&mut self) -> NonNull<Segment> {
        let slot = self.allocated.trailing_ones();
        self.allocated |= 1 << slot;
        self.slot(slot)
    }

    /// Frees the slot at an address.
    pub(super) fn put(&mut self, address: usize) {
        let slot = (address % GEOMETRY.full - size_of::<SegmentChunkHeader>()) / bytes(self.class);
        self.allocated &= !(1 << slot);
    }

    pub(super) fn slot(&self, slot: u32) -> NonNull<Segment> {
        let base = self.memory.as_ref().expect("a chunk in a group has memory").base;
        // SAFETY: the chunk has more than `slot` slots of this size behind its header.
        unsafe { base.add(size_of::<SegmentChunkHeader>() + slot as usize * bytes(self.class)) }.cast()
    }
}
