//! A chunk: which of its slots are out.

use super::chunk_format::{slots, SegmentChunkHeader, GEOMETRY};
use crate::index::class::Class;
use crate::index::segment_header::{bytes, Segment};
use crate::slab::{GroupLink, HasGroupLink, Memory};
use core::ptr::NonNull;

/// What is known of a chunk.
pub(super) struct SegmentChunk {
    pub(super) memory: Option<Memory>,
    /// One bit for each slot that is out.
    pub(super) out: u64,
    pub(super) class: Class,
    /// Is it to be emptied, so that nothing is put in it while there is room elsewhere?
    pub(super) leaves: bool,
    pub(super) group_link: GroupLink,
}

impl HasGroupLink for SegmentChunk {
    fn group_link(&mut self) -> &mut GroupLink {
        &mut self.group_link
    }
}

impl SegmentChunk {
    pub(super) fn new(memory: Memory, class: Class) -> Self {
        Self { memory: Some(memory), out: 0, class, leaves: false, group_link: GroupLink::new() }
    }

    pub(super) fn is_there(&self) -> bool {
        self.memory.is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.out == 0
    }

    /// Slots that are not out.
    pub(super) fn free(&self) -> u32 {
        slots(self.class) - self.out.count_ones()
    }

    /// Of a chunk that is not full.
    pub(super) fn take(&mut self) -> NonNull<Segment> {
        let slot = self.out.trailing_ones();
        self.out |= 1 << slot;
        self.slot(slot)
    }

    /// Takes the slot at an address back.
    pub(super) fn put(&mut self, address: usize) {
        let slot = (address % GEOMETRY.full - size_of::<SegmentChunkHeader>()) / bytes(self.class);
        self.out &= !(1 << slot);
    }

    pub(super) fn slot(&self, slot: u32) -> NonNull<Segment> {
        let base = self.memory.as_ref().expect("a chunk in a bin has memory").base;
        // SAFETY: the chunk has so many slots of this size behind its header.
        unsafe { base.add(size_of::<SegmentChunkHeader>() + slot as usize * bytes(self.class)) }.cast()
    }
}
