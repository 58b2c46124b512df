//! The progress of sweeps, for a charge that would be refused.
//!
//! A sweep visits a part of the caches, so a charge that waits for readers must not count a sweep
//! that drops nothing as a wait before all caches were visited. A change must ensure that a charge
//! does not wait for ever: until its deadline each new low of the retired bytes begins another lap
//! over all caches; afterwards only the rest of the present lap counts.

use lowwater_lru_core::ByteSize;

use super::retired::Retired;

/// The progress of the sweeps of all threads since a charge began to wait; see the module.
pub(crate) struct SweepProgress<'a> {
    retired: &'a Retired,
    /// The fewest retired bytes that were seen.
    least: ByteSize,
    /// The number of visits when the lap over all caches began, and when it was read last.
    begin: u64,
    seen: u64,
}

impl<'a> SweepProgress<'a> {
    /// Begins with the present state.
    pub(crate) fn of(retired: &'a Retired) -> Self {
        let visits = retired.visits();
        Self { retired, least: retired.bytes(), begin: visits, seen: visits }
    }

    /// Returns whether another sweep may help without a wait for readers: since the last call
    /// sweeps have visited more caches, and not all of this lap yet; or, unless the charge
    /// `is_late`, the retired bytes have become fewer than ever.
    pub(crate) fn is_made(&mut self, is_late: bool) -> bool {
        let (bytes, visits) = (self.retired.bytes(), self.retired.visits());
        let has_visited = visits != std::mem::replace(&mut self.seen, visits);
        if bytes < self.least && !is_late {
            (self.least, self.begin) = (bytes, visits);
            return true;
        }
        has_visited && visits.wrapping_sub(self.begin) < self.retired.caches() as u64
    }
}
