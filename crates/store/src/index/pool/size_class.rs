//! The chunks of one size class, in fullness groups.
//!
//! Slots are allocated from the fullest chunk, so that the emptiest can become empty. A chunk that
//! is being evacuated comes last: no memory is wasted if one of its segments stays after all, for
//! example because it was not yet published when it was to be moved.
//!
//! A change must ensure that each chunk is in the group for its current fullness after every
//! operation, and that a chunk is evacuated only if the others have room for its segments.

use super::chunk::SegmentChunk;
use super::chunk_format::slots;
use crate::index::class::Class;
use crate::index::segment_header::Segment;
use crate::slab::{FullnessGroups, NONE};
use core::ptr::NonNull;

/// Fullness groups: the evacuated chunks, then the emptiest chunks first.
const BINS: usize = 5;
/// The group of chunks that are being evacuated.
const EVACUATED: u8 = 0;

/// The chunks in which a segment may be allocated.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::index) enum Room {
    /// Any chunk; a new one is added if none has room.
    Any,
    /// Only chunks that are not being evacuated; no chunk is added.
    Staying,
}

/// The chunks of one size class; see the module.
pub(super) struct SizeClass {
    class: Class,
    bins: FullnessGroups<BINS>,
    /// Free slots of the chunks that are not being evacuated.
    free: u32,
    /// The chunk that is being evacuated.
    evacuating: u32,
    /// One bit for each slot of that chunk: `evacuating` has returned its segment.
    returned: u64,
}

impl SizeClass {
    pub(super) fn new(class: Class) -> Self {
        Self { class, bins: FullnessGroups::new(), free: 0, evacuating: NONE, returned: 0 }
    }

    /// Returns the chunk in which to allocate a segment.
    pub(super) fn fullest(&self, room: Room) -> Option<u32> {
        self.bins.last(if room == Room::Any { EVACUATED } else { EVACUATED + 1 })
    }

    /// Adds a new chunk.
    pub(super) fn add(&mut self, chunks: &mut [SegmentChunk], at: u32) {
        self.free += slots(self.class);
        self.rebin(chunks, at);
    }

    /// Allocates a slot of a chunk that [`fullest`](Self::fullest) returned, or that is new.
    pub(super) fn take(&mut self, chunks: &mut [SegmentChunk], at: u32) -> NonNull<Segment> {
        let chunk = &mut chunks[at as usize];
        if core::mem::take(&mut chunk.is_evacuating) {
            self.free += chunk.free();
            if self.evacuating == at {
                self.evacuating = NONE;
            }
        }
        let slot = chunk.take();
        self.free -= 1;
        self.rebin(chunks, at);
        slot
    }

    /// Frees the slot at an address. A chunk that becomes empty is removed from this size class.
    pub(super) fn put(&mut self, chunks: &mut [SegmentChunk], at: u32, address: usize) {
        let chunk = &mut chunks[at as usize];
        chunk.put(address);
        self.free += u32::from(!chunk.is_evacuating);
        if !chunk.is_empty() {
            return self.rebin(chunks, at);
        }
        self.free -= if chunk.is_evacuating { 0 } else { slots(self.class) };
        if self.evacuating == at {
            self.evacuating = NONE;
        }
        self.bins.put(chunks, at, None);
    }

    /// Returns the next segment to evacuate, if the segments of a chunk fit into the other chunks.
    pub(super) fn evacuating(&mut self, chunks: &mut [SegmentChunk]) -> Option<NonNull<Segment>> {
        if let Some(next) = self.next_leaving(chunks) {
            return Some(next);
        }
        // All segments of the chunk were returned once, and those that moved wait for their
        // readers; meanwhile the next chunk can be evacuated.
        self.evacuating = NONE;
        if self.free < slots(self.class) {
            return None;
        }
        let at = self.bins.first(EVACUATED + 1)?;
        let chunk = &mut chunks[at as usize];
        chunk.is_evacuating = true;
        self.free -= chunk.free();
        (self.evacuating, self.returned) = (at, 0);
        self.rebin(chunks, at);
        self.next_leaving(chunks)
    }

    fn next_leaving(&mut self, chunks: &[SegmentChunk]) -> Option<NonNull<Segment>> {
        let chunk = chunks.get(self.evacuating as usize)?;
        let next = (chunk.allocated & !self.returned).trailing_zeros();
        if next == u64::BITS {
            return None;
        }
        self.returned |= 1 << next;
        Some(chunk.slot(next))
    }

    /// Moves a chunk to the group for its fullness.
    fn rebin(&mut self, chunks: &mut [SegmentChunk], at: u32) {
        let chunk = &chunks[at as usize];
        let bin = match chunk.free() {
            0 => None,
            _ if chunk.is_evacuating => Some(EVACUATED),
            free => Some(EVACUATED + 1 + ((slots(self.class) - free) * (BINS as u32 - 1) / slots(self.class)) as u8),
        };
        self.bins.put(chunks, at, bin);
    }

    /// Panics unless the counts agree with the chunks.
    pub(super) fn assert_valid(&self, chunks: &[SegmentChunk]) {
        let ours = || chunks.iter().filter(|chunk| chunk.is_there() && chunk.class == self.class);
        let free = ours().filter(|chunk| !chunk.is_evacuating).map(SegmentChunk::free).sum::<u32>();
        assert_eq!(free, self.free, "free slots are counted");
        for chunk in ours() {
            let bin = chunk.group_link.bin();
            assert_eq!(bin.is_none(), chunk.free() == 0, "a chunk with room is in a group");
            assert_eq!(
                bin == Some(EVACUATED),
                chunk.is_evacuating && chunk.free() != 0,
                "an evacuated chunk with room is in the last group"
            );
        }
    }
}
