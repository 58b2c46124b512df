//! The chunks of one class, in bins by how full they are.
//!
//! Slots are taken from the fullest, so that the emptiest can empty. One that is to be emptied comes last of all: then nothing is lost if a
//! segment stays in it after all, as one may that its maker has not published yet when it is asked for.

use super::chunk::Chunk;
use super::{slots, Room, NONE};
use crate::index::segment::{Class, Segment};
use core::ptr::NonNull;

/// Bins: those that are to be emptied, then the emptiest first.
const BINS: usize = 5;
/// The bin of chunks that are to be emptied.
const LEAVING: u8 = 0;
/// In no bin, as one is that is full, or not there.
pub(super) const NO_BIN: u8 = BINS as u8;

/// See the module.
pub(super) struct Kind {
    class: Class,
    /// The first chunk of each bin; the others are joined to it.
    bins: [u32; BINS],
    /// Free slots of those that are not to be emptied.
    free: u32,
    /// The chunk whose segments are asked to leave.
    leaving: u32,
    /// A bit for each of its slots whose segment was asked.
    asked: u64,
}

impl Kind {
    pub(super) fn new(class: Class) -> Self {
        Self { class, bins: [NONE; BINS], free: 0, leaving: NONE, asked: 0 }
    }

    /// The chunk to put a segment in.
    pub(super) fn fullest(&self, room: Room) -> Option<u32> {
        let last = if room == Room::Any { LEAVING } else { LEAVING + 1 };
        self.bins[usize::from(last)..].iter().rev().copied().find(|&at| at != NONE)
    }

    /// A new chunk.
    pub(super) fn add(&mut self, chunks: &mut [Chunk], at: u32) {
        self.free += slots(self.class);
        self.rebin(chunks, at);
    }

    /// A slot of a chunk that [`fullest`](Self::fullest) gave, or that is new.
    pub(super) fn take(&mut self, chunks: &mut [Chunk], at: u32) -> NonNull<Segment> {
        let chunk = &mut chunks[at as usize];
        if core::mem::take(&mut chunk.leaves) {
            self.free += chunk.free();
            if self.leaving == at {
                self.leaving = NONE;
            }
        }
        let slot = chunk.take();
        self.free -= 1;
        self.rebin(chunks, at);
        slot
    }

    /// Takes the slot at an address back. A chunk that is empty then is not of this kind any more.
    pub(super) fn put(&mut self, chunks: &mut [Chunk], at: u32, address: usize) {
        let chunk = &mut chunks[at as usize];
        chunk.put(address);
        self.free += u32::from(!chunk.leaves);
        if !chunk.is_empty() {
            return self.rebin(chunks, at);
        }
        self.free -= if chunk.leaves { 0 } else { slots(self.class) };
        if self.leaving == at {
            self.leaving = NONE;
        }
        self.unlink(chunks, at);
    }

    /// The next segment that is to leave, if those of a chunk fit into the others.
    pub(super) fn leaving(&mut self, chunks: &mut [Chunk]) -> Option<NonNull<Segment>> {
        if let Some(next) = self.next_leaving(chunks) {
            return Some(next);
        }
        // Those that were asked wait for their readers; the next chunk's may leave meanwhile.
        self.leaving = NONE;
        if self.free < slots(self.class) {
            return None;
        }
        let at = self.bins[usize::from(LEAVING) + 1..].iter().copied().find(|&at| at != NONE)?;
        let chunk = &mut chunks[at as usize];
        chunk.leaves = true;
        self.free -= chunk.free();
        (self.leaving, self.asked) = (at, 0);
        self.rebin(chunks, at);
        self.next_leaving(chunks)
    }

    fn next_leaving(&mut self, chunks: &[Chunk]) -> Option<NonNull<Segment>> {
        let chunk = chunks.get(self.leaving as usize)?;
        let next = (chunk.out & !self.asked).trailing_zeros();
        if next == u64::BITS {
            return None;
        }
        self.asked |= 1 << next;
        Some(chunk.slot(next))
    }

    /// Puts a chunk in the bin where it belongs.
    fn rebin(&mut self, chunks: &mut [Chunk], at: u32) {
        let chunk = &chunks[at as usize];
        let bin = match chunk.free() {
            0 => NO_BIN,
            _ if chunk.leaves => LEAVING,
            free => LEAVING + 1 + ((slots(self.class) - free) * (BINS as u32 - 1) / slots(self.class)) as u8,
        };
        if bin == chunk.bin {
            return;
        }
        self.unlink(chunks, at);
        chunks[at as usize].bin = bin;
        if bin != NO_BIN {
            let next = core::mem::replace(&mut self.bins[usize::from(bin)], at);
            (chunks[at as usize].prev, chunks[at as usize].next) = (NONE, next);
            if next != NONE {
                chunks[next as usize].prev = at;
            }
        }
    }

    fn unlink(&mut self, chunks: &mut [Chunk], at: u32) {
        let Chunk { prev, next, .. } = chunks[at as usize];
        let bin = core::mem::replace(&mut chunks[at as usize].bin, NO_BIN);
        if bin == NO_BIN {
            return;
        }
        match prev {
            NONE => self.bins[usize::from(bin)] = next,
            prev => chunks[prev as usize].next = next,
        }
        if next != NONE {
            chunks[next as usize].prev = prev;
        }
    }

    /// Panics unless the counts agree.
    pub(super) fn assert_valid(&self, chunks: &[Chunk]) {
        let ours = || chunks.iter().filter(|chunk| chunk.is_there() && chunk.class == self.class);
        let free = ours().filter(|chunk| !chunk.leaves).map(Chunk::free).sum::<u32>();
        assert_eq!(free, self.free, "free slots are counted");
        for chunk in ours() {
            assert_eq!(chunk.bin == NO_BIN, chunk.free() == 0, "what has room can be found");
            assert_eq!(chunk.bin == LEAVING, chunk.leaves && chunk.free() != 0, "what is to be emptied comes last");
        }
    }
}
