//! The settings of one group, and the sums derived from them.
//!
//! Relaxed atomics, except `max`: each charge reads limits without a lock, and a charge that reads
//! an old limit counts as having come before the change. A change must keep the order of `swap_max`
//! or `swap_high` and the drain of the stock after it, and of `setting` and the usage (see
//! "Orderings" in `protection`).

use crate::mutated;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The settings of one group, in bytes; `u64::MAX` in `high` and `max` is no limit.
pub(super) struct Limits {
    pub(super) min: Guarantee,
    pub(super) low: Guarantee,
    high: AtomicU64,
    max: AtomicU64,
    /// The owner of the tree removes the group's objects, so no reclaimer does it for `max`. Set
    /// once, before the owner stores a `max` of 0.
    is_being_dropped: AtomicBool,
}

/// `min` or `low` of one group, in bytes.
pub(super) struct Guarantee {
    /// The value that the user has set.
    pub(super) setting: AtomicU64,
    /// The part of the setting that the parent counts: `min(usage, setting)` when no change is in
    /// progress, 0 for a dying group.
    pub(super) claim: AtomicU64,
    /// The sum of the children's claims.
    pub(super) children: AtomicU64,
}

impl Limits {
    pub(super) fn new() -> Self {
        Self {
            min: Guarantee::new(),
            low: Guarantee::new(),
            high: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(u64::MAX),
            is_being_dropped: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(super) fn high(&self) -> u64 {
        // Relaxed: a single number on which no other data depends.
        self.high.load(Ordering::Relaxed)
    }

    /// Sets `high` and returns the previous value.
    pub(super) fn swap_high(&self, high: u64) -> u64 {
        // Relaxed: a single number on which no other data depends.
        self.high.swap(high, Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn max(&self) -> u64 {
        // Acquire: pairs with the Release in `swap_max`.
        self.max.load(Ordering::Acquire)
    }

    /// Sets `max` and returns the previous value.
    pub(super) fn swap_max(&self, max: u64) -> u64 {
        // Release: pairs with the Acquire in `max`: a thread that reads a `max` which was raised
        // after the group's end finds the group offline. A thread that fills a stock slot reads
        // `max` under that slot's lock, which the drain takes after this store: either the thread
        // reads the new `max`, or the drain finds its bytes.
        self.max.swap(max, if mutated!("max swap relaxed") { Ordering::Relaxed } else { Ordering::Release })
    }

    /// Ends the effect of `max` on [`reclaim_max`](Self::reclaim_max).
    pub(super) fn begin_drop(&self) {
        // Relaxed: the Release of the `swap_max` that follows pairs with the Acquire in `max`.
        self.is_being_dropped.store(true, Ordering::Relaxed);
    }

    /// Returns `max`, or no limit after `begin_drop`.
    pub(super) fn reclaim_max(&self) -> u64 {
        let max = self.max();
        // Relaxed: after `max`, whose Acquire pairs with the Release of a `swap_max` after
        // `begin_drop`: a thread that reads that `max` sees the flag.
        if self.is_being_dropped.load(Ordering::Relaxed) {
            u64::MAX
        } else {
            max
        }
    }
}

impl Guarantee {
    fn new() -> Self {
        Self { setting: AtomicU64::new(0), claim: AtomicU64::new(0), children: AtomicU64::new(0) }
    }

    pub(super) fn setting(&self) -> u64 {
        // Relaxed: a single number; where its order with the usage matters, the caller fences.
        self.setting.load(Ordering::Relaxed)
    }

    /// Returns whether the group has this guarantee, or has a claim left from it.
    pub(super) fn is_used(&self) -> bool {
        // Relaxed: if a thread makes this true while we read false, its refresh follows our change
        // of usage (see "Orderings" in `protection`).
        self.setting() != 0 || self.claim.load(Ordering::Relaxed) != 0
    }
}
