//! How the chunks of a pool of segments are laid out.

use crate::index::class::Class;
use crate::index::segment_header::bytes;
use lowwater_base::slots::ChunkLayout;

/// What a segment's address leads to. Never changes while the chunk is there.
#[repr(align(64))]
pub(super) struct SegmentChunkHeader {
    /// The pool, as `*mut SegmentPool`.
    pub(super) pool: *mut (),
    pub(super) number: u32,
}

/// The classes whose segments are here: of 1, 1.5, 2, 3, 4 and 6 units. Smaller ones the allocator packs well enough, and larger ones are
/// those of bad hashers.
pub(super) const CLASSES: core::ops::RangeInclusive<Class> = 8..=13;
pub(super) const SIZE_CLASSES: usize = (*CLASSES.end() - *CLASSES.start()) as usize + 1;

/// What all classes but one are multiples of, so that a chunk has room for as many bytes of each: 60 is one of 1, 2, 3, 4 and 6.
#[repr(align(64))]
struct Unit(#[expect(dead_code, reason = "only its size counts")] [u8; 17 * 64]);

pub(super) const GEOMETRY: ChunkLayout = ChunkLayout::of::<Unit>();
// In a model check segments are larger, and no index is large enough.
#[cfg(not(lowwater_loom))]
const _: () = assert!(GEOMETRY.full == 64 << 10 && bytes(*CLASSES.start()) == size_of::<Unit>());
#[cfg(not(lowwater_loom))]
const _: () = assert!((GEOMETRY.full - size_of::<SegmentChunkHeader>()) / size_of::<Unit>() == 60);

/// Slots of a chunk for this class.
pub(super) const fn slots(class: Class) -> u32 {
    ((GEOMETRY.full - size_of::<SegmentChunkHeader>()) / bytes(class)) as u32
}
