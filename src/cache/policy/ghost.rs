//! Keys that left, remembered for a while: an insert of one of them says which queue was too short, and who needs more memory.
//!
//! A table of four-byte slots, two in a word, in buckets of four words:
//!
//! ```text
//!     word    second slot | first        the first slot of the first word came last
//!     slot    tag 18 | queue 1 | time 13        all zero: none
//! ```
//!
//! The tag is a part of the key's hash; the time, when it left, on its [tenant](super::tenant)'s clock, who says how long it counts. A
//! bucket that is full forgets what came first; of eight slots that happens later than of four, so two for each entry do. One new key in
//! 30,000 finds its tag in a full bucket though it was never there: a wrong guess. (Three slots of 21 bits were weighed: they remember more, but
//! with a tag of 12 bits one scanned key in 340 is taken for one that came back.) A bucket is half a line of the processor's cache, so that it
//! never lies in two.
//!
//! There is no table until something is evicted. It follows the number of entries, up and down, and every entry is charged for its
//! part of it ([`BYTES_PER_ENTRY`]): when memory is short is when ghosts are made, and no time to ask for more. A large one is the system's:
//! its memory comes as it is touched, in huge pages, so that no insert has to wait for all of it to be cleared; that of one that was replaced
//! goes back a part at a time. Readers of the table write nothing that others write.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

use lowwater_lru_core::{pin, Guard, RcuCell, Words};
use parking_lot::Mutex;

use super::queue::Queue;

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
const BUCKETS_MIN: usize = 16;
/// A part of a table that was replaced goes back for so many ghosts: one in an insert, which lets go of as many, as it may take 50 us, and
/// interrupt others.
const GHOSTS_PER_PART: u32 = 8;
/// Times on the clock of a ghost, after which they begin again.
pub(crate) const TIMES: u32 = 1 << 13;

/// An entry that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ghost {
    /// Which queue let it go.
    pub(crate) queue: Queue,
    /// When, on its tenant's clock; less than [`TIMES`].
    pub(crate) time: u32,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Ghosts {
    table: RcuCell<Table>,
}

struct Table {
    words: Words,
    waste: Arc<Waste>,
}

/// Tables that were replaced, given back a part at a time.
#[derive(Default)]
struct Waste {
    tables: Mutex<Vec<Words>>,
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

    /// Sees to it that there is a table for keys that leave a cache of `len` entries: large enough, and not too large. Without memory there
    /// is none, or the one that was.
    pub(crate) fn fit(&self, len: usize) {
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

    /// Forgets everything, and gives the memory back.
    pub(crate) fn forget(&self) {
        self.table.clear(&pin());
    }

    #[cold]
    fn resize(&self, there: Option<&Table>, len: usize, guard: &Guard) {
        let Some(words) = Words::try_new(buckets_for(len) * WORDS) else { return };
        let waste = there.map_or_else(Arc::default, |table| Arc::clone(&table.waste));
        // Another thread may be faster; then its table is as good.
        let _is_ours = self.table.replace(there, Table { words, waste }, guard);
    }
}

impl Known<'_> {
    /// Remembers the key of this hash.
    pub(crate) fn remember(self, hash: u64, ghost: Ghost) {
        // None: everything was just forgotten.
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
            lowwater_lru_core::prefetch(&table.bucket(hash).0[0]);
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
    fn take(&self, words: Words) {
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
        size_of::<Self>() + tables.capacity() * size_of::<Words>() + words
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
    u64::from(ghost.time % TIMES) | if ghost.queue == Queue::Main { QUEUE } else { 0 }
}

fn unpack(slot: u64) -> Ghost {
    let queue = if slot & QUEUE == 0 { Queue::Probation } else { Queue::Main };
    Ghost { queue, time: slot as u32 % TIMES }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u64) -> u64 {
        let mixed = (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB)
    }

    fn remember(ghosts: &Ghosts, len: usize, hash: u64, ghost: Ghost) {
        ghosts.fit(len);
        ghosts.known(&pin()).remember(hash, ghost);
    }

    fn take(ghosts: &Ghosts, hash: u64) -> Option<Ghost> {
        ghosts.known(&pin()).take(hash)
    }

    fn left(time: u32) -> Ghost {
        Ghost { queue: Queue::Probation, time }
    }

    #[test]
    fn a_ghost_is_found_once_with_its_queue_and_time() {
        let ghosts = Ghosts::default();
        assert_eq!(take(&ghosts, hash(1)), None);
        let ghost = |n| {
            let queue = if n % 3 == 0 { Queue::Main } else { Queue::Probation };
            Ghost { queue, time: n as u32 % TIMES }
        };
        (0..5_000).for_each(|n| remember(&ghosts, 5_000, hash(n), ghost(n)));
        let found = (0..5_000).filter_map(|n| Some((n, take(&ghosts, hash(n))?))).collect::<Vec<_>>();
        assert!(found.len() > 4_850, "{}", found.len());
        // Those whose tag another in the bucket has may get the other's.
        let others = found.iter().filter(|&&(n, found)| found != ghost(n)).count();
        assert!(others < 3, "{others}");
        let twice = (0..5_000).filter(|&n| take(&ghosts, hash(n)).is_some()).count();
        assert!(twice < 3, "{twice}");
    }

    #[test]
    fn a_full_bucket_forgets_what_came_first() {
        let ghosts = Ghosts::default();
        // The same low bits, other high ones.
        let key = |n: u64| n << 46 | 5;
        (1..=10).for_each(|n| remember(&ghosts, 10, key(n), left(n as u32)));
        let known: Vec<_> = (1..=10).filter(|&n| take(&ghosts, key(n)) == Some(left(n as u32))).collect();
        assert_eq!(known, (3..=10).collect::<Vec<_>>());
    }

    #[test]
    fn room_that_one_leaves_is_filled_before_another_is_forgotten() {
        let key = |n: u64| n << 46 | 5;
        for gone in 1..=8 {
            let words = Default::default();
            let bucket = Bucket(&words);
            (1..=8).for_each(|n| bucket.remember(key(n), left(n as u32)));
            assert_eq!(bucket.take(key(gone)), Some(left(gone as u32)));
            bucket.remember(key(9), left(9));
            let known: Vec<_> = (1..=9).filter(|&n| bucket.take(key(n)) == Some(left(n as u32))).collect();
            assert_eq!(known, (1..=9).filter(|&n| n != gone).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_entrys_part_of_the_table_is_eight_bytes_and_no_bucket_lies_in_two_lines() {
        assert_eq!(BYTES_PER_ENTRY, 8);
        let ghosts = Ghosts::default();
        (0..50_000).for_each(|n| remember(&ghosts, 10_000, hash(n), left(0)));
        let bytes = ghosts.footprint();
        assert!((80_000..81_000).contains(&bytes), "{bytes} bytes for 10,000 entries");
        let (guard, half) = (pin(), 32);
        let table = ghosts.table.load(&guard).unwrap();
        let addresses = (0..50_000).map(|n| table.bucket(hash(n)).0.as_ptr().addr());
        assert!(addresses.into_iter().all(|address| address % half == 0));
        assert_eq!(size_of::<[AtomicU64; WORDS]>(), half);
    }

    #[test]
    fn a_key_that_was_never_there_is_seldom_found() {
        let ghosts = Ghosts::default();
        (0..50_000).for_each(|n| remember(&ghosts, 10_000, hash(n), left(0)));
        let found = (50_000..150_000).filter(|&n| take(&ghosts, hash(n)).is_some()).count();
        assert!(found < 20, "{found} of 100,000, where 3 would be chance");
    }

    #[test]
    fn who_remembers_and_who_forgets_may_meet() {
        let ghosts = Ghosts::default();
        std::thread::scope(|s| {
            for t in 0..2 {
                let ghosts = &ghosts;
                s.spawn(move || (0..5_000).for_each(|n| remember(ghosts, 10, hash(2 * n + t), left(0))));
            }
            (0..5_000).for_each(|_| ghosts.forget());
        });
        remember(&ghosts, 10, hash(1), left(7));
        assert_eq!(take(&ghosts, hash(1)), Some(left(7)));
    }

    #[test]
    fn the_table_follows_the_number_of_entries() {
        let ghosts = Ghosts::default();
        let buckets = || ghosts.table.load(&pin()).map_or(0, |table| table.buckets().len());
        let mut n = 0;
        for (len, expected) in
            [(0, 16), (10, 16), (1_000, 250), (2_000, 250), (3_000, 750), (100, 25), (50, 25), (0, 25)]
        {
            n += 1;
            remember(&ghosts, len, hash(n), left(0));
            assert_eq!(buckets(), expected, "for {len} entries");
            assert!(take(&ghosts, hash(n)).is_some());
        }
        ghosts.forget();
        assert_eq!((buckets(), ghosts.footprint()), (0, 0));
        assert_eq!(take(&ghosts, hash(n)), None);
    }

    #[test]
    fn a_table_that_was_replaced_is_given_back_a_part_at_a_time() {
        let ghosts = Ghosts::default();
        let large = 2_000_000;
        remember(&ghosts, large, hash(0), left(0));
        let full = ghosts.footprint();
        assert!(full >= large * BYTES_PER_ENTRY);
        ghosts.fit(1_000);
        // It comes when its readers have left, and those of other tests come and go.
        let other = RcuCell::new();
        while ghosts.footprint() < full {
            other.replace(None, 0, &pin());
            other.clear(&pin());
            std::thread::yield_now();
        }
        remember(&ghosts, 1_000, hash(0), left(0));
        let less = ghosts.footprint();
        assert!(less < full && less > full / 2, "{less} of {full} bytes");
        (1..GHOSTS_PER_PART).for_each(|_| remember(&ghosts, 1_000, hash(0), left(0)));
        assert_eq!(ghosts.footprint(), less, "not with each ghost");
        (0..100).for_each(|_| remember(&ghosts, 1_000, hash(0), left(0)));
        assert!(ghosts.footprint() < 10_000, "{} bytes", ghosts.footprint());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn each_page_of_a_table_is_touched_by_a_write_first() {
        fn faults() -> u64 {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // The eighth after the name, which may have spaces in it.
            stat.rsplit(')').next().unwrap().split_whitespace().nth(7).unwrap().parse().unwrap()
        }
        let (ghosts, pages) = (Ghosts::default(), 256);
        ghosts.fit(pages * 4_096 / BYTES_PER_ENTRY);
        let (guard, before) = (pin(), faults());
        (0..20_000).for_each(|n| ghosts.known(&guard).remember(hash(n), left(0)));
        let taken = faults() - before;
        assert!(taken < pages as u64 * 3 / 2, "{taken} faults for {pages} pages; two each where a read comes first");
    }

    #[test]
    fn who_remembers_beside_one_who_forgets_is_not_harmed() {
        let ghosts = Ghosts::default();
        std::thread::scope(|s| {
            s.spawn(|| (0..2_000).for_each(|_| ghosts.forget()));
            for _ in 0..2 {
                s.spawn(|| (0..20_000).for_each(|n| remember(&ghosts, n as usize % 5_000, hash(n), left(0))));
            }
        });
        remember(&ghosts, 10, hash(1), left(7));
        assert_eq!(take(&ghosts, hash(1)), Some(left(7)));
    }
}
