//! An estimate of the bytes that updates add to a foreign cache during an eviction.
//!
//! The runtime computes the utility of a foreign cache from its turnover: the objects that it holds
//! more, plus those that its scans freed. A weight before and after an eviction hides the objects
//! that other threads added meanwhile. Most evictions are so short that this does not matter. But
//! foyer's take longer than the inserts that fill the room again: two in three of its inserts were
//! hidden, and it was left with a third of the memory in equal use.
//!
//! So the growth between evictions is measured, in bytes per settlement, and the settlements during
//! an eviction are counted:
//!
//! ```text
//!     eviction      updates add bytes        eviction         updates add bytes
//!     -------- weight .............. weight ---------- weight ................. weight ----
//!                      measured            settlements                measured
//!                                          are counted
//! ```
//!
//! A change must ensure that no lock is held while the cache is weighed or changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lowwater::ByteSize;

/// The number of settlements over which growth is averaged: at twice as many, both sums are halved.
const MEAN_OF: u64 = 256;

/// The growth of one foreign cache.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    /// Relaxed: the estimate does not depend on the order of settlements.
    settlements: AtomicU64,
    sums: Mutex<Sums>,
}

#[derive(Debug, Default)]
struct Sums {
    /// Bytes by which the weight has grown between evictions, in `settled` settlements.
    grown: u64,
    settled: u64,
    /// The weight and the number of settlements when the last eviction ended.
    weight: ByteSize,
    settlements: u64,
}

impl Growth {
    /// Creates the growth of a cache that has this weight already.
    pub(crate) fn new(weight: ByteSize) -> Self {
        Self { sums: Mutex::new(Sums { weight, ..Sums::default() }), ..Self::default() }
    }

    /// Counts a settlement.
    pub(crate) fn settled(&self) {
        self.settlements.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins an eviction at this weight: measures the growth since the last one.
    pub(crate) fn begin_eviction(&self, weight: ByteSize) {
        let settlements = self.settlements.load(Ordering::Relaxed);
        let mut sums = self.lock();
        sums.grown = sums.grown.saturating_add((weight - sums.weight).get());
        sums.settled += settlements.wrapping_sub(sums.settlements);
        if sums.settled >= 2 * MEAN_OF {
            (sums.grown, sums.settled) = (sums.grown / 2, sums.settled / 2);
        }
        (sums.weight, sums.settlements) = (weight, settlements);
    }

    /// Ends an eviction at this weight. Returns the bytes that updates have probably added since it
    /// began.
    pub(crate) fn end_eviction(&self, weight: ByteSize) -> ByteSize {
        let settlements = self.settlements.load(Ordering::Relaxed);
        let mut sums = self.lock();
        let hidden = settlements.wrapping_sub(sums.settlements);
        (sums.weight, sums.settlements) = (weight, settlements);
        let added = u128::from(hidden) * u128::from(sums.grown) / u128::from(sums.settled.max(1));
        ByteSize::new(u64::try_from(added).unwrap_or(u64::MAX))
    }

    /// Ignores poison: no panic leaves the sums half changed.
    fn lock(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settlements_during_an_eviction_add_as_much_as_others_before_it() {
        let growth = Growth::default();
        (0..10).for_each(|_| growth.settled());
        growth.begin_eviction(ByteSize::new(1_000));
        (0..3).for_each(|_| growth.settled());
        assert_eq!(growth.end_eviction(ByteSize::new(500)), ByteSize::new(300));
        growth.begin_eviction(ByteSize::new(500));
        assert_eq!(growth.end_eviction(ByteSize::new(400)), ByteSize::ZERO, "there was no update");
        // Removals between two evictions are no growth.
        (0..10).for_each(|_| growth.settled());
        growth.begin_eviction(ByteSize::new(300));
        growth.settled();
        assert_eq!(growth.end_eviction(ByteSize::new(300)), ByteSize::new(50));
    }

    #[test]
    fn the_mean_follows_the_growth_and_does_not_overflow() {
        let growth = Growth::default();
        let mut weight = ByteSize::ZERO;
        for step in [100, 8] {
            for _ in 0..20 * MEAN_OF {
                growth.settled();
                weight += ByteSize::new(step);
                growth.begin_eviction(weight);
                growth.end_eviction(weight);
            }
        }
        growth.settled();
        assert_eq!(growth.end_eviction(weight), ByteSize::new(8));
        for _ in 0..3 {
            growth.begin_eviction(ByteSize::MAX);
            growth.end_eviction(ByteSize::ZERO);
        }
        growth.settled();
        assert!(growth.end_eviction(ByteSize::ZERO) > ByteSize::mib(1));
    }
}
