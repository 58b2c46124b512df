//! The part of an index that only its writers need.

use super::pool::SegmentPool;
use core::ptr::NonNull;

/// What only those need to know who change the directory.
pub(super) struct Growth {
    pub(super) segments: usize,
    /// From many segments on; closed at the index' end.
    pub(super) pool: Option<NonNull<SegmentPool>>,
}

// SAFETY: a pool may be used from any thread, and is there as long as the index, whoever's it is.
unsafe impl Send for Growth {}

impl Growth {
    pub(super) const fn new() -> Self {
        Self { segments: 0, pool: None }
    }
}
