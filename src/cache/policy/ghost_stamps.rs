//! The stamps of ghosts: the times of evictions, in ticks of a tenant's clock, and the sample of
//! keys that have ghosts while their tenant scans.
//!
//! Keys that are evicted together are stamped from one reading of the clock. A change must ensure
//! that inserts and evictions use the same sample, as otherwise ghosts are inserted that no lookup
//! finds.

use crate::runtime::{Ghost, GHOST_TIMES_MAX};

/// While a tenant scans, ghosts are inserted and looked up only for the keys of one hash in
/// `SCANNING_ONE_IN`: a sample that detects the end of the scan.
pub(super) const SCANNING_ONE_IN: u32 = 64;

/// The stamps of the ghosts of keys that are evicted together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GhostStamps {
    /// The tenant's clock at the first eviction.
    pub(super) first: u32,
    /// The evictions of one tick, as a power of two.
    pub(super) shift: u32,
    pub(super) is_main: bool,
    pub(super) is_scanning: bool,
}

impl GhostStamps {
    /// Returns the ghost of the key of this hash that was evicted as number `at` of the batch;
    /// `None` if the tenant scans and the hash is not in the sample.
    #[inline]
    pub(crate) fn ghost(self, at: u32, hash: u64) -> Option<Ghost> {
        let time = ticks(self.first.wrapping_add(at), self.shift);
        (!self.is_scanning || is_sampled(hash)).then_some(Ghost { is_main: self.is_main, time })
    }
}

/// Returns the tick of a clock with ticks of 2^`shift` evictions.
#[inline]
pub(super) fn ticks(clock: u32, shift: u32) -> u32 {
    (clock >> shift) % GHOST_TIMES_MAX
}

/// Returns whether the keys of this hash have ghosts while the tenant scans.
#[inline]
pub(super) fn is_sampled(hash: u64) -> bool {
    // Bits of the hash that select neither the bucket nor the tag of the ghost, so that the sample
    // spreads over all buckets.
    hash >> 36 & u64::from(SCANNING_ONE_IN - 1) == 0
}
