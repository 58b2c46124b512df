//! The tag of an object in a bucket: a byte of its hash, by which most other objects are excluded.
//!
//! A change must ensure that no hash has the tag of a free way or of a hidden object.

/// The tag of a free way.
pub(super) const FREE: u8 = 0;
/// The tag of an object of unknown hash (`hidden.rs`): no lookup finds it.
pub(super) const HIDDEN: u8 = 1;
/// The least tag of a hash.
pub(super) const TAG_MIN: u8 = 2;

/// Returns the tag of a hash.
#[inline]
pub(super) fn tag(hash: u64) -> u8 {
    (hash as u8).max(TAG_MIN)
}
