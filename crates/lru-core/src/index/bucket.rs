//! One cache line of an index: the tags and numbers of up to twelve objects.
//!
//! # Orderings
//!
//! ```text
//!     put (under the segment's lock)           a reader
//!       number = n            (Release)          tag is ours?          (Acquire)
//!       tag = t               (Release)            n = number          (Acquire)
//!                                                  the object's key is ours?
//!     take                                         tag is still ours?  (Relaxed)
//!       tag = 0               (Release)
//! ```
//!
//! - A tag that is seen leads to its number or a younger one, and that to the object as it was made.
//! - A younger number may be one whose tag is not there yet, in a place that another object of the same tag left. Whoever stored it
//!   took the tag away before, so the second look at the tag finds that out; without it a reader could find what the next reader does
//!   not find yet.
//! - A number is never followed without its tag, so it is one of an object that was in the index after this reader came in. It is not
//!   freed before the reader leaves.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Objects in a bucket.
pub(super) const WAYS: usize = if cfg!(lowwater_loom) { 2 } else { 12 };
/// Of a word of tags, the first way's.
const FIRST: u64 = 0x0101_0101_0101_0101;
const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;

/// See the module.
#[repr(align(64))]
pub(super) struct Bucket {
    /// Eight tags; four tags, and above them how many objects that belong here are in buckets further on.
    tags: [AtomicU64; 2],
    numbers: [AtomicU32; WAYS],
}

#[cfg(not(lowwater_loom))]
const _: () = assert!(size_of::<Bucket>() == 64, "a bucket is a cache line");

/// The tag of a hash: not 0.
#[inline]
pub(super) fn tag(hash: u64) -> u8 {
    (hash as u8).max(1)
}

/// The ways of one word of tags that have some property: the highest bit of each one's byte.
#[derive(Clone, Copy)]
struct Ways(u64);

impl Iterator for Ways {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let way = (self.0 != 0).then(|| self.0.trailing_zeros() as usize / 8);
        self.0 &= self.0.wrapping_sub(1);
        way
    }
}

/// The bytes of `word` that are 0, exactly.
#[inline]
fn zeros(word: u64) -> Ways {
    Ways(!((word & LOW).wrapping_add(LOW) | word | LOW))
}

impl Bucket {
    pub(super) fn new() -> Self {
        Self { tags: [AtomicU64::new(0), AtomicU64::new(0)], numbers: core::array::from_fn(|_| AtomicU32::new(0)) }
    }

    /// The first number under `tag` whose object `is_wanted`, for a reader. An error says if there may be some further on.
    #[inline]
    pub(super) fn find<R>(&self, tag: u8, mut is_wanted: impl FnMut(u32) -> Option<R>) -> Result<R, bool> {
        'again: loop {
            let mut beyond = false;
            for (at, word) in self.tags.iter().enumerate() {
                // Acquire: meets the Release in `put`.
                let tags = word.load(Ordering::Acquire);
                let mut ways = zeros(tags ^ FIRST.wrapping_mul(u64::from(tag)));
                if at == 1 {
                    beyond = tags >> 32 != 0;
                    ways.0 &= u64::from(u32::MAX);
                }
                for way in ways {
                    // Acquire: meets the Release in `replace`, for a number that is younger than the tag we saw.
                    let number = self.numbers[at * 8 + way].load(Ordering::Acquire);
                    let Some(found) = is_wanted(number) else { continue };
                    // Relaxed: not before the number's Acquire.
                    let still = (word.load(Ordering::Relaxed) >> (way * 8) as u32) as u8;
                    if still == tag || crate::mutated!("without_second_look") {
                        return Ok(found);
                    }
                    // Taken out meanwhile. What is wanted may have come elsewhere; each turn somebody else got something done.
                    continue 'again;
                }
            }
            return Err(beyond);
        }
    }

    /// Every number, for a reader.
    pub(super) fn each(&self, mut f: impl FnMut(u32)) {
        for way in 0..WAYS {
            // Acquire: as in `find`.
            if self.tags[way / 8].load(Ordering::Acquire) >> (way % 8 * 8) as u32 & 0xff != 0 {
                // Acquire: as in `find`.
                f(self.numbers[way].load(Ordering::Acquire));
            }
        }
    }

    // === what follows is for who holds the segment's lock ===

    /// The first way under `tag` whose object `is_wanted`.
    #[inline]
    pub(super) fn way_of(&self, tag: u8, mut is_wanted: impl FnMut(u32) -> bool) -> Option<usize> {
        for (at, word) in self.tags.iter().enumerate() {
            // Relaxed, here and below: they change under the lock only.
            let mut ways = zeros(word.load(Ordering::Relaxed) ^ FIRST.wrapping_mul(u64::from(tag)));
            if at == 1 {
                ways.0 &= u64::from(u32::MAX);
            }
            for way in ways {
                let way = at * 8 + way;
                if is_wanted(self.number(way)) {
                    return Some(way);
                }
            }
        }
        None
    }

    /// A way without an object.
    #[inline]
    pub(super) fn free_way(&self) -> Option<usize> {
        let first = zeros(self.tags[0].load(Ordering::Relaxed)).next();
        let second = || zeros(self.tags[1].load(Ordering::Relaxed) | !0 << 32).next().map(|way| way + 8);
        first.or_else(second).filter(|&way| way < WAYS)
    }

    pub(super) fn number(&self, way: usize) -> u32 {
        self.numbers[way].load(Ordering::Relaxed)
    }

    /// Puts a number into a free way.
    #[inline]
    pub(super) fn put(&self, way: usize, tag: u8, number: u32) {
        self.replace(way, number);
        // Release: meets the Acquire in `find`, so that the number is no older than the tag.
        self.set_tag(way, tag, if crate::mutated!("tag_relaxed") { Ordering::Relaxed } else { Ordering::Release });
    }

    /// Puts a number of the same tag in the place of another.
    #[inline]
    pub(super) fn replace(&self, way: usize, number: u32) {
        // Release: meets the Acquire in `find`, so that the object is seen as it was made, and the way's tag not as it was before.
        let ordering = if crate::mutated!("number_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.numbers[way].store(number, ordering);
    }

    #[inline]
    pub(super) fn take(&self, way: usize) {
        // Release: what was done before comes before; who frees the object has the read side's order besides.
        self.set_tag(way, 0, Ordering::Release);
    }

    #[inline]
    fn set_tag(&self, way: usize, tag: u8, ordering: Ordering) {
        let (word, shift) = (&self.tags[way / 8], (way % 8 * 8) as u32);
        let tags = word.load(Ordering::Relaxed) & !(0xff << shift) | u64::from(tag) << shift;
        word.store(tags, ordering);
    }

    /// Counts an object that belongs here and is further on.
    #[inline]
    pub(super) fn pass(&self) {
        let tags = self.tags[1].load(Ordering::Relaxed);
        // Release: before the object's tag, for who looks on by this count. It is not read under this: a way's tag is.
        self.tags[1].store(tags + (1 << 32), Ordering::Release);
    }

    /// Counts one less.
    #[inline]
    pub(super) fn unpass(&self) {
        let tags = self.tags[1].load(Ordering::Relaxed);
        // Release: as in `pass`.
        self.tags[1].store(tags - (1 << 32), Ordering::Release);
    }

    /// How many objects that belong here are further on.
    pub(super) fn passed(&self) -> u32 {
        (self.tags[1].load(Ordering::Relaxed) >> 32) as u32
    }

    #[cfg(lowwater_loom)]
    pub(super) fn assert_unread(&mut self) {
        self.tags[0].with_mut(|_| ());
    }
}
