//! The ghosts of a runtime: keys that were evicted, remembered for a while. An insert of one of them says which queue of its
//! tenant was too short, and that the tenant would use more memory.
//!
//! One table for all caches: so how far a ghost reaches does not depend on how much its cache holds now, and a cache that has next
//! to nothing can show that it would use more. The hash of a key is mixed with a number of its tenant, so that nobody meets
//! another's ghosts.
//!
//! A table of four-byte slots, two in a word, in buckets of four words:
//!
//! ```text
//!     word    second slot | first        the first slot of the first word came last
//!     slot    tag 16 | queue 1 | time 15        all zero: none
//! ```
//!
//! The tag is a part of the key's hash; the time, when it left, on the clock of its tenant, which says how long it counts: 15 bits,
//! so that a tenant with a thousandth of the budget can tell times of its own. A bucket that is full forgets what came first; of
//! eight slots that happens later than of four, so two for each entry do. One new key in 8,000 finds its tag in a full bucket
//! though it was never there: a wrong guess. (Three slots of 21 bits were weighed: they remember more, but with a tag of 12 bits
//! one scanned key in 340 is taken for one that came back.) A bucket is half a line of the processor's cache, so that it never
//! lies in two.
//!
//! There is no table until something is evicted. It follows the number of entries of all caches, up and down, and every entry is charged for its
//! part of it ([`BYTES_PER_ENTRY`]): when memory is short is when ghosts are made, and no time to ask for more. A large one is the system's:
//! its memory comes as it is touched, in huge pages, so that no insert has to wait for all of it to be cleared; that of one that was replaced
//! goes back a part at a time. Readers of the table write nothing that others write.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use lowwater_base::ZeroedAtomics;
use lowwater_rcu::{pin, Guard, RcuCell};
use parking_lot::Mutex;

/// Slots of a word.
const SLOTS_OF_WORD: usize = 2;
/// Words of a bucket.
const WORDS: usize = 4;
/// Entries that the cache holds for each bucket. So each has two slots.
const ENTRIES_PER_BUCKET: usize = 4;
/// What a table costs an entry.
pub(crate) const BYTES_PER_ENTRY: usize = WORDS * size_of::<u64>() / ENTRIES_PER_BUCKET;
/// A table that is so many times too large is made smaller, and one that is as much too small, larger. Then it begins empty.
const SLACK_MAX: usize = 2;
/// Buckets of the smallest table.
const BUCKETS_MIN: usize = 32;
/// A part of a table that was replaced goes back for so many ghosts: one in an insert, which lets go of as many, as it may take 50 us, and
/// interrupt others.
const GHOSTS_PER_PART: u32 = 8;
/// Times on the clock of a ghost, after which they begin again.
pub(crate) const TIMES: u32 = 1 << 15;

/// An entry that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ghost {
    /// Whether the main queue let it go, and not probation.
    pub(crate) is_main: bool,
    /// When, on its tenant's clock; less than [`TIMES`].
    pub(crate) time: u32,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Ghosts {
    table: RcuCell<Table>,
    /// Entries of all caches, when they were last counted.
    entries: AtomicUsize,
}

struct Table {
    words: ZeroedAtomics,
    waste: Arc<Waste>,
}

/// Tables that were replaced, given back a part at a time.
#[derive(Default)]
struct Waste {
    tables: Mutex<Vec<ZeroedAtomics>>,
    /// Is there any? Only so that the lock is mostly not asked for.
    some: AtomicBool,
    /// Ghosts since there was.
    ghosts: AtomicU32,
}

/// The table as it is when this is made.
#[derive(Clone, Copy)]
pub(crate) struct Known<'g>(Option<&'g Table>);

/// See the module.
#[derive(Clone, Copy)]
struct Bucket<'g>(&'g [AtomicU64; WORDS]);

impl Ghosts {
    /// The table, for as long as the guard is there.
    #[inline]
    pub(crate) fn known<'g>(&'g self, guard: &'g Guard) -> Known<'g> {
        Known(self.table.load(guard))
    }

    /// A cache that had `before` entries when it last said so has `now`. When there are none at all, everything is forgotten, and
    /// the memory given back.
    pub(crate) fn note_entries(&self, before: usize, now: usize) {
        if now == before {
            return;
        }
        // Relaxed, here and below: a number that says how large a table is to be. It wraps to the right sum.
        let change = now.wrapping_sub(before);
        if self.entries.fetch_add(change, Ordering::Relaxed).wrapping_add(change) == 0 {
            self.table.clear(&pin());
        }
    }

    /// Entries of all caches. What one thread has noted and another has not yet may make the sum less than nothing for a moment.
    fn len(&self) -> usize {
        usize::try_from(self.entries.load(Ordering::Relaxed).cast_signed()).unwrap_or(0)
    }

    /// Sees to it that there is a table, large enough for the entries of all caches, and not too large. Without memory there
    /// is none, or the one that was.
    pub(crate) fn fit(&self) {
        let len = self.len();
        let guard = pin();
        let there = self.table.load(&guard);
        if !there.is_some_and(|table| fits(table.buckets().len(), len)) {
            self.resize(there, len, &guard);
        }
    }

    /// Bytes of the table.
    pub(crate) fn footprint(&self) -> usize {
        let guard = pin();
        self.table
            .load(&guard)
            .map_or(0, |table| size_of::<Table>() + table.words.footprint().get() as usize + table.waste.footprint())
    }

    #[cold]
    fn resize(&self, there: Option<&Table>, len: usize, guard: &Guard) {
        let Some(words) = ZeroedAtomics::try_new(buckets_for(len) * WORDS) else { return };
        let waste = there.map_or_else(Arc::default, |table| Arc::clone(&table.waste));
        // Another thread may be faster; then its table is as good.
        let _is_ours = self.table.replace(there, Table { words, waste }, guard);
    }
}

impl Known<'_> {
    /// Remembers the key of this hash.
    pub(crate) fn remember(self, hash: u64, ghost: Ghost) {
        // None: there was no memory for it.
        if let Some(table) = self.0 {
            table.bucket(hash).remember(hash, ghost);
            table.waste.free_some();
        }
    }

    /// What is known of the key of this hash; it is forgotten.
    #[inline]
    pub(crate) fn take(self, hash: u64) -> Option<Ghost> {
        self.0?.bucket(hash).take(hash)
    }

    /// Brings the line of a hash closer.
    #[inline]
    pub(crate) fn prefetch(self, hash: u64) {
        if let Some(table) = self.0 {
            // It lies in one line.
            lowwater_base::prefetch::prefetch(&table.bucket(hash).0[0]);
        }
    }
}

impl Drop for Table {
    /// With a table in its place its memory is given back by those who use that; else at once.
    fn drop(&mut self) {
        self.waste.take(std::mem::take(&mut self.words));
    }
}

impl Waste {
    fn take(&self, words: ZeroedAtomics) {
        self.tables.lock().push(words);
        // Relaxed, here and below: a hint.
        self.some.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn free_some(&self) {
        if self.some.load(Ordering::Relaxed) {
            self.free_some_slow();
        }
    }

    #[cold]
    fn free_some_slow(&self) {
        if !self.ghosts.fetch_add(1, Ordering::Relaxed).is_multiple_of(GHOSTS_PER_PART) {
            return;
        }
        let Some(mut tables) = self.tables.try_lock() else { return };
        let Some(mut last) = tables.pop() else { return self.some.store(false, Ordering::Relaxed) };
        if last.shrink() {
            tables.push(last);
        }
    }

    fn footprint(&self) -> usize {
        let tables = self.tables.lock();
        let words = tables.iter().map(|words| words.footprint().get() as usize).sum::<usize>();
        size_of::<Self>() + tables.capacity() * size_of::<ZeroedAtomics>() + words
    }
}

impl Table {
    /// Of any number of buckets: the low half of the hash, taken as a fraction of them.
    #[inline]
    fn bucket(&self, hash: u64) -> Bucket<'_> {
        let buckets = self.buckets();
        let at = ((hash & 0xffff_ffff) * buckets.len() as u64) >> 32;
        Bucket(&buckets[at as usize])
    }

    #[inline]
    fn buckets(&self) -> &[[AtomicU64; WORDS]] {
        self.words.as_chunks().0
    }
}

fn buckets_for(len: usize) -> usize {
    len.div_ceil(ENTRIES_PER_BUCKET).max(BUCKETS_MIN)
}

/// Are so many buckets enough for so many entries, and not many more?
fn fits(buckets: usize, len: usize) -> bool {
    let want = buckets_for(len);
    (want / SLACK_MAX..=want * SLACK_MAX).contains(&buckets)
}

impl Bucket<'_> {
    /// Puts a ghost before all others. Up to the first word with room they move on by a slot; without one, the last is forgotten.
    fn remember(self, hash: u64, ghost: Ghost) {
        // Relaxed, all of these, and in `take`: a word stands for itself; of two who write a bucket, either may win.
        let mut moved = tag(hash) << TAG_SHIFT | pack(ghost);
        for (at, word) in self.0.iter().enumerate() {
            // Memory that is first read is first the system's page of zeros, and the write after it interrupts all who may have seen that: so
            // the first touch writes.
            let there = if at == 0 { word.swap(moved, Ordering::Relaxed) } else { word.load(Ordering::Relaxed) };
            word.store(there << SLOT | moved, Ordering::Relaxed);
            moved = there >> (u64::BITS - SLOT);
            if moved == 0 {
                break;
            }
        }
    }

    /// The ghost of this hash, which is there no longer. What came before it in its word moves back, so that the room is at the word's end.
    fn take(self, hash: u64) -> Option<Ghost> {
        // Once in each slot.
        let wanted = (tag(hash) << TAG_SHIFT) * (u64::MAX / SLOT_MASK);
        for word in self.0 {
            let there = word.load(Ordering::Relaxed);
            let differs = there ^ wanted;
            for at in (0..u64::BITS).step_by(SLOT as usize) {
                if differs & TAG << at == 0 {
                    let younger = there & ((1 << at) - 1);
                    word.store(younger | (there >> at >> SLOT) << at, Ordering::Relaxed);
                    return Some(unpack(there >> at));
                }
            }
        }
        None
    }
}

/// Bits of a slot.
const SLOT: u32 = u64::BITS / SLOTS_OF_WORD as u32;
const SLOT_MASK: u64 = (1 << SLOT) - 1;
const QUEUE: u64 = TIMES as u64;
const TAG_SHIFT: u32 = QUEUE.ilog2() + 1;
const TAG: u64 = SLOT_MASK >> TAG_SHIFT << TAG_SHIFT;

/// Other bits than those that choose the bucket; never 0, which is no ghost's.
fn tag(hash: u64) -> u64 {
    (hash >> (u64::BITS - SLOT + TAG_SHIFT)).max(1)
}

fn pack(ghost: Ghost) -> u64 {
    u64::from(ghost.time % TIMES) | if ghost.is_main { QUEUE } else { 0 }
}

fn unpack(slot: u64) -> Ghost {
    Ghost { is_main: slot & QUEUE != 0, time: slot as u32 % TIMES }
}

#[cfg(test)]
mod tests;
