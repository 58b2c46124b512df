//! A bucket: one cache line with the tags and numbers of up to twelve objects, and overflow counts.
//!
//! A *way* is the place of one object: a tag, which is 8 bits of the object's hash, and the number
//! of the object's slot.
//!
//! # Orderings
//!
//! ```text
//!     insert (under the segment's lock)        a reader
//!       number = n            (Release)          tag matches?          (Acquire)
//!       tag = t               (Release)            n = number          (Acquire)
//!                                                  the object's key matches?
//!     remove                                     tags unchanged?       (Relaxed, Acquire at first)
//!       tag = 0               (Release)
//! ```
//!
//! - A reader that sees a tag reads the number stored with that tag or a later number, and through
//!   the number the object as it was initialized.
//! - In a way that two objects with the same tag use one after the other, a reader may see the tag
//!   of the first and the number of the second. The tag was cleared before that number was stored,
//!   so the second load of the tags detects the change. Without the second load a reader could find
//!   an object that the next reader does not find yet.
//! - A number is used only together with its tag, so it is the number of an object that was in the
//!   index after this reader entered its read-side section. The object is not freed before the
//!   reader leaves.
//! - A store changes one tag, or one count, and rewrites the whole word, so every store is a
//!   Release: a reader that sees the tag of another way through it also sees everything that was
//!   stored before that tag. The count itself needs no ordering: it is incremented before the tag
//!   of the overflowed object is stored, and decremented after the tag is cleared.
//!
//! # Overflow counts
//!
//! An object that found no free way in its home bucket is in a later bucket, and every bucket that
//! it had to pass counts it. A bucket has eight counts of four bits, selected by three bits of the
//! hash. In a bucket that one object had to pass, seven of eight lookups of an absent key stop
//! there; if two objects passed it, about three of four. A count that has reached its maximum stays
//! there, because its true value is lost: this costs a probe of the next bucket, and happens only
//! with hashes that are not spread.
//!
//! An object never moves between the buckets of a segment: `find_first` loads the count after the
//! tags, and would miss an object that moved to its home bucket in between.
//!
//! A change must keep the order of the stores and loads above: each pair has a model check in
//! `index/tests/loom.rs` that fails without it.

mod bit_mask;

use super::tag::{tag, FREE, HIDDEN};
use super::FirstProbe;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(super) use bit_mask::WAYS;
use bit_mask::{BitMask, Tags, FIRST_AT};

/// One cache line of a segment; see the module.
#[repr(align(64))]
pub(super) struct Bucket {
    /// A byte for each way: eight tags, then four tags. The upper half of the second word has the
    /// overflow counts: of objects whose home is this bucket or one before it, and that are in a
    /// later one.
    tags: [AtomicU64; 2],
    numbers: [AtomicU32; WAYS],
}

#[cfg(not(lowwater_loom))]
const _: () = assert!(size_of::<Bucket>() == 64, "a bucket is a cache line");
#[cfg(not(lowwater_loom))]
const _: () = assert!(core::mem::offset_of!(Bucket, tags) % 16 == 0, "`Tags::load` loads 16 aligned bytes");

/// The value at which an overflow count saturates.
const OVERFLOW_MAX: u64 = 15;

/// Overflow counts per bucket.
pub(super) const OVERFLOW_COUNTS: usize = 8;
/// Selects the overflow count of a hash, by bits that select neither its tag nor its bucket.
#[inline]
pub(super) fn overflow_class(hash: u64) -> usize {
    hash as usize >> 8 & (OVERFLOW_COUNTS - 1)
}

/// Returns the position of an overflow count in the second word, in bits.
#[inline]
fn overflow_shift(count: usize) -> u32 {
    u64::BITS / 2 + count as u32 * 4
}

impl Bucket {
    pub(super) fn new() -> Self {
        Self { tags: [AtomicU64::new(0), AtomicU64::new(0)], numbers: core::array::from_fn(|_| AtomicU32::new(0)) }
    }

    /// Loads both words of tags. A tag never moves between the words, so the order of the two loads
    /// does not matter.
    #[inline]
    fn tags(&self, ordering: Ordering) -> [u64; 2] {
        // Acquire where `find` passes it: pairs with the Release in `put`.
        [self.tags[0].load(ordering), self.tags[1].load(ordering)]
    }

    #[inline]
    fn tag_of(&self, way: usize, ordering: Ordering) -> u8 {
        let at = way + FIRST_AT;
        // Relaxed or Acquire, as the caller needs it.
        (self.tags[at / 8].load(ordering) >> (at % 8 * 8) as u32) as u8
    }

    /// Returns the first result of `is_wanted` for a number with the tag of `hash`. For readers.
    #[inline]
    pub(super) fn find<R>(&self, hash: u64, mut is_wanted: impl FnMut(u32) -> Option<R>) -> FirstProbe<R> {
        'again: loop {
            let tags = self.tags(Ordering::Acquire);
            let mut ways = BitMask::tagged(tags, tag(hash));
            while let Some(way) = ways.first() {
                // Acquire: pairs with the Release in `replace`, for a number that is newer than the
                // tag loaded above.
                let number = self.numbers[way].load(Ordering::Acquire);
                let Some(found) = is_wanted(number) else {
                    ways = ways.others();
                    continue;
                };
                // Relaxed: ordered after the number's Acquire load. Both words, because comparing
                // them is faster than extracting one tag.
                if self.tags(Ordering::Relaxed) == tags || crate::mutated!("without_second_look") {
                    return FirstProbe::Found(found);
                }
                // The object was removed meanwhile, or a tag beside it changed. The wanted object
                // may have been inserted in another way: probe again. Each retry means that a
                // writer has made progress.
                continue 'again;
            }
            return Self::not_found(tags[1], hash);
        }
    }

    /// As [`find`](Self::find), for the first way with the tag of `hash` only, and without retries:
    /// [`Undecided`](FirstProbe::Undecided) if `is_wanted` returns none for its number, or if a
    /// tag changed meanwhile.
    #[inline]
    pub(super) fn find_first<R>(&self, hash: u64, is_wanted: impl FnOnce(u32) -> Option<R>) -> FirstProbe<R> {
        let tags = Tags::load(&self.tags);
        let Some(way) = tags.with_tag_of(hash).first() else {
            // Relaxed: see the module. A wanted object that is in a later bucket all the time is
            // counted all the time; if it was removed meanwhile, it is absent.
            return Self::not_found(self.tags[1].load(Ordering::Relaxed), hash);
        };
        // Acquire, as in `find`.
        let Some(found) = is_wanted(self.numbers[way].load(Ordering::Acquire)) else {
            return FirstProbe::Undecided;
        };
        if Tags::load(&self.tags).are(tags) || crate::mutated!("without_second_look") {
            return FirstProbe::Found(found);
        }
        FirstProbe::Undecided
    }

    /// Returns the result for a hash whose tag no way has. `second` is the word with the overflow
    /// counts.
    #[inline]
    fn not_found<R>(second: u64, hash: u64) -> FirstProbe<R> {
        match second >> overflow_shift(overflow_class(hash)) & OVERFLOW_MAX {
            0 => FirstProbe::Absent,
            _ => FirstProbe::Undecided,
        }
    }

    /// Calls `f` with every number, and whether it is hidden. For readers.
    pub(super) fn each(&self, mut f: impl FnMut(u32, bool)) {
        for way in 0..WAYS {
            // Acquire: pairs with the Release in `put`, as in `find`.
            let tag = self.tag_of(way, Ordering::Acquire);
            if tag != FREE {
                // Acquire: pairs with the Release in `replace`, as in `find`.
                f(self.numbers[way].load(Ordering::Acquire), tag == HIDDEN);
            }
        }
    }

    // === The functions from here on require the segment's lock. ===

    /// Returns a copy of the bucket, for a new segment.
    pub(super) fn copy(&self) -> Self {
        Self {
            // Relaxed, both: tags and numbers change only under the lock, which the caller holds.
            tags: self.tags(Ordering::Relaxed).map(AtomicU64::new),
            numbers: core::array::from_fn(|way| AtomicU32::new(self.number(way))),
        }
    }

    /// Returns the first way with `tag` and a number for which `is_wanted` returns true.
    #[inline]
    pub(super) fn way_of(&self, tag: u8, mut is_wanted: impl FnMut(u32) -> bool) -> Option<usize> {
        // Relaxed, here and below: tags and numbers change only under the lock.
        BitMask::tagged(self.tags(Ordering::Relaxed), tag).each().find(|&way| is_wanted(self.number(way)))
    }

    /// Returns the first way in use with a number for which `is_wanted` returns true, with any tag.
    pub(super) fn any_way(&self, mut is_wanted: impl FnMut(u32) -> bool) -> Option<usize> {
        // Relaxed: tags change only under the lock.
        (0..WAYS).find(|&way| self.tag_of(way, Ordering::Relaxed) != FREE && is_wanted(self.number(way)))
    }

    /// Returns the first free way.
    #[inline]
    pub(super) fn free_way(&self) -> Option<usize> {
        BitMask::tagged(self.tags(Ordering::Relaxed), FREE).first()
    }

    #[inline]
    pub(super) fn number(&self, way: usize) -> u32 {
        self.numbers[way].load(Ordering::Relaxed)
    }

    /// Stores a number and its tag in a free way.
    #[inline]
    pub(super) fn put(&self, way: usize, tag: u8, number: u32) {
        self.replace(way, number);
        // Release: pairs with the Acquire in `find`, so that the number is at least as new as the
        // tag.
        let relaxed = crate::mutated!("tag_relaxed") || crate::mutated!("put_relaxed");
        self.set_tag(way, tag, if relaxed { Ordering::Relaxed } else { Ordering::Release });
    }

    /// Stores the number of an object of unknown hash in a free way.
    pub(super) fn put_hidden(&self, way: usize, number: u32) {
        self.put(way, HIDDEN, number);
    }

    /// Hides the object in a way from lookups.
    pub(super) fn hide(&self, way: usize) {
        // Release: as in `take`.
        self.set_tag(way, HIDDEN, Ordering::Release);
    }

    /// Replaces the number in a way by one with the same tag.
    #[inline]
    pub(super) fn replace(&self, way: usize, number: u32) {
        // Release: pairs with the Acquire in `find`, so that the reader sees the object
        // initialized, and the way's tag no older than the number.
        let relaxed = crate::mutated!("number_relaxed") || crate::mutated!("put_relaxed");
        self.numbers[way].store(number, if relaxed { Ordering::Relaxed } else { Ordering::Release });
    }

    /// Frees a way.
    #[inline]
    pub(super) fn take(&self, way: usize) {
        // Release: the word holds the neighbours' tags too, which pair with the Acquire in `find`.
        // The freeing of the object is ordered by the grace period.
        self.set_tag(way, FREE, if crate::mutated!("take_relaxed") { Ordering::Relaxed } else { Ordering::Release });
    }

    #[inline]
    fn set_tag(&self, way: usize, tag: u8, ordering: Ordering) {
        let at = way + FIRST_AT;
        let (word, shift) = (&self.tags[at / 8], (at % 8 * 8) as u32);
        let tags = word.load(Ordering::Relaxed) & !(0xff << shift) | u64::from(tag) << shift;
        word.store(tags, ordering);
    }

    /// Adds one to the overflow count of `hash`: an object whose home is this bucket or one before
    /// it is stored in a later one.
    #[inline]
    pub(super) fn count_overflow(&self, hash: u64) {
        // Release: the word holds tags too, which pair with the Acquire in `find`.
        let ordering = if crate::mutated!("pass_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.count_passed(hash, 1, ordering);
    }

    /// Subtracts one from the overflow count of `hash`, unless the count is saturated.
    #[inline]
    pub(super) fn uncount_overflow(&self, hash: u64) {
        // Release: the word holds tags too, which pair with the Acquire in `find`.
        let ordering = if crate::mutated!("unpass_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.count_passed(hash, -1, ordering);
    }

    #[inline]
    fn count_passed(&self, hash: u64, more: i64, ordering: Ordering) {
        let (tags, at) = (self.tags[1].load(Ordering::Relaxed), overflow_shift(overflow_class(hash)));
        if tags >> at & OVERFLOW_MAX != OVERFLOW_MAX {
            self.tags[1].store(tags.wrapping_add_signed(more << at), ordering);
        }
    }

    /// Returns the overflow count of `hash`; at [`OVERFLOW_MAX`] it is a lower bound.
    #[inline]
    pub(super) fn overflow_count(&self, hash: u64) -> u32 {
        (self.tags[1].load(Ordering::Relaxed) >> overflow_shift(overflow_class(hash)) & OVERFLOW_MAX) as u32
    }

    /// Panics unless the overflow counts are `passed`, the numbers of objects that have passed this
    /// bucket; a saturated count is accepted.
    pub(super) fn assert_overflow(&self, passed: [u32; OVERFLOW_COUNTS]) {
        for (count, nr) in passed.into_iter().enumerate() {
            let counted = self.tags[1].load(Ordering::Relaxed) >> overflow_shift(count) & OVERFLOW_MAX;
            let is_full = counted == OVERFLOW_MAX;
            assert!(
                counted == u64::from(nr) || is_full,
                "overflow count {count} is {counted}, but {nr} objects have passed the bucket"
            );
        }
    }

    #[cfg(lowwater_loom)]
    pub(super) fn assert_unread(&mut self) {
        self.tags.iter_mut().for_each(|word| word.with_mut(|_| ()));
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;

    /// A hash with a fixed tag and with overflow count number `count`.
    fn hash(count: u64) -> u64 {
        count << 8 | 7
    }

    fn look(bucket: &Bucket, hash: u64) -> FirstProbe<u32> {
        bucket.find(hash, |number| (number == 100).then_some(number))
    }

    #[test]
    fn only_hashes_whose_count_is_not_zero_probe_further() {
        let bucket = Bucket::new();
        (0..WAYS).for_each(|way| bucket.put(way, 9, way as u32));
        for count in 0..OVERFLOW_COUNTS as u64 {
            assert_eq!(look(&bucket, hash(count)), FirstProbe::Absent);
            for nr in 1..=3 {
                bucket.count_overflow(hash(count));
                assert_eq!(bucket.overflow_count(hash(count)), nr);
            }
            let further =
                (0..OVERFLOW_COUNTS as u64).filter(|&other| look(&bucket, hash(other)) == FirstProbe::Undecided);
            assert!(further.eq([count]), "no other overflow count");
            (0..3).for_each(|_| bucket.uncount_overflow(hash(count)));
        }
        bucket.put(3, 7, 100);
        assert_eq!(look(&bucket, hash(5)), FirstProbe::Found(100), "objects in their home bucket are unaffected");
        bucket.assert_overflow([0; OVERFLOW_COUNTS]);
    }

    #[test]
    fn a_first_probe_goes_by_one_way_and_the_overflow_count() {
        let bucket = Bucket::new();
        let first = |hash| bucket.find_first(hash, |number| (number == 100).then_some(number));
        bucket.put(0, 9, 5);
        assert_eq!(first(hash(3)), FirstProbe::Absent);
        bucket.count_overflow(hash(3));
        assert_eq!([3, 4].map(|n| first(hash(n))), [FirstProbe::Undecided, FirstProbe::Absent]);
        bucket.put(1, 7, 5);
        bucket.put(2, 7, 100);
        assert_eq!(first(hash(4)), FirstProbe::Undecided, "only the first way with the tag");
        bucket.put(1, 8, 5);
        assert_eq!(first(hash(4)), FirstProbe::Found(100));
        assert_eq!(first(4 << 8), FirstProbe::Absent, "a low byte of 0 has a tag that no free way has");
    }

    #[test]
    fn a_saturated_overflow_count_stays_and_leaves_the_others_exact() {
        let bucket = Bucket::new();
        (0..40).for_each(|_| bucket.count_overflow(hash(6)));
        bucket.count_overflow(hash(7));
        (0..40).for_each(|_| bucket.uncount_overflow(hash(6)));
        assert_eq!([5, 6, 7].map(|count| bucket.overflow_count(hash(count))), [0, OVERFLOW_MAX as u32, 1]);
        bucket.assert_overflow([0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(look(&bucket, hash(6)), FirstProbe::Undecided);
    }
}
