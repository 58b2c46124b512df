//! Counting the bytes of a group, in the group and in all groups above it.
//!
//! # In pseudo-code
//!
//! ```text
//!     for group in self, parent, .., root:
//!         usage' = group.usage + bytes;  usage' > limit?  subtract again from the groups below, fail
//!         compare_exchange(group.usage, usage')
//! ```
//!
//! The kernel's page counters add first and subtract again if the sum is too high, so that for an
//! instant the counter is above the limit, and a second charge may fail because of one that fails
//! itself. Here a counter only changes to a value that its limit allows. (Below the group that
//! refuses, bytes of the failing charge are counted for an instant, so there a second charge may
//! still fail unnecessarily. The caller reclaims and retries, as after any other failure.)
//!
//! `limit` is the group's `max`, or, for a charge that fills the stock, the lower of `max` and
//! `high`.
//!
//! # Invariants
//!
//! 1. No charge takes `usage` above the limit that the charge read.
//! 2. When no operation is in progress, the `usage` of a group is the sum of the bytes charged to
//!    it and to the groups below and not uncharged yet, plus the bytes in [stock](super::stock) for
//!    those.
//!
//! A change must ensure that a refused charge leaves every group's usage as it was, and that each
//! change of usage is followed by `refresh_chain`, which updates the sums of
//! [protection](super::protection). `mutated!("name")` injects a fault in a model check
//! (docs/ORDERINGS.md).

use super::group::Memcg;
use super::limits::Limits;
use crate::mutated;
use crate::sync::atomic::Ordering;

impl Memcg {
    /// Adds `bytes` here and in all groups above, up to `limit` of each group. An error contains
    /// the group that refused.
    pub(super) fn add_usage(&self, bytes: u64, limit: impl Fn(&Limits) -> u64) -> Result<(), &Memcg> {
        // Bounded by the depth.
        for memcg in self.ancestry() {
            // Relaxed, here and in the exchange: the counter is only a number, and no memory access
            // depends on it. The limit is enforced by the exchange of one word.
            let add = |usage: u64| usage.checked_add(bytes).filter(|sum| *sum <= limit(memcg.limits()));
            let usage = memcg.usage_counter();
            if mutated!("charge without exchange") {
                // Relaxed: this variant is wrong on purpose.
                usage.store(add(usage.load(Ordering::Relaxed)).unwrap_or(0), Ordering::Relaxed);
            } else if usage.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
                self.sub_usage_below(memcg, bytes);
                return Err(memcg);
            }
        }
        self.refresh_chain();
        Ok(())
    }

    /// Subtracts `bytes` here and in all groups above, or this group's usage if that is less.
    /// Returns the subtracted bytes.
    pub(super) fn sub_usage(&self, bytes: u64) -> u64 {
        // A group above contains no more of the bytes than this group had.
        let subtracted = self.sub_own(bytes);
        for memcg in self.ancestry().skip(1) {
            memcg.sub_own(subtracted);
        }
        self.refresh_chain();
        subtracted
    }

    /// Subtracts `bytes` here and in the groups above that are below `end`.
    fn sub_usage_below(&self, end: &Memcg, bytes: u64) {
        for memcg in self.ancestry().take_while(|memcg| *memcg != end) {
            memcg.sub_own(bytes);
        }
        self.refresh_chain();
    }

    /// Subtracts `bytes` from this group's own counter, or all of it if it has less. Returns the
    /// subtracted bytes.
    fn sub_own(&self, bytes: u64) -> u64 {
        let sub = |usage: u64| Some(usage.saturating_sub(bytes));
        // Relaxed: the counter is only a number, and no memory access depends on it. The closure
        // always returns `Some`, so the update cannot fail.
        let before = self.usage_counter().fetch_update(Ordering::Relaxed, Ordering::Relaxed, sub).unwrap_or(0);
        before.min(bytes)
    }

    /// Returns whether no group up to the root uses more than its `max`; one can, if its `max` was
    /// lowered below the usage.
    pub(super) fn is_within_max(&self) -> bool {
        self.ancestry().all(|memcg| memcg.usage().get() <= memcg.limits().max())
    }

    /// Returns the nearest group up to the root that uses more than its `high`.
    pub(super) fn above_high(&self) -> Option<&Memcg> {
        self.ancestry().find(|memcg| memcg.usage().get() > memcg.limits().high())
    }
}
