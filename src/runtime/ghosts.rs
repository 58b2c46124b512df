//! The ghost table of a runtime: hashes of keys that were evicted, kept for a while. When such a
//! key is inserted again (a ghost hit), the insert shows which queue of its tenant was too short,
//! and that the tenant would use more memory.
//!
//! All caches share one table. So the time for which a ghost is kept does not depend on the present
//! size of its cache, and a cache that is nearly empty can still get ghost hits. The hash of a key
//! is mixed with a number of its tenant, so that tenants do not hit each other's ghosts.
//!
//! The table consists of four-byte slots, two in a word, in buckets of four words:
//!
//! ```text
//!     word    second slot | first slot          the first slot of the first word is the youngest
//!     slot    tag 16 bits | queue 1 | time 15   all zero: empty
//! ```
//!
//! The time is that of the eviction on the clock of the key's tenant, which decides for how long
//! the ghost counts. A slot has its low 15 bits, which is enough for a tenant with a thousandth of
//! the budget to distinguish its own ghosts' times. The tag is a part of the key's hash, mixed with
//! the other bits of the time, the era. A lookup knows the era that a slot of its tenant must be
//! of: a stored time up to the present one is of this era, a later one of the era before. So a
//! ghost is not found when the clock has gone round ([`TIMES`]): it would look young.
//!
//! A full bucket overwrites its oldest ghost. Buckets of eight slots overwrite later than buckets
//! of four, so two slots per entry are enough. One new key in 8,000 finds its tag in a full bucket
//! by chance: a false ghost hit. Three slots of 21 bits in a word were rejected: they keep more
//! ghosts, but with a tag of 12 bits one scanned key in 340 is a false ghost hit; in one group
//! beside a scan, the hit ratio of the quiet tenants was 16.8 instead of 27.7 %. A bucket is half a
//! cache line and aligned to its size, so it never spans two lines.
//!
//! The table is allocated at the first eviction. Its size follows the number of entries in all
//! caches, up and down, and each entry is charged for its part of the table ([`BYTES_PER_ENTRY`]):
//! ghosts are recorded when memory is short, and then there is no room for another charge. A large
//! table is mapped from the system, in huge pages that are cleared on first touch, so that no
//! insert waits until the whole table is cleared. The memory of a replaced table is returned in
//! parts. A reader of the table writes to no shared line except the bucket that it changes, and a
//! counter while a replaced table's memory is being returned.
//!
//! Buckets have no lock. A change must ensure that any mixture of concurrent writes to a bucket is
//! a valid bucket, and that only an empty slot is zero.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;

use lowwater_base::fallible::TryArc;
use lowwater_base::ZeroedAtomics;
use lowwater_rcu::{pin, Guard, RcuCell};
use parking_lot::Mutex;

/// Slots in a word.
const SLOTS_OF_WORD: usize = 2;
/// Words in a bucket.
const WORDS: usize = 4;
/// Entries in all caches for each bucket: two slots per entry.
const ENTRIES_PER_BUCKET: usize = 4;
/// The bytes of the table for which an entry is charged.
pub(crate) const BYTES_PER_ENTRY: usize = WORDS * size_of::<u64>() / ENTRIES_PER_BUCKET;
/// A table that is too large or too small by more than this factor is replaced by an empty one.
const SLACK_MAX: usize = 2;
/// With this many tables, of which readers may still use all but the current one, no table is made:
/// a reader that never leaves would otherwise hold back a table for each change of the number of
/// entries. The drop of the last entry replaces the current one, too. A promise to users
/// (`Runtime`, `docs/promises/readers.md`).
const TABLES_MAX: usize = 3;
/// A table that should be replaced and may not be is a reason to collect retired memory, once in
/// this many evictions of a batch: the readers may have left, and a collection interrupts all
/// processors.
const EVICTIONS_PER_FLUSH: u32 = 1_024;
/// Buckets of the smallest table.
const BUCKETS_MIN: usize = 32;
/// One part of a replaced table is returned to the system for this many recorded ghosts. An insert
/// that evicts a batch (`BATCH_MAX` of the shrinker crate) records as many, and so returns one part
/// and not several: a part may take 50 us, and interrupts other processors.
const GHOSTS_PER_PART: u32 = 8;
/// The number of different times that a slot can store. A ghost is found before as many ticks of
/// its tenant's clock have passed.
pub(crate) const TIMES: u32 = 1 << 15;

/// An evicted entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ghost {
    /// Whether the entry was evicted from the main queue, and not from probation.
    pub(crate) is_main: bool,
    /// The time of the eviction, in ticks of the tenant's clock, wrapping.
    pub(crate) time: u32,
}

/// The ghost table of a runtime; see the module.
#[derive(Default)]
pub(crate) struct Ghosts {
    table: RcuCell<Table>,
    /// The number of entries in all caches, as noted by [`note_entries`](Self::note_entries).
    entries: AtomicUsize,
    /// The number of tables: the current one, and replaced ones whose grace period is not over.
    tables: Arc<AtomicUsize>,
    /// Calls of [`fit`](Self::fit) that did not replace the table because of readers.
    blocked: AtomicU32,
}

/// A table of buckets. Its size never changes: a table of another size replaces it, empty.
struct Table {
    words: ZeroedAtomics,
    waste: TryArc<Waste>,
    /// The same count as in [`Ghosts`].
    tables: Arc<AtomicUsize>,
}

/// The memory of replaced tables, which is returned to the system one part at a time.
#[derive(Default)]
struct Waste {
    tables: Mutex<Vec<ZeroedAtomics>>,
    /// Whether `tables` may be non-empty. A hint that mostly saves taking the lock.
    some: AtomicBool,
    /// Ghosts that were recorded while `some` was set.
    ghosts: AtomicU32,
}

/// The ghosts of the table that was current when this was loaded; usable while the guard is held.
#[derive(Clone, Copy)]
pub(crate) struct Known<'g>(Option<&'g Table>);

/// A bucket of the table: [`WORDS`] words of two slots each.
#[derive(Clone, Copy)]
struct Bucket<'g>(&'g [AtomicU64; WORDS]);

impl Ghosts {
    /// Loads the current table, for use while the guard is held.
    #[inline]
    pub(crate) fn known<'g>(&'g self, guard: &'g Guard) -> Known<'g> {
        Known(self.table.load(guard))
    }

    /// Notes that a cache with `before` entries at its last call has `now` entries. When no cache
    /// has an entry any more, the table is dropped.
    pub(crate) fn note_entries(&self, before: usize, now: usize) {
        if now == before {
            return;
        }
        // Relaxed, here and below: the number only determines the size of the table. Wrapping
        // additions give the right sum in any order.
        let change = now.wrapping_sub(before);
        if self.entries.fetch_add(change, Ordering::Relaxed).wrapping_add(change) == 0 {
            self.table.clear(&pin());
        }
    }

    /// Returns the number of entries in all caches. The sum may be negative for a moment, when the
    /// removal of an entry is noted before its insert; it counts as 0 then.
    fn len(&self) -> usize {
        usize::try_from(self.entries.load(Ordering::Relaxed) as i64).unwrap_or(0)
    }

    /// Returns whether another table may be made: there are fewer than [`TABLES_MAX`].
    fn may_make(&self) -> bool {
        // Relaxed, as in `resize` and in the drop of a table: a bound on memory, which concurrent
        // calls may exceed by a table each.
        self.tables.load(Ordering::Relaxed) < TABLES_MAX
    }

    /// Allocates or replaces the table if it does not fit the number of entries. If there is no
    /// memory, or there are [`TABLES_MAX`] tables because of readers, nothing changes.
    pub(crate) fn fit(&self) {
        let len = self.len();
        let guard = pin();
        let there = self.table.load(&guard);
        if there.is_some_and(|table| fits(table.buckets(), len)) {
            return;
        }
        if self.may_make() {
            return self.resize(there, len, there.map(|table| &table.waste), &guard);
        }
        drop(guard);
        // Relaxed: the number only determines when to flush.
        if self.blocked.fetch_add(1, Ordering::Relaxed) % EVICTIONS_PER_FLUSH == 0 {
            lowwater_rcu::flush();
        }
    }

    /// Replaces the table if it is too large for the number of entries, for entries that left
    /// without an eviction: where there is no table, or a small one, nothing changes. The memory is
    /// returned at once, because no eviction may follow that returns it in parts; mostly by this
    /// call.
    pub(crate) fn shrink(&self) {
        let len = self.len();
        // Twice, as tables that readers hold back may keep it from being replaced.
        for _ in 0..2 {
            let guard = pin();
            let Some(table) = self.table.load(&guard) else { return };
            if table.buckets() <= buckets_for(len) * SLACK_MAX {
                return;
            }
            if self.may_make() {
                self.resize(Some(table), len, None, &guard);
            }
            drop(guard);
            lowwater_rcu::flush();
        }
    }

    /// Returns the bytes of the table, and of replaced tables that are not returned to the system
    /// yet, except for those whose grace period is not over.
    pub(crate) fn footprint(&self) -> usize {
        let guard = pin();
        self.table
            .load(&guard)
            .map_or(0, |table| size_of::<Table>() + table.words.footprint().get() as usize + table.waste.footprint())
    }

    /// Replaces the table `there` by one for `len` entries, which shares this waste, if any.
    #[cold]
    fn resize(&self, there: Option<&Table>, len: usize, waste: Option<&TryArc<Waste>>, guard: &Guard) {
        let Some(words) = ZeroedAtomics::try_new(buckets_for(len) * WORDS) else { return };
        let waste = match waste {
            Some(waste) => TryArc::clone(waste),
            None => match TryArc::try_new(Waste::default()) {
                Some(waste) => waste,
                None => return,
            },
        };
        self.tables.fetch_add(1, Ordering::Relaxed);
        let table = Table { words, waste, tables: Arc::clone(&self.tables) };
        // If another thread has replaced the table first, its table is kept.
        let _is_ours = self.table.replace(there, table, guard);
    }
}

impl Known<'_> {
    /// Records a ghost for the key of this hash.
    pub(crate) fn remember(self, hash: u64, ghost: Ghost) {
        // No table: there was no memory for one.
        if let Some(table) = self.0 {
            table.bucket(hash).remember(hash, ghost);
            table.waste.free_some();
        }
    }

    /// Removes and returns the ghost of the key of this hash, if it is of one of the last [`TIMES`]
    /// ticks of the tenant's clock, which is at `now`.
    #[inline]
    pub(crate) fn take(self, hash: u64, now: u32) -> Option<Ghost> {
        self.0?.bucket(hash).take(hash, now)
    }

    /// Prefetches the bucket of a hash.
    #[inline]
    pub(crate) fn prefetch(self, hash: u64) {
        if let Some(table) = self.0 {
            // A bucket is in one cache line.
            lowwater_base::prefetch::prefetch(&table.bucket(hash).0[0]);
        }
    }
}

impl Drop for Table {
    /// Moves the memory to the waste. If another table shares that waste, its users return the
    /// memory in parts; otherwise the waste is dropped with this table, and the memory is returned
    /// at once.
    fn drop(&mut self) {
        self.waste.take(std::mem::take(&mut self.words));
        self.tables.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Waste {
    /// Adds the memory of a replaced table. Without memory for that, it is returned at once.
    fn take(&self, words: ZeroedAtomics) {
        let mut tables = self.tables.lock();
        if tables.try_reserve(1).is_err() {
            return;
        }
        tables.push(words);
        drop(tables);
        // Relaxed, here and below: a hint; the lock protects the tables.
        self.some.store(true, Ordering::Relaxed);
    }

    #[inline]
    fn free_some(&self) {
        if self.some.load(Ordering::Relaxed) {
            self.free_some_slow();
        }
    }

    /// Returns a part of the memory, once in [`GHOSTS_PER_PART`] calls.
    #[cold]
    fn free_some_slow(&self) {
        if self.ghosts.fetch_add(1, Ordering::Relaxed) % GHOSTS_PER_PART != 0 {
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
    /// Returns the bucket of a hash: the low 32 bits as a fraction of the number of buckets, which
    /// need not be a power of two.
    #[inline]
    fn bucket(&self, hash: u64) -> Bucket<'_> {
        let at = ((hash & 0xffff_ffff) * self.buckets() as u64) >> 32;
        let words = self.words[at as usize * WORDS..].first_chunk();
        Bucket(words.expect("the number of words is a multiple of WORDS"))
    }

    /// Returns the number of buckets.
    #[inline]
    fn buckets(&self) -> usize {
        self.words.len() / WORDS
    }
}

/// Returns the number of buckets for `len` entries.
fn buckets_for(len: usize) -> usize {
    len.div_ceil(ENTRIES_PER_BUCKET).max(BUCKETS_MIN)
}

/// Returns whether a table of `buckets` buckets is within [`SLACK_MAX`] of the right size for `len`
/// entries.
fn fits(buckets: usize, len: usize) -> bool {
    let want = buckets_for(len);
    (want / SLACK_MAX..=want * SLACK_MAX).contains(&buckets)
}

impl Bucket<'_> {
    /// Puts a ghost into the first slot and moves the other ghosts on by one slot, up to the first
    /// word with an empty slot. In a full bucket the last ghost is overwritten.
    fn remember(self, hash: u64, ghost: Ghost) {
        // Relaxed, here and in both parts of `take`: no word depends on another one. Of two
        // concurrent writers of a bucket, either may win; a lost ghost does no harm.
        let mut moved = tag(hash, ghost.time) << TAG_SHIFT | pack(ghost);
        for (at, word) in self.0.iter().enumerate() {
            // The first touch of a page is a write. A read would map the system's zero page first,
            // and the write after the read would then interrupt all processors that may have cached
            // that mapping: the p99.9 of lookups during a shrink was 6 to 12 us instead of 1.0 to
            // 1.5.
            let there = if at == 0 { word.swap(moved, Ordering::Relaxed) } else { word.load(Ordering::Relaxed) };
            word.store(there << SLOT | moved, Ordering::Relaxed);
            moved = there >> (u64::BITS - SLOT);
            if moved == 0 {
                break;
            }
        }
    }

    /// Removes and returns the ghost of this hash.
    fn take(self, hash: u64, now: u32) -> Option<Ghost> {
        // The tag, repeated in each slot, and its bits that are the same in the era before: all but
        // one, so that one comparison excludes almost every slot of another key.
        let wanted = (tag(hash, now) << TAG_SHIFT) * (u64::MAX / SLOT_MASK);
        let compared = TAG & !(changed_bit(now) << TAG_SHIFT);
        let is_likely = self.0.iter().any(|word| {
            let differs = word.load(Ordering::Relaxed) ^ wanted;
            differs & compared == 0 || differs & compared << SLOT == 0
        });
        if is_likely {
            self.take_likely(hash, now)
        } else {
            None
        }
    }

    /// As [`take`](Self::take), by the tag of each slot's own era. The older ghost in the same word
    /// moves one slot forward, so that the empty slot is at the end of the word.
    #[inline(never)]
    fn take_likely(self, hash: u64, now: u32) -> Option<Ghost> {
        for word in self.0 {
            let there = word.load(Ordering::Relaxed);
            for at in (0..u64::BITS).step_by(SLOT as usize) {
                let slot = there >> at & SLOT_MASK;
                let ghost = unpack(slot, now);
                if slot >> TAG_SHIFT == tag(hash, ghost.time) {
                    let younger = there & ((1 << at) - 1);
                    word.store(younger | (there >> at >> SLOT) << at, Ordering::Relaxed);
                    return Some(ghost);
                }
            }
        }
        None
    }
}

/// Bits of a slot.
const SLOT: u32 = u64::BITS / SLOTS_OF_WORD as u32;
const SLOT_MASK: u64 = (1 << SLOT) - 1;
/// The bit of the queue, above those of the time; set for main.
const QUEUE: u64 = TIMES as u64;
const TAG_SHIFT: u32 = QUEUE.ilog2() + 1;
const TAG: u64 = SLOT_MASK >> TAG_SHIFT << TAG_SHIFT;

/// Returns the tag of a hash in the era of this time: other bits of the hash than those that choose
/// the bucket, mixed with the era; never 0, which marks an empty slot. The era is in Gray code, so
/// that the tags of two consecutive eras differ in one bit (unless 1 stands for 0: the ghost of one
/// hash in 65,536 is not found in the era after its own).
fn tag(hash: u64, time: u32) -> u64 {
    let era = (time / TIMES) as u16;
    (hash >> (u64::BITS - SLOT + TAG_SHIFT) ^ u64::from(era ^ era >> 1)).max(1)
}

/// Returns the bit of a tag that differs in the era of this time and in the era before: the lowest
/// one that is set in the era. If none is, the eras start again, and it is the highest.
fn changed_bit(time: u32) -> u64 {
    let era = (time / TIMES) as u16 | 1 << 15;
    u64::from(era & era.wrapping_neg())
}

fn pack(ghost: Ghost) -> u64 {
    u64::from(ghost.time % TIMES) | if ghost.is_main { QUEUE } else { 0 }
}

/// Returns the ghost in a slot, whose time is one of the last [`TIMES`] ticks at `now`.
fn unpack(slot: u64, now: u32) -> Ghost {
    let age = now.wrapping_sub(slot as u32) % TIMES;
    Ghost { is_main: slot & QUEUE != 0, time: now.wrapping_sub(age) }
}

#[cfg(test)]
mod tests;
