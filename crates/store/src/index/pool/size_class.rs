//! The chunks of one class, in bins by how full they are.
//!
//! Slots are taken from the fullest, so that the emptiest can empty. One that is to be emptied comes last of all: then nothing is lost if a
//! segment stays in it after all, as one may that its maker has not published yet when it is asked for.

use super::chunk::SegmentChunk;
use super::chunk_format::slots;
use crate::index::class::Class;
use crate::index::segment_header::Segment;
use crate::slab::{FullnessGroups, NONE};
use core::ptr::NonNull;

/// Bins: those that are to be emptied, then the emptiest first.
const BINS: usize = 5;
/// The bin of chunks that are to be emptied.
const LEAVING: u8 = 0;

/// Which chunks a segment may be put in.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::index) enum Room {
    /// Any; one is made if there is none.
    Any,
    /// Those alone that stay.
    Staying,
}

/// See the module.
pub(super) struct SizeClass {
    class: Class,
    bins: FullnessGroups<BINS>,
    /// Free slots of those that are not to be emptied.
    free: u32,
    /// The chunk whose segments are asked to leave.
    evacuating: u32,
    /// A bit for each of its slots whose segment was asked.
    asked: u64,
}

impl SizeClass {
    pub(super) fn new(class: Class) -> Self {
        Self { class, bins: FullnessGroups::new(), free: 0, evacuating: NONE, asked: 0 }
    }

    /// The chunk to put a segment in.
    pub(super) fn fullest(&self, room: Room) -> Option<u32> {
        self.bins.last(if room == Room::Any { LEAVING } else { LEAVING + 1 })
    }

    /// A new chunk.
    pub(super) fn add(&mut self, chunks: &mut [SegmentChunk], at: u32) {
        self.free += slots(self.class);
        self.rebin(chunks, at);
    }

    /// A slot of a chunk that [`fullest`](Self::fullest) gave, or that is new.
    pub(super) fn take(&mut self, chunks: &mut [SegmentChunk], at: u32) -> NonNull<Segment> {
        let chunk = &mut chunks[at as usize];
        if core::mem::take(&mut chunk.leaves) {
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

    /// Takes the slot at an address back. A chunk that is empty then is not of this size_class any more.
    pub(super) fn put(&mut self, chunks: &mut [SegmentChunk], at: u32, address: usize) {
        let chunk = &mut chunks[at as usize];
        chunk.put(address);
        self.free += u32::from(!chunk.leaves);
        if !chunk.is_empty() {
            return self.rebin(chunks, at);
        }
        self.free -= if chunk.leaves { 0 } else { slots(self.class) };
        if self.evacuating == at {
            self.evacuating = NONE;
        }
        self.bins.put(chunks, at, None);
    }

    /// The next segment that is to leave, if those of a chunk fit into the others.
    pub(super) fn evacuating(&mut self, chunks: &mut [SegmentChunk]) -> Option<NonNull<Segment>> {
        if let Some(next) = self.next_leaving(chunks) {
            return Some(next);
        }
        // Those that were asked wait for their readers; the next chunk's may leave meanwhile.
        self.evacuating = NONE;
        if self.free < slots(self.class) {
            return None;
        }
        let at = self.bins.first(LEAVING + 1)?;
        let chunk = &mut chunks[at as usize];
        chunk.leaves = true;
        self.free -= chunk.free();
        (self.evacuating, self.asked) = (at, 0);
        self.rebin(chunks, at);
        self.next_leaving(chunks)
    }

    fn next_leaving(&mut self, chunks: &[SegmentChunk]) -> Option<NonNull<Segment>> {
        let chunk = chunks.get(self.evacuating as usize)?;
        let next = (chunk.out & !self.asked).trailing_zeros();
        if next == u64::BITS {
            return None;
        }
        self.asked |= 1 << next;
        Some(chunk.slot(next))
    }

    /// Puts a chunk in the bin where it belongs.
    fn rebin(&mut self, chunks: &mut [SegmentChunk], at: u32) {
        let chunk = &chunks[at as usize];
        let bin = match chunk.free() {
            0 => None,
            _ if chunk.leaves => Some(LEAVING),
            free => Some(LEAVING + 1 + ((slots(self.class) - free) * (BINS as u32 - 1) / slots(self.class)) as u8),
        };
        self.bins.put(chunks, at, bin);
    }

    /// Panics unless the counts agree.
    pub(super) fn assert_valid(&self, chunks: &[SegmentChunk]) {
        let ours = || chunks.iter().filter(|chunk| chunk.is_there() && chunk.class == self.class);
        let free = ours().filter(|chunk| !chunk.leaves).map(SegmentChunk::free).sum::<u32>();
        assert_eq!(free, self.free, "free slots are counted");
        for chunk in ours() {
            let bin = chunk.group_link.bin();
            assert_eq!(bin.is_none(), chunk.free() == 0, "what has room can be found");
            assert_eq!(bin == Some(LEAVING), chunk.leaves && chunk.free() != 0, "what is to be emptied comes last");
        }
    }
}
