//! One cache line of an index: the tags and numbers of up to twelve objects.
//!
//! # Orderings
//!
//! ```text
//!     put (under the segment's lock)           a reader
//!       number = n            (Release)          tag is ours?          (Acquire)
//!       tag = t               (Release)            n = number          (Acquire)
//!                                                  the object's key is ours?
//!     take                                         tags are the same?  (Relaxed)
//!       tag = 0               (Release)
//! ```
//!
//! - A tag that is seen leads to its number or a younger one, and that to the object as it was made.
//! - A younger number may be one whose tag is not there yet, in a place that another object of the same tag left. Whoever stored it
//!   took the tag away before, so the second look at the tags finds that out; without it a reader could find what the next reader does
//!   not find yet.
//! - A number is never followed without its tag, so it is one of an object that was in the index after this reader came in. It is not
//!   freed before the reader leaves.
//! - A store changes one tag, or a count, and stores the whole word. So each is a Release: who sees another way's tag by it has what came
//!   before that tag. The count itself needs no order: it goes up before the tag of who is further on is there, and down after.
//!
//! # Who is further on
//!
//! Objects that found no way here are in buckets behind, and counted: eight counts of four bits, by three bits of the hash. In a bucket that
//! one or two had to pass, seven of eight lookups of what is nowhere need not look further. A count that is full stays so, as it is not known
//! any more by how many it is too small: that costs a look, and only hashes that are not spread lead there.

mod bit_mask;

use super::FirstProbe;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(super) use bit_mask::WAYS;
use bit_mask::{BitMask, FIRST_AT};

/// See the module.
#[repr(align(64))]
pub(super) struct Bucket {
    /// Eight tags; four tags, and above them how many objects that belong here, or before, are in buckets further on.
    tags: [AtomicU64; 2],
    numbers: [AtomicU32; WAYS],
}

#[cfg(not(lowwater_loom))]
const _: () = assert!(size_of::<Bucket>() == 64, "a bucket is a cache line");

/// The most that a count of those further on tells.
const OVERFLOW_MAX: u64 = 15;

/// Counts of those further on.
pub(super) const OVERFLOW_COUNTS: usize = 8;
/// Which of them is that of a hash: by bits of it that choose neither its tag nor its bucket.
#[inline]
pub(super) fn overflow_class(hash: u64) -> usize {
    hash as usize >> 8 & (OVERFLOW_COUNTS - 1)
}

/// Where in the second word a count is.
#[inline]
fn overflow_shift(count: usize) -> u32 {
    u64::BITS / 2 + count as u32 * 4
}

/// The tag of a hash: not 0.
#[inline]
pub(super) fn tag(hash: u64) -> u8 {
    (hash as u8).max(1)
}

impl Bucket {
    pub(super) fn new() -> Self {
        Self { tags: [AtomicU64::new(0), AtomicU64::new(0)], numbers: core::array::from_fn(|_| AtomicU32::new(0)) }
    }

    /// Both words of tags. What is in one of them stays there, so it does not matter which is read first.
    #[inline]
    fn tags(&self, ordering: Ordering) -> [u64; 2] {
        // Acquire where `find` asks: meets the Release in `put`.
        [self.tags[0].load(ordering), self.tags[1].load(ordering)]
    }

    #[inline]
    fn tag_of(&self, way: usize, ordering: Ordering) -> u8 {
        let at = way + FIRST_AT;
        // Relaxed or Acquire, as the caller needs it.
        (self.tags[at / 8].load(ordering) >> (at % 8 * 8) as u32) as u8
    }

    /// The first number under the tag of `hash` whose object `is_wanted`, for a reader.
    #[inline]
    pub(super) fn find<R>(&self, hash: u64, mut is_wanted: impl FnMut(u32) -> Option<R>) -> FirstProbe<R> {
        'again: loop {
            let tags = self.tags(Ordering::Acquire);
            let mut ways = BitMask::tagged(tags, tag(hash));
            while let Some(way) = ways.first() {
                // Acquire: meets the Release in `replace`, for a number that is younger than the tag we saw.
                let number = self.numbers[way].load(Ordering::Acquire);
                let Some(found) = is_wanted(number) else {
                    ways = ways.others();
                    continue;
                };
                // Relaxed: not before the number's Acquire. All tags at once, as that is quicker than to ask for the one.
                if self.tags(Ordering::Relaxed) == tags || crate::mutated!("without_second_look") {
                    return FirstProbe::Found(found);
                }
                // Taken out meanwhile, or a neighbour came or went. What is wanted may have come elsewhere; each turn somebody else got
                // something done.
                continue 'again;
            }
            return if tags[1] >> overflow_shift(overflow_class(hash)) & OVERFLOW_MAX == 0 {
                FirstProbe::Absent
            } else {
                FirstProbe::Overflowed
            };
        }
    }

    /// Every number, for a reader.
    pub(super) fn each(&self, mut f: impl FnMut(u32)) {
        for way in 0..WAYS {
            // Acquire: as in `find`.
            if self.tag_of(way, Ordering::Acquire) != 0 {
                // Acquire: as in `find`.
                f(self.numbers[way].load(Ordering::Acquire));
            }
        }
    }

    // === what follows is for who holds the segment's lock ===

    /// The same, elsewhere.
    pub(super) fn copy(&self) -> Self {
        Self {
            // Relaxed, both: they change under the lock only.
            tags: self.tags(Ordering::Relaxed).map(AtomicU64::new),
            numbers: core::array::from_fn(|way| AtomicU32::new(self.number(way))),
        }
    }

    /// The first way under `tag` whose object `is_wanted`.
    #[inline]
    pub(super) fn way_of(&self, tag: u8, mut is_wanted: impl FnMut(u32) -> bool) -> Option<usize> {
        // Relaxed, here and below: they change under the lock only.
        BitMask::tagged(self.tags(Ordering::Relaxed), tag).each().find(|&way| is_wanted(self.number(way)))
    }

    /// The first way whose object `is_wanted`.
    pub(super) fn any_way(&self, mut is_wanted: impl FnMut(u32) -> bool) -> Option<usize> {
        // Relaxed: as in `way_of`.
        (0..WAYS).find(|&way| self.tag_of(way, Ordering::Relaxed) != 0 && is_wanted(self.number(way)))
    }

    /// A way without an object.
    #[inline]
    pub(super) fn free_way(&self) -> Option<usize> {
        BitMask::tagged(self.tags(Ordering::Relaxed), 0).first()
    }

    pub(super) fn number(&self, way: usize) -> u32 {
        self.numbers[way].load(Ordering::Relaxed)
    }

    /// Puts a number into a free way.
    #[inline]
    pub(super) fn put(&self, way: usize, tag: u8, number: u32) {
        self.replace(way, number);
        // Release: meets the Acquire in `find`, so that the number is no older than the tag.
        let relaxed = crate::mutated!("tag_relaxed") || crate::mutated!("put_relaxed");
        self.set_tag(way, tag, if relaxed { Ordering::Relaxed } else { Ordering::Release });
    }

    /// Puts a number of the same tag in the place of another.
    #[inline]
    pub(super) fn replace(&self, way: usize, number: u32) {
        // Release: meets the Acquire in `find`, so that the object is seen as it was made, and the way's tag not as it was before.
        let relaxed = crate::mutated!("number_relaxed") || crate::mutated!("put_relaxed");
        self.numbers[way].store(number, if relaxed { Ordering::Relaxed } else { Ordering::Release });
    }

    #[inline]
    pub(super) fn take(&self, way: usize) {
        // Release: the neighbours' tags are stored with it, and meet the Acquire in `find`. Who frees the object has the read side's order.
        self.set_tag(way, 0, if crate::mutated!("take_relaxed") { Ordering::Relaxed } else { Ordering::Release });
    }

    #[inline]
    fn set_tag(&self, way: usize, tag: u8, ordering: Ordering) {
        let at = way + FIRST_AT;
        let (word, shift) = (&self.tags[at / 8], (at % 8 * 8) as u32);
        let tags = word.load(Ordering::Relaxed) & !(0xff << shift) | u64::from(tag) << shift;
        word.store(tags, ordering);
    }

    /// Counts an object of `hash` that belongs here, or before, and is further on.
    #[inline]
    pub(super) fn pass(&self, hash: u64) {
        // Release: tags are stored with it, as in `take`.
        let ordering = if crate::mutated!("pass_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.count_passed(hash, 1, ordering);
    }

    /// Counts one less.
    #[inline]
    pub(super) fn unpass(&self, hash: u64) {
        // Release: as in `pass`.
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

    /// How many objects are further on that belong here, or before, and have the same count as `hash`; or many.
    #[inline]
    pub(super) fn overflow_count(&self, hash: u64) -> u32 {
        (self.tags[1].load(Ordering::Relaxed) >> overflow_shift(overflow_class(hash)) & OVERFLOW_MAX) as u32
    }

    /// Panics unless so many are further on, by their counts.
    pub(super) fn assert_overflow(&self, passed: [u32; OVERFLOW_COUNTS]) {
        for (count, nr) in passed.into_iter().enumerate() {
            let counted = self.tags[1].load(Ordering::Relaxed) >> overflow_shift(count) & OVERFLOW_MAX;
            let is_full = counted == OVERFLOW_MAX;
            assert!(
                counted == u64::from(nr) || is_full,
                "objects beyond their bucket are counted: {nr}, and not {counted}"
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

    /// Of one tag, and with the count of this number.
    fn hash(count: u64) -> u64 {
        count << 8 | 7
    }

    fn look(bucket: &Bucket, hash: u64) -> FirstProbe<u32> {
        bucket.find(hash, |number| (number == 100).then_some(number))
    }

    #[test]
    fn only_those_look_further_who_may_have_passed() {
        let bucket = Bucket::new();
        (0..WAYS).for_each(|way| bucket.put(way, 9, way as u32));
        for count in 0..OVERFLOW_COUNTS as u64 {
            assert_eq!(look(&bucket, hash(count)), FirstProbe::Absent);
            for nr in 1..=3 {
                bucket.pass(hash(count));
                assert_eq!(bucket.overflow_count(hash(count)), nr);
            }
            let further =
                (0..OVERFLOW_COUNTS as u64).filter(|&other| look(&bucket, hash(other)) == FirstProbe::Overflowed);
            assert!(further.eq([count]), "nobody else");
            (0..3).for_each(|_| bucket.unpass(hash(count)));
        }
        bucket.put(3, 7, 100);
        assert_eq!(look(&bucket, hash(5)), FirstProbe::Found(100), "those in their ways are as they were");
        bucket.assert_overflow([0; OVERFLOW_COUNTS]);
    }

    #[test]
    fn a_count_that_is_full_stays_so_and_harms_no_other() {
        let bucket = Bucket::new();
        (0..40).for_each(|_| bucket.pass(hash(6)));
        bucket.pass(hash(7));
        (0..40).for_each(|_| bucket.unpass(hash(6)));
        assert_eq!([5, 6, 7].map(|count| bucket.overflow_count(hash(count))), [0, OVERFLOW_MAX as u32, 1]);
        bucket.assert_overflow([0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(look(&bucket, hash(6)), FirstProbe::Overflowed);
    }
}
