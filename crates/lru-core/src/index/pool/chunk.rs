//! A chunk: which of its slots are out.

use super::{slots, Pool, GEOMETRY};
use crate::index::segment::{bytes, Class, Segment};
use crate::slab::{Binned, Joint, Memory};
use core::ptr::NonNull;

/// What a segment's address leads to. Never changes while the chunk is there.
#[repr(align(64))]
pub(super) struct Header {
    pub(super) pool: *mut Pool,
    pub(super) number: u32,
}

/// What is known of a chunk.
pub(super) struct Chunk {
    pub(super) memory: Option<Memory>,
    /// One bit for each slot that is out.
    pub(super) out: u64,
    pub(super) class: Class,
    /// Is it to be emptied, so that nothing is put in it while there is room elsewhere?
    pub(super) leaves: bool,
    pub(super) joint: Joint,
}

impl Binned for Chunk {
    fn joint(&mut self) -> &mut Joint {
        &mut self.joint
    }
}

impl Chunk {
    pub(super) fn new(memory: Memory, class: Class) -> Self {
        Self { memory: Some(memory), out: 0, class, leaves: false, joint: Joint::new() }
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
        let slot = (address % GEOMETRY.full - size_of::<Header>()) / bytes(self.class);
        self.out &= !(1 << slot);
    }

    pub(super) fn slot(&self, slot: u32) -> NonNull<Segment> {
        let base = self.memory.as_ref().expect("a chunk in a bin has memory").base;
        // SAFETY: the chunk has so many slots of this size behind its header.
        unsafe { base.add(size_of::<Header>() + slot as usize * bytes(self.class)) }.cast()
    }
}
