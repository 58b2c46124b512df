//! The counts of visits of a shrinker.
//!
//! Each visit adds its counts once, under the lock of `InFlight`, which it takes anyway. A change
//! must ensure that no additional lock or atomic operation is needed.

use core::ops::AddAssign;

/// The counts of one visit, or the sum of several. The fields are those of
/// [`ShrinkerStats`](super::ShrinkerStats).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VisitCounts {
    pub(crate) callbacks: u64,
    pub(crate) requested: u64,
    pub(crate) scanned: u64,
    pub(crate) freed: u64,
    pub(crate) freed_in_background: u64,
    pub(crate) deferred: u64,
    /// 32 bits, as each of maybe ten thousand caches has these counts.
    pub(crate) panics: u32,
    /// 32 bits, as for `panics`.
    pub(crate) back_offs: u32,
    pub(crate) time_ns: u64,
    /// On the registry's clock; 0 without a clock.
    pub(crate) last_run_ns: u64,
}

impl AddAssign for VisitCounts {
    fn add_assign(&mut self, other: Self) {
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        add(&mut self.callbacks, other.callbacks);
        add(&mut self.requested, other.requested);
        add(&mut self.scanned, other.scanned);
        add(&mut self.freed, other.freed);
        add(&mut self.freed_in_background, other.freed_in_background);
        add(&mut self.deferred, other.deferred);
        self.panics = self.panics.saturating_add(other.panics);
        self.back_offs = self.back_offs.saturating_add(other.back_offs);
        add(&mut self.time_ns, other.time_ns);
        self.last_run_ns = self.last_run_ns.max(other.last_run_ns);
    }
}
