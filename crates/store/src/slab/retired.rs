//! Counts of bytes that were retired and are not dropped yet: of one slab, and of all slabs that
//! share a count.

use crate::sync::atomic::{AtomicU64, Ordering};
use core::fmt;
use lowwater_base::ByteSize;

/// The [weight](super::Slotted::weight) of objects that were retired and are not dropped yet, of
/// all slabs that were [made with it](super::Slab::with_retired), but for 4 KiB at most for each
/// thread_cache of each of them.
///
/// An object is counted from when its [`Slot`](super::Slot) is dropped, until its `Drop` has run.
/// One without a `Drop` is counted until its readers have left: from then on it is a free slot.
pub struct RetiredBytes(AtomicU64);

impl RetiredBytes {
    /// Nothing was retired yet.
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// How much it is now.
    #[inline]
    pub fn get(&self) -> ByteSize {
        // Relaxed: a number to look at. Two thread_caches may say in either order that an object came and
        // that it went.
        let bytes = self.0.load(Ordering::Relaxed) as i64;
        ByteSize::new(u64::try_from(bytes).unwrap_or(0))
    }

    /// Counts so many more bytes, or less, if `more` is negative: also for an owner of objects that are kept from being freed outside of a slab,
    /// who takes back what it has added.
    pub fn add(&self, more: i64) {
        // Relaxed: as in `get`.
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
