//! Counters of bytes that are retired and not yet dropped: of one slab, and of all slabs that share
//! a counter.
//!
//! A cache reads the shared counter to wait when too much memory is retired and not yet freed. Each
//! thread cache reports in steps of 4 KiB, so that threads do not contend for the counter. A change
//! must ensure that each byte added is subtracted once.

use crate::sync::atomic::{AtomicU64, Ordering};
use core::fmt;
use lowwater_base::ByteSize;

/// The [weight](super::Slotted::weight) of objects that are retired and not yet dropped, of all
/// slabs that were [created with it](super::Slab::with_retired). Exact up to 4 KiB for each thread
/// cache of each slab.
///
/// An object is counted from the drop of its [`Slot`](super::Slot), or from its removal from the
/// index if that comes later, until its `Drop` has run. An object without a `Drop` is counted until
/// its readers have left: from then on it is a free slot.
pub struct RetiredBytes(AtomicU64);

impl RetiredBytes {
    /// Creates a counter at zero.
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns the bytes that are retired and not yet dropped, as exact as the type says. 0 while
    /// the sum is negative, because thread caches have reported removals first.
    #[inline]
    pub fn get(&self) -> ByteSize {
        // Relaxed: a statistic. Two thread caches may report an object's addition and removal in
        // either order, so the sum may be negative for a moment.
        ByteSize::of_wrapped_sum(self.0.load(Ordering::Relaxed))
    }

    /// Returns the sum, which is negative while removals were reported first.
    pub(super) fn sum(&self) -> i64 {
        // Relaxed: as in `get`.
        self.0.load(Ordering::Relaxed) as i64
    }

    /// Adds `more` bytes, or subtracts if `more` is negative. Also for an owner that delays the
    /// freeing of objects outside of a slab; it later subtracts as much as it has added.
    pub fn add(&self, more: i64) {
        // Relaxed: a statistic, as in `get`.
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }
}

impl Default for RetiredBytes {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RetiredBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RetiredBytes").field(&self.get()).finish()
    }
}
