//! The part of an index that only its writers use.
//!
//! It is guarded by one lock, which writers take only around the replacement of a segment: lookups,
//! and inserts and removals within a segment, do not share it. A change must ensure that the pool
//! is created once and closed only when the index is dropped.

use super::pool::SegmentPool;
use core::ptr::NonNull;

/// State used only by operations that change the directory.
pub(super) struct Growth {
    /// The number of segments in the directory.
    pub(super) segments: usize,
    /// `Some` once a segment has had `POOLED_DEPTH`; closed when the index is dropped.
    pub(super) pool: Option<NonNull<SegmentPool>>,
}

// SAFETY: a pool may be used from any thread, and exists as long as its index, whichever thread
// owns the index.
unsafe impl Send for Growth {}

impl Growth {
    pub(super) const fn new() -> Self {
        Self { segments: 0, pool: None }
    }
}
