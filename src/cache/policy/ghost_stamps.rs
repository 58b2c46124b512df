//! The stamps of ghosts, and the sample of keys that have ghosts while their tenant scans.
//!
//! A ghost is the hash of an evicted key, kept for a while (`runtime/ghosts.rs`). Its stamp is the
//! time of the eviction, in ticks of the tenant's clock. Keys that are evicted together are stamped
//! from one reading of that clock.
//!
//! A tenant scans if almost none of its inserts is of a key with a ghost (`Tenant::is_scanning`).
//! Then only a sample of its keys get ghosts: all tenants share the ghost table, and a scan that
//! filled it would overwrite the ghosts of the others. The sample still detects the end of the
//! scan.
//!
//! A change must ensure that evictions (which record ghosts) and inserts of entries (which look
//! them up) use the same sample. Otherwise ghosts are recorded that no insert finds.

use crate::runtime::Ghost;

/// While a tenant scans, ghosts are recorded and looked up only for the keys of one hash in
/// `SCANNING_ONE_IN`, a power of two (`is_sampled`).
pub(super) const SCANNING_ONE_IN: u32 = 64;

/// The stamps of the ghosts of keys that are evicted together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GhostStamps {
    /// The tenant's clock at the first eviction.
    pub(super) first: u32,
    /// One tick is 2^`shift` evictions.
    pub(super) shift: u32,
    /// Whether the keys are evicted from the main queue, and not from probation.
    pub(super) is_main: bool,
    /// Whether the tenant scans, so that only sampled keys get ghosts.
    pub(super) is_scanning: bool,
}

impl GhostStamps {
    /// Returns the ghost of the key of this mixed hash that was evicted as number `at` of the
    /// batch; `None` if the tenant scans and the hash is not in the sample.
    #[inline]
    pub(crate) fn ghost(self, at: u32, hash: u64) -> Option<Ghost> {
        let time = ticks(self.first.wrapping_add(at), self.shift);
        (!self.is_scanning || is_sampled(hash)).then_some(Ghost { is_main: self.is_main, time })
    }
}

/// The distance between the first ticks of clocks with ticks of different lengths, as a power of
/// two: ghosts that were stamped before a change of the length are then not found, as if they were
/// older than the table can tell.
const FIRST_TICK_SHIFT: u32 = 26;

/// Returns the tick of a clock that counts evictions, with ticks of 2^`shift` evictions; wrapping.
#[inline]
pub(super) fn ticks(clock: u32, shift: u32) -> u32 {
    (clock >> shift).wrapping_sub(shift << FIRST_TICK_SHIFT)
}

/// Returns whether the keys of this mixed hash have ghosts while the tenant scans.
#[inline]
pub(super) fn is_sampled(hash: u64) -> bool {
    // Bits of the hash that select neither the bucket of the ghost (the low 32) nor its tag (the
    // high 16; `runtime/ghosts.rs`), so that the sample spreads over all buckets.
    hash >> 36 & u64::from(SCANNING_ONE_IN - 1) == 0
}
