//! Keys that left, remembered for a while: a miss on one of them says which queue was too short.
//!
//! A table of four-byte slots in buckets of four: sixteen bits of the key's hash, and when it left, on a clock that ticks by
//! evictions. A bucket that is full forgets its oldest. A ghost counts as long as no more entries left by the same queue since than the
//! cache holds. Two keys in 16,000 are taken for each other; that costs one wrong guess each.
//!
//! There is no table until something is evicted. It follows the number of entries, up and down, and every entry is charged for its
//! part of it ([`BYTES_PER_ENTRY`]): when memory is short is when ghosts are made, and no time to ask for more.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::RwLock;

use super::queues::Queue;

/// Slots of a bucket.
const WAYS: usize = 4;
/// Slots for each entry that the cache holds: two queues' ghosts, and room for the uneven filling of buckets.
const SLOTS_PER_ENTRY: usize = 3;
/// What a table costs an entry.
pub(super) const BYTES_PER_ENTRY: usize = SLOTS_PER_ENTRY * size_of::<AtomicU32>();
/// A table that is so many times too large is made smaller, and one that is as much too small, larger.
const SLACK_MAX: usize = 2;
/// Slots of the smallest table.
const SLOTS_MIN: usize = 64;
/// Times on a slot's clock, of which half are past: so finely can age be told.
const TIMES: u64 = 1 << 13;

/// See the module.
#[derive(Default)]
pub(super) struct Ghosts {
    table: RwLock<Table>,
    /// Evictions so far, by queue.
    left: [AtomicU64; 2],
}

#[derive(Default)]
struct Table {
    slots: Box<[AtomicU32]>,
    /// Evictions in one tick of a slot's clock.
    tick: u64,
}

impl Ghosts {
    /// Remembers the key of this hash, which left by `queue` a cache that holds `len` entries.
    pub(super) fn remember(&self, hash: u64, queue: Queue, len: usize) {
        let left = self.left[queue as usize].fetch_add(1, Ordering::Relaxed); // Relaxed: a clock, not a guard.
        let mut table = self.table.read();
        if !table.fits(len) {
            drop(table);
            self.table.write().resize(len);
            table = self.table.read();
        }
        table.put(hash, queue, left);
    }

    /// Brings the line of a hash closer.
    pub(super) fn prefetch(&self, hash: u64) {
        let table = self.table.read();
        if !table.slots.is_empty() {
            lowwater_lru_core::prefetch(&table.bucket(hash)[0]);
        }
    }

    /// Bytes of the table.
    pub(super) fn footprint(&self) -> usize {
        size_of_val(&*self.table.read().slots)
    }

    /// Forgets everything, and gives the memory back.
    pub(super) fn forget(&self) {
        *self.table.write() = Table::default();
    }

    /// The queue by which the key of this hash left, if that was not long ago; it is forgotten.
    pub(super) fn take(&self, hash: u64, len: usize) -> Option<Queue> {
        let table = self.table.read();
        if table.slots.is_empty() {
            return None;
        }
        let left = [Queue::Probation, Queue::Main].map(|queue| {
            // Relaxed: as above.
            self.left[queue as usize].load(Ordering::Relaxed)
        });
        table.take(hash, left, len as u64)
    }
}

impl Table {
    /// Is the table large enough for a cache of so many entries, and not much larger?
    fn fits(&self, len: usize) -> bool {
        let want = len * SLOTS_PER_ENTRY;
        self.slots.len() >= want / SLACK_MAX
            && (SLOTS_MIN..=SLACK_MAX * want.max(SLOTS_MIN)).contains(&self.slots.len())
    }

    fn resize(&mut self, len: usize) {
        if self.fits(len) {
            return; // Another thread was faster.
        }
        let slots = (len * SLOTS_PER_ENTRY).next_multiple_of(WAYS).max(SLOTS_MIN);
        // What was remembered is forgotten: the clock ticks differently now.
        self.slots = (0..slots).map(|_| AtomicU32::new(0)).collect();
        self.tick = (slots as u64 * 2 / TIMES).max(1);
    }

    fn put(&self, hash: u64, queue: Queue, left: u64) {
        let now = self.time(left);
        let ghost = pack(hash, queue, now);
        let bucket = self.bucket(hash);
        // Relaxed, all of these: a slot stands for itself; of two who write one, either may win.
        let age = |slot: &AtomicU32| match slot.load(Ordering::Relaxed) {
            0 => TIMES as u32,
            old => age(now, old),
        };
        if let Some(oldest) = bucket.iter().max_by_key(|slot| age(slot)) {
            oldest.store(ghost, Ordering::Relaxed);
        }
    }

    fn take(&self, hash: u64, left: [u64; 2], len: u64) -> Option<Queue> {
        for slot in self.bucket(hash) {
            // Relaxed: as in `put`.
            let ghost = slot.load(Ordering::Relaxed);
            if ghost == 0 || ghost >> 16 != tag(hash) {
                continue;
            }
            let queue = if ghost & QUEUE == 0 { Queue::Probation } else { Queue::Main };
            slot.store(0, Ordering::Relaxed);
            let age = u64::from(age(self.time(left[queue as usize]), ghost)) * self.tick;
            return (age <= len).then_some(queue);
        }
        None
    }

    fn time(&self, left: u64) -> u32 {
        (left / self.tick % TIMES) as u32
    }

    fn bucket(&self, hash: u64) -> &[AtomicU32] {
        let buckets = self.slots.len() / WAYS;
        // Any number of buckets: the low half of the hash, taken as a fraction of them.
        let first = (((hash & 0xffff_ffff) * buckets as u64) >> 32) as usize * WAYS;
        &self.slots[first..first + WAYS]
    }
}

// A slot: tag 16 | taken 1 | queue 1 | time 13 (with a bit to spare); 0 is none, which `TAKEN` keeps others from being.
const TAKEN: u32 = 1 << 15;
const QUEUE: u32 = 1 << 14;

fn pack(hash: u64, queue: Queue, time: u32) -> u32 {
    tag(hash) << 16 | TAKEN | if queue == Queue::Main { QUEUE } else { 0 } | time
}

/// Other bits than those that choose the bucket.
fn tag(hash: u64) -> u32 {
    (hash >> 48) as u32
}

/// Ticks between then and now, on a clock that goes round.
fn age(now: u32, ghost: u32) -> u32 {
    now.wrapping_sub(ghost) % TIMES as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u64) -> u64 {
        (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32) ^ n << 40
    }

    #[test]
    fn a_ghost_is_found_once_with_its_queue_and_forgotten_in_time() {
        let ghosts = Ghosts::default();
        assert_eq!(ghosts.take(hash(1), 1000), None);
        ghosts.remember(hash(1), Queue::Probation, 1000);
        ghosts.remember(hash(2), Queue::Main, 1000);
        assert_eq!(ghosts.take(hash(1), 1000), Some(Queue::Probation));
        assert_eq!(ghosts.take(hash(1), 1000), None);
        assert_eq!(ghosts.take(hash(2), 1000), Some(Queue::Main));
        ghosts.remember(hash(3), Queue::Main, 1000);
        for n in 10..1_500 {
            ghosts.remember(hash(n), Queue::Main, 1000);
        }
        assert_eq!(ghosts.take(hash(3), 1000), None, "more left since than the cache holds");
        let found = (500..1_500).filter(|&n| ghosts.take(hash(n), 1000).is_some()).count();
        assert!(found > 900, "of the last 1,000, {found} are remembered");
    }

    #[test]
    fn the_table_follows_the_number_of_entries() {
        let ghosts = Ghosts::default();
        let slots = || ghosts.table.read().slots.len();
        let mut n = 0;
        for (len, expected) in
            [(0, 64), (10, 64), (1_000, 3_000), (2_000, 3_000), (3_000, 9_000), (100, 300), (50, 300), (0, 64)]
        {
            n += 1;
            ghosts.remember(hash(n), Queue::Main, len);
            assert_eq!(slots(), expected, "for {len} entries");
        }
        ghosts.forget();
        assert_eq!(slots(), 0);
        assert_eq!(ghosts.take(hash(n), 100), None);
    }
}
