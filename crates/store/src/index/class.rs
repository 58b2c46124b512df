//! The sizes that a segment may have.

use super::bucket::WAYS;

/// How many buckets a segment may have: 1, 2, 3, 4, 6, 8, 12, 16, 25, 33, .., from class 1 on.
pub(super) type Class = u8;
/// The class of the smallest.
pub(super) const CLASS_MIN: Class = 1;
/// From here on a full segment is split, if that helps: 101 buckets.
pub(super) const CLASS_SPLIT: Class = if cfg!(lowwater_loom) { 1 } else { 13 };
/// The largest there can be, for objects whose hashes do not differ.
pub(super) const CLASS_MAX: Class = 57;
/// As many as an address has room for ([`Directory`](super::Directory)).
pub(super) const CLASSES: usize = 64;

/// Buckets of a class: twice as many for each second one, and from 16 on a 17th more, less one for the header: so a [`SegmentPool`] has units for
/// them of which a chunk is full.
#[inline]
pub(super) const fn buckets(class: Class) -> usize {
    // None is larger; so that the compiler knows.
    BUCKETS[class as usize % CLASSES] as usize
}

/// By class: a lookup asks, and a line that is always close is quicker than reckoning.
const BUCKETS: [u32; CLASSES] = {
    let mut buckets = [0; CLASSES];
    let mut class = CLASS_MIN as usize;
    while class <= CLASS_MAX as usize {
        // 135 / 128 is 17 / 16 about, and rounds as wanted; the half is that of each first one.
        buckets[class] = ((((2 | (class as u64 & 1)) << (class >> 1)) * 135) >> 8) as u32;
        class += 1;
    }
    buckets
};

/// Objects in a segment of this class, so that few are far from their bucket.
pub(super) const fn len_max(class: Class) -> usize {
    if cfg!(lowwater_loom) {
        return buckets(class) * WAYS;
    }
    buckets(class) * WAYS / 6 * 5
}

/// The smallest class for so many objects.
pub(super) fn class_for(len: usize) -> Class {
    (CLASS_MIN..CLASS_MAX).find(|&class| len_max(class) >= len).unwrap_or(CLASS_MAX)
}
