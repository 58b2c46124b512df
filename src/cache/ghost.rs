//! Keys that left, remembered for a while: an insert of one of them says which queue was too short, and who needs more memory.
//!
//! A table of four-byte slots in buckets of four: sixteen bits of the key's hash, the queue, and when it left, on its
//! [tenant](super::tenant)'s clock, who says how long it counts. A bucket that is full forgets what came first. Two keys in 16,000 are
//! taken for each other; that costs one wrong guess each.
//!
//! There is no table until something is evicted. It follows the number of entries, up and down, and every entry is charged for its
//! part of it ([`BYTES_PER_ENTRY`]): when memory is short is when ghosts are made, and no time to ask for more. It is made of blocks, each
//! when it is first needed, so that no insert has to wait for a large one to be cleared; those of one that was replaced are freed as they
//! were made, a few at a time. Readers of the table write nothing that others write.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

use super::queues::Queue;

/// Slots of a bucket.
const WAYS: usize = 4;
/// Slots for each entry that the cache holds: two queues' ghosts, and room for the uneven filling of buckets.
const SLOTS_PER_ENTRY: usize = 3;
/// What a table costs an entry.
pub(super) const BYTES_PER_ENTRY: usize = SLOTS_PER_ENTRY * size_of::<AtomicU32>();
/// A table that is so many times too large is made smaller, and one that is as much too small, larger. Then it begins empty.
const SLACK_MAX: usize = 2;
/// Slots of a block, at most: 16 KiB.
const BLOCK: usize = 1 << 12;
/// Slots of the smallest table.
const SLOTS_MIN: usize = 64;
/// Blocks of a table that was replaced which are freed for each ghost.
const WASTE_PER_GHOST: usize = 2;
/// Times on the clock of a ghost, after which they begin again.
pub(super) const TIMES: u32 = 1 << 13;

/// An entry that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ghost {
    /// Which queue let it go.
    pub(super) queue: Queue,
    /// When, on its tenant's clock; less than [`TIMES`].
    pub(super) time: u32,
}

/// See the module.
#[derive(Default)]
pub(super) struct Ghosts {
    table: ArcSwapOption<Table>,
}

type Block = Box<[AtomicU32]>;

struct Table {
    slots: usize,
    blocks: Vec<OnceLock<Block>>,
    waste: Arc<Waste>,
}

/// Blocks of tables that were replaced, freed a few at a time.
#[derive(Default)]
struct Waste {
    blocks: Mutex<Vec<OnceLock<Block>>>,
    /// Is there any? Only so that the lock is mostly not asked for.
    some: AtomicBool,
}

/// The table as it is when this is made: to be asked for once for all that is done in one go, as that costs more than what is done.
pub(super) struct Known(Guard<Option<Arc<Table>>>);

impl Ghosts {
    /// The table, for who asks.
    pub(super) fn known(&self) -> Known {
        Known(self.table.load())
    }

    /// The table, for who remembers keys that leave a cache of `len` entries: large enough, and not too large.
    pub(super) fn known_for(&self, len: usize) -> Known {
        let known = self.known();
        if known.0.as_ref().is_some_and(|table| fits(table.slots, len)) {
            return known;
        }
        drop(known);
        self.resize(len);
        self.known()
    }

    /// Bytes of the table.
    pub(super) fn footprint(&self) -> usize {
        self.table.load().as_ref().map_or(0, |table| {
            let blocks =
                table.blocks.iter().filter_map(OnceLock::get).map(|block| size_of_val(&**block)).sum::<usize>();
            size_of::<Table>()
                + table.blocks.capacity() * size_of::<OnceLock<Block>>()
                + blocks
                + table.waste.footprint()
        })
    }

    /// Forgets everything, and gives the memory back.
    pub(super) fn forget(&self) {
        self.table.store(None);
    }

    fn resize(&self, len: usize) {
        let old = self.table.load();
        if old.as_ref().is_some_and(|table| fits(table.slots, len)) {
            return;
        }
        let slots = (len * SLOTS_PER_ENTRY).next_multiple_of(WAYS).max(SLOTS_MIN);
        let blocks = (0..slots.div_ceil(BLOCK)).map(|_| OnceLock::new()).collect();
        let waste = old.as_ref().map_or_else(Arc::default, |table| Arc::clone(&table.waste));
        // Another thread may have been faster; then its table is as good.
        self.table.compare_and_swap(&old, Some(Arc::new(Table { slots, blocks, waste })));
    }
}

impl Known {
    /// Remembers the key of this hash.
    pub(super) fn remember(&self, hash: u64, ghost: Ghost) {
        // None: everything was just forgotten.
        if let Some(table) = &*self.0 {
            table.remember(hash, ghost);
            table.waste.free_some();
        }
    }

    /// What is known of the key of this hash; it is forgotten.
    pub(super) fn take(&self, hash: u64) -> Option<Ghost> {
        // Relaxed: as in `Table::remember`.
        self.0.as_ref()?.bucket_if_there(hash)?.iter().find_map(|slot| {
            let ghost = unpack(hash, slot.load(Ordering::Relaxed))?;
            slot.store(0, Ordering::Relaxed);
            Some(ghost)
        })
    }

    /// Brings the line of a hash closer.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(bucket) = self.0.as_ref().and_then(|table| table.bucket_if_there(hash)) {
            lowwater_lru_core::prefetch(&bucket[0]);
        }
    }
}

impl Drop for Table {
    /// With a table in its place its blocks are freed by those who use that; else at once.
    fn drop(&mut self) {
        self.waste.take(std::mem::take(&mut self.blocks));
    }
}

impl Waste {
    fn take(&self, mut more: Vec<OnceLock<Block>>) {
        self.blocks.lock().append(&mut more);
        // Relaxed, here and below: a hint.
        self.some.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn free_some(&self) {
        if !self.some.load(Ordering::Relaxed) {
            return;
        }
        let Some(mut blocks) = self.blocks.try_lock() else { return };
        let some: [_; WASTE_PER_GHOST] = std::array::from_fn(|_| blocks.pop());
        self.some.store(!blocks.is_empty(), Ordering::Relaxed);
        drop(blocks);
        drop(some);
    }

    fn footprint(&self) -> usize {
        let blocks = self.blocks.lock();
        let full = blocks.iter().filter_map(OnceLock::get).map(|block| size_of_val(&**block)).sum::<usize>();
        size_of::<Self>() + blocks.capacity() * size_of::<OnceLock<Block>>() + full
    }
}

impl Table {
    /// Of any number of buckets: the low half of the hash, taken as a fraction of them. Block, and place of the bucket's first slot there.
    fn place(&self, hash: u64) -> (usize, usize) {
        let buckets = (self.slots / WAYS) as u64;
        let first = (((hash & 0xffff_ffff) * buckets) >> 32) as usize * WAYS;
        (first / BLOCK, first % BLOCK)
    }

    fn remember(&self, hash: u64, ghost: Ghost) {
        // Relaxed, all of these: a slot stands for itself; of two who write a bucket, either may win.
        let mut moved = pack(hash, ghost);
        for slot in self.bucket(hash) {
            let there = slot.load(Ordering::Relaxed);
            slot.store(moved, Ordering::Relaxed);
            if there == 0 {
                break;
            }
            moved = there;
        }
    }

    fn bucket(&self, hash: u64) -> &[AtomicU32] {
        let (block, first) = self.place(hash);
        let slots = (self.slots - block * BLOCK).min(BLOCK);
        let block = self.blocks[block].get_or_init(|| (0..slots).map(|_| AtomicU32::new(0)).collect());
        &block[first..first + WAYS]
    }

    fn bucket_if_there(&self, hash: u64) -> Option<&[AtomicU32]> {
        let (block, first) = self.place(hash);
        Some(&self.blocks.get(block)?.get()?[first..first + WAYS])
    }
}

/// Are so many slots enough for so many entries, and not many more?
fn fits(slots: usize, len: usize) -> bool {
    let want = len * SLOTS_PER_ENTRY;
    slots >= want / SLACK_MAX && (SLOTS_MIN..=SLACK_MAX * want.max(SLOTS_MIN)).contains(&slots)
}

// A slot: tag 16 | taken 1 | queue 1 | time 13 (with a bit to spare); 0 is none, which `TAKEN` keeps others from being.
const TAKEN: u32 = 1 << 15;
const QUEUE: u32 = 1 << 14;

fn pack(hash: u64, ghost: Ghost) -> u32 {
    tag(hash) << 16 | TAKEN | if ghost.queue == Queue::Main { QUEUE } else { 0 } | (ghost.time % TIMES)
}

fn unpack(hash: u64, slot: u32) -> Option<Ghost> {
    let queue = if slot & QUEUE == 0 { Queue::Probation } else { Queue::Main };
    (slot != 0 && slot >> 16 == tag(hash)).then_some(Ghost { queue, time: slot % TIMES })
}

/// Other bits than those that choose the bucket.
fn tag(hash: u64) -> u32 {
    (hash >> 48) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u64) -> u64 {
        (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32) ^ n << 40
    }

    fn left(time: u32) -> Ghost {
        Ghost { queue: Queue::Probation, time }
    }

    #[test]
    fn a_ghost_is_found_once_with_its_queue_and_time() {
        let ghosts = Ghosts::default();
        assert_eq!(ghosts.known().take(hash(1)), None);
        for n in 0..5_000 {
            let queue = if n % 3 == 0 { Queue::Main } else { Queue::Probation };
            ghosts.known_for(5_000).remember(hash(n), Ghost { queue, time: n as u32 });
        }
        let found = (0..5_000).filter_map(|n| Some((n, ghosts.known().take(hash(n))?))).collect::<Vec<_>>();
        assert!(found.len() > 4_500, "{}", found.len());
        for (n, ghost) in found {
            assert_eq!((ghost.queue == Queue::Main, ghost.time), (n % 3 == 0, n as u32));
            assert_eq!(ghosts.known().take(hash(n)), None);
        }
    }

    #[test]
    fn a_full_bucket_forgets_what_came_first() {
        let ghosts = Ghosts::default();
        // The same low bits, other high ones.
        let key = |n: u64| n << 48 | 5;
        (1..=6).for_each(|n| ghosts.known_for(10).remember(key(n), left(n as u32)));
        let known: Vec<_> = (1..=6).filter(|&n| ghosts.known().take(key(n)).is_some()).collect();
        assert_eq!(known, [3, 4, 5, 6]);
    }

    #[test]
    fn who_remembers_and_who_forgets_may_meet() {
        let ghosts = Ghosts::default();
        std::thread::scope(|s| {
            for t in 0..2 {
                let ghosts = &ghosts;
                s.spawn(move || (0..5_000).for_each(|n| ghosts.known_for(10).remember(hash(2 * n + t), left(0))));
            }
            (0..5_000).for_each(|_| ghosts.forget());
        });
        ghosts.known_for(10).remember(hash(1), left(7));
        assert_eq!(ghosts.known().take(hash(1)), Some(left(7)));
    }

    #[test]
    fn the_table_follows_the_number_of_entries() {
        let ghosts = Ghosts::default();
        let slots = || ghosts.table.load().as_ref().map_or(0, |table| table.slots);
        let mut n = 0;
        for (len, expected) in
            [(0, 64), (10, 64), (1_000, 3_000), (2_000, 3_000), (3_000, 9_000), (100, 300), (50, 300), (0, 64)]
        {
            n += 1;
            ghosts.known_for(len).remember(hash(n), left(0));
            assert_eq!(slots(), expected, "for {len} entries");
            assert!(ghosts.known().take(hash(n)).is_some());
        }
        ghosts.forget();
        assert_eq!((slots(), ghosts.footprint()), (0, 0));
        assert_eq!(ghosts.known().take(hash(n)), None);
    }

    #[test]
    fn a_table_that_was_replaced_is_freed_a_few_blocks_at_a_time() {
        let ghosts = Ghosts::default();
        let large = 100 * BLOCK / SLOTS_PER_ENTRY;
        (0..20_000).for_each(|n| ghosts.known_for(large).remember(hash(n), left(0)));
        let full = ghosts.footprint();
        assert!(full > 90 * BLOCK * 4, "every block is there: {full} bytes");
        ghosts.known_for(1_000).remember(hash(0), left(0));
        let replaced = ghosts.footprint();
        assert!(replaced > full - 3 * BLOCK * 4, "{replaced} of {full} bytes are waste");
        (0..60).for_each(|n| ghosts.known_for(1_000).remember(hash(n), left(0)));
        assert!(ghosts.footprint() < full / 50, "{} bytes", ghosts.footprint());
    }

    #[test]
    fn who_remembers_beside_one_who_forgets_is_not_harmed() {
        let ghosts = Ghosts::default();
        std::thread::scope(|s| {
            s.spawn(|| (0..2_000).for_each(|_| ghosts.forget()));
            for _ in 0..2 {
                s.spawn(|| (0..20_000).for_each(|n| ghosts.known_for(n as usize % 5_000).remember(hash(n), left(0))));
            }
        });
        ghosts.known_for(10).remember(hash(1), left(7));
        assert_eq!(ghosts.known().take(hash(1)), Some(left(7)));
    }
}
