//! The ends of the times to live of records that also have an idle time.
//!
//! A record's four bytes hold its idle deadline, which must not be extended beyond the end of its
//! time to live. Few caches have both times, so the ends are outside of the records: four bytes for
//! each, in blocks by the records' addresses. An end belongs to the record that is in the slot, and
//! is stored again for the next one, so a removal leaves it as it is.
//!
//! A sweep of the reaper visits all records, and at its end frees the blocks in which it has found
//! no live record with an idle deadline, and no end was stored meanwhile. A thread that is held up
//! for a sweep between storing an end and inserting its record may lose the end: then the record's
//! deadline is not extended.
//!
//! A change must ensure that a record without a stored end is not extended.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dashmap::DashMap;
use hashbrown::DefaultHashBuilder;

use super::deadline::Deadline;

/// Bytes of memory whose records' ends are in one block.
const BLOCK: usize = 64 << 10;
/// The place of a record whose end is not stored: no end has these bits, as no end is an idle
/// deadline.
const NOT_STORED: u32 = u32::MAX;

/// The ends of all records of a cache.
#[derive(Debug)]
pub(super) struct LiveEnds {
    blocks: DashMap<usize, Block, DefaultHashBuilder>,
    /// The size of a record: two records are at least this far apart.
    record_bytes: usize,
}

#[derive(Debug)]
struct Block {
    /// The ends, as [`Deadline::raw`], by the place of the record.
    ends: Box<[AtomicU32]>,
    /// Whether an end was stored, or a record was visited, since the last
    /// [`begin`](LiveEnds::begin).
    is_used: AtomicBool,
}

impl Block {
    fn new(ends: usize) -> Self {
        let ends = std::iter::repeat_with(|| AtomicU32::new(NOT_STORED)).take(ends).collect();
        Self { ends, is_used: AtomicBool::new(true) }
    }

    fn set(&self, place: usize, end: Deadline) {
        // Relaxed: ordered by the lock of the record's segment, under which the record enters the
        // index and its deadline is changed.
        self.ends[place].store(end.raw(), Ordering::Relaxed);
        self.mark();
    }

    fn mark(&self) {
        // Relaxed: ordered by the map's lock.
        self.is_used.store(true, Ordering::Relaxed);
    }
}

impl LiveEnds {
    pub(super) fn new(record_bytes: usize) -> Self {
        Self { blocks: DashMap::default(), record_bytes }
    }

    /// Returns the block of an address, and the place in it.
    fn place(&self, address: usize) -> (usize, usize) {
        (address / BLOCK, address % BLOCK / self.record_bytes)
    }

    /// Stores the end of the record at this address.
    pub(super) fn set(&self, address: usize, end: Deadline) {
        let (block, place) = self.place(address);
        if let Some(there) = self.blocks.get(&block) {
            return there.set(place, end);
        }
        self.blocks.entry(block).or_insert_with(|| Block::new(BLOCK.div_ceil(self.record_bytes))).set(place, end);
    }

    /// Returns the end of the record at this address; none if the record has no stored end.
    pub(super) fn get(&self, address: usize) -> Option<Deadline> {
        let (block, place) = self.place(address);
        // Relaxed: as in `Block::set`.
        let end = self.blocks.get(&block)?.ends[place].load(Ordering::Relaxed);
        (end != NOT_STORED).then(|| Deadline::from_raw(end))
    }

    /// Notes that there is a record at this address.
    pub(super) fn mark(&self, address: usize) {
        if let Some(there) = self.blocks.get(&self.place(address).0) {
            there.mark();
        }
    }

    /// Begins a sweep: no block counts as used.
    pub(super) fn begin(&self) {
        // Relaxed: ordered by the map's lock.
        self.blocks.iter().for_each(|block| block.is_used.store(false, Ordering::Relaxed));
    }

    /// Frees the blocks that were not used since [`begin`](Self::begin).
    pub(super) fn free_unused(&self) {
        self.blocks.retain(|_, block| *block.is_used.get_mut());
        self.blocks.shrink_to_fit();
    }

    /// Bytes of the blocks.
    pub(super) fn footprint(&self) -> usize {
        let block = size_of::<(usize, Block)>() + BLOCK.div_ceil(self.record_bytes) * size_of::<AtomicU32>();
        self.blocks.len() * block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_has_an_end_of_its_own_and_unused_blocks_are_freed() {
        // Sizes below, at and above that of a block.
        for bytes in [40, 72, 65_535, 65_536, 1 << 20] {
            let ends = LiveEnds::new(bytes);
            // The first record need not be at the begin of a block.
            let records = || (1..4_000).map(|n| (24 + n * bytes, Deadline::from_raw(n as u32)));
            records().for_each(|(address, end)| ends.set(address, end));
            assert!(records().all(|(address, end)| ends.get(address) == Some(end)), "{bytes}");
            assert!(ends.get(10 << 40).is_none(), "{bytes}");
            let all = ends.footprint();
            ends.free_unused();
            assert_eq!(ends.footprint(), all, "the blocks were used");
            ends.begin();
            ends.mark(24 + bytes);
            ends.free_unused();
            assert_eq!(ends.blocks.len(), 1, "{bytes}");
            assert_eq!(ends.get(24 + bytes), Some(Deadline::from_raw(1)), "{bytes}");
            assert_eq!(ends.get(24 + 3_999 * bytes), None, "{bytes}");
            ends.begin();
            ends.free_unused();
            assert_eq!(ends.footprint(), 0, "{bytes}");
            // The block of a neighbour that is inserted later has no end of a record that lost its
            // own.
            ends.set(24 + 2 * bytes, Deadline::from_raw(2));
            assert_eq!(ends.get(24 + bytes), None, "{bytes}");
        }
    }
}
