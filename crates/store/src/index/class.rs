//! Size classes of segments.
//!
//! A segment of the index is an array of buckets, of [`WAYS`] objects each; its class determines
//! their number. There are two classes for each power of two, so that a segment that has just grown
//! is two thirds to three quarters as full as before (half as full if it had one bucket). Segments
//! of the pooled classes fill the chunks of a segment pool (`pool/chunk_format.rs`).
//!
//! A change must ensure that a class fits into the low bits of a segment's address, that segments
//! of the pooled classes leave less than 2 % of a chunk unused, and that a full segment has free
//! ways left for objects that overflow.

use super::bucket::WAYS;

/// The size class of a segment. The classes 1, 2, 3, ... have 1, 2, 3, 4, 6, 8, 12, 16, 25, 33, ...
/// buckets.
pub(super) type Class = u8;
/// The class of the smallest segment.
pub(super) const CLASS_MIN: Class = 1;
/// The class (101 buckets) from which on a full segment is split instead of enlarged, if a split
/// separates its objects.
pub(super) const CLASS_SPLIT: Class = if cfg!(lowwater_loom) { 1 } else { 13 };
/// The largest class, reached only if a bad hasher gives very many objects the same leading bits.
pub(super) const CLASS_MAX: Class = 57;
/// The number of class values that fit into the low bits of a segment's address
/// ([`Directory`](super::Directory)).
pub(super) const CLASSES: usize = 64;

/// Returns the number of buckets of a class: doubled every second class. From class 8 (16 buckets)
/// on the doubled number is increased by about 1/16, and reduced by one for the header. For the
/// pooled classes but 9 this is exact: 16 buckets and the header are one unit of a
/// [`SegmentPool`](super::pool::SegmentPool)'s chunk. Class 9 has half a bucket more.
#[inline]
pub(super) const fn buckets(class: Class) -> usize {
    // The modulus changes nothing, since no class is larger; it removes the bounds check.
    BUCKETS[class as usize % CLASSES] as usize
}

/// Buckets by class. A table, because every lookup needs it, and reading a line that stays cached
/// is faster than computing the value.
const BUCKETS: [u32; CLASSES] = {
    let mut buckets = [0; CLASSES];
    let mut class = CLASS_MIN as usize;
    while class <= CLASS_MAX as usize {
        // 135 / 128 is a little less than 17 / 16, and rounds to the number without the header in
        // all pooled classes. `2 | class & 1` is 2 or 3: the two classes of a power of two.
        buckets[class] = ((((2 | (class as u64 & 1)) << (class >> 1)) * 135) >> 8) as u32;
        class += 1;
    }
    buckets
};

/// Returns the number of objects at which a segment of this class is full: five sixths of its ways,
/// so that few objects are far from their home bucket. (All ways in a model check.)
pub(super) const fn len_max(class: Class) -> usize {
    if cfg!(lowwater_loom) {
        return buckets(class) * WAYS;
    }
    buckets(class) * WAYS / 6 * 5
}

/// Returns the smallest class that has room for `len` objects.
pub(super) fn class_for(len: usize) -> Class {
    (CLASS_MIN..CLASS_MAX).find(|&class| len_max(class) >= len).unwrap_or(CLASS_MAX)
}
