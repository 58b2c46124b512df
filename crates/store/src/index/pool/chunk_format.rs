//! The layout of the chunks of a segment pool.
//!
//! The unit is chosen such that a chunk of 64 KiB has nearly no remainder for any class. A change
//! of the unit or of the classes must be checked against [`class`](super::super::class): the
//! segments of the smallest pooled class are exactly one unit, which an assertion below checks.

use crate::index::class::Class;
use crate::index::segment_header::bytes;
use lowwater_base::slots::ChunkLayout;

/// The header of a chunk, found from a segment's address. Never changes while the chunk exists.
#[repr(align(64))]
pub(super) struct SegmentChunkHeader {
    /// The pool, as `*mut SegmentPool`.
    pub(super) pool: *mut (),
    /// The chunk's index in the pool's array.
    pub(super) number: u32,
}

/// The classes of pooled segments: of 1, 1.5 (and half a line), 2, 3, 4 and 6 units. The allocator
/// packs smaller segments well enough, and larger ones occur only with bad hashers.
pub(super) const CLASSES: core::ops::RangeInclusive<Class> = 8..=13;
pub(super) const SIZE_CLASSES: usize = (*CLASSES.end() - *CLASSES.start()) as usize + 1;

/// A unit: 17 cache lines, the size of the smallest pooled segment. The segments of all classes but
/// one are multiples, and fill the 60 units of a chunk: 60 is a multiple of 1, 2, 3, 4 and 6.
#[repr(align(64))]
struct Unit(#[expect(dead_code, reason = "only its size counts")] [u8; 17 * 64]);

pub(super) const GEOMETRY: ChunkLayout = ChunkLayout::of::<Unit>();
// In a model check segments are larger, and no index is large enough for a pool.
#[cfg(not(lowwater_loom))]
const _: () = assert!(GEOMETRY.full == 64 << 10 && bytes(*CLASSES.start()) == size_of::<Unit>());
#[cfg(not(lowwater_loom))]
const _: () = assert!((GEOMETRY.full - size_of::<SegmentChunkHeader>()) / size_of::<Unit>() == 60);

/// Returns the number of slots of a chunk for this class.
pub(super) const fn slots(class: Class) -> u32 {
    ((GEOMETRY.full - size_of::<SegmentChunkHeader>()) / bytes(class)) as u32
}
