//! Striped counters, so that threads rarely write the same cache line.
//!
//! The caller selects the stripe by a number that mostly differs between threads; a sum is exact
//! when no thread is adding. Not for a counter that is compared with a limit: a read costs a pass
//! over all stripes.
//!
//! A change must ensure that an add writes one stripe and reads no other.

use crate::sync::atomic::{AtomicU64, Ordering};
use alloc::boxed::Box;
use core::fmt;
use crossbeam_utils::CachePadded;

/// The number of stripes of each set of counters.
const STRIPES: usize = if cfg!(lowwater_loom) { 1 } else { 16 };

/// `N` counters, each of which is a sum over stripes. No change is lost, except during a
/// [`reset`](Self::reset); a sum that is read while counters change may miss some of the changes.
pub struct StripedCounters<const N: usize>(Box<[CachePadded<[AtomicU64; N]>]>);

impl<const N: usize> StripedCounters<N> {
    /// Creates counters that are all 0.
    pub fn new() -> Self {
        let stripe = || CachePadded::new(core::array::from_fn(|_| AtomicU64::new(0)));
        Self((0..STRIPES).map(|_| stripe()).collect())
    }

    /// Adds `amount`, which may be negative, to a counter, in the stripe that `at` selects: a
    /// number that threads rarely share.
    ///
    /// # Panics
    ///
    /// If `counter` is not less than `N`.
    #[inline]
    pub fn add(&self, at: usize, counter: usize, amount: i64) {
        // Relaxed: sums order nothing. Negative amounts wrap, in `sum` as well: the value in one
        // stripe may be below 0 where the sum is not.
        self.0[at % STRIPES][counter].fetch_add(amount as u64, Ordering::Relaxed);
    }

    /// Returns the sum of a counter over all stripes; it may be below 0 for an instant, if it is
    /// read while stripes change.
    ///
    /// # Panics
    ///
    /// If `counter` is not less than `N`.
    pub fn sum(&self, counter: usize) -> i64 {
        // Relaxed: sums order nothing.
        let parts = self.0.iter().map(|stripe| stripe[counter].load(Ordering::Relaxed));
        parts.fold(0, u64::wrapping_add) as i64
    }

    /// Sets all counters to 0. Concurrent changes may be lost.
    pub fn reset(&self) {
        for counter in self.0.iter().flat_map(|stripe| stripe.iter()) {
            // Relaxed: sums order nothing.
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the bytes allocated on the heap.
    pub fn footprint(&self) -> usize {
        size_of_val(&*self.0)
    }
}

impl<const N: usize> Default for StripedCounters<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> fmt::Debug for StripedCounters<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..N).map(|counter| self.sum(counter))).finish()
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;

    #[test]
    fn parts_of_any_sign_add_up_and_counters_stay_apart() {
        let counters = StripedCounters::<3>::new();
        std::thread::scope(|s| {
            for thread in 0..4 {
                let counters = &counters;
                s.spawn(move || {
                    for n in 0..1_000 {
                        counters.add(thread * 7 + n, 0, 3);
                        counters.add(n, 0, -2);
                        counters.add(thread, 2, 1);
                    }
                });
            }
        });
        assert_eq!([0, 1, 2].map(|counter| counters.sum(counter)), [4_000, 0, 4_000]);
        assert_eq!(counters.footprint(), STRIPES * size_of::<CachePadded<[AtomicU64; 3]>>());
        counters.reset();
        assert_eq!([0, 1, 2].map(|counter| counters.sum(counter)), [0; 3]);
    }

    #[test]
    #[cfg_attr(panic = "abort", ignore = "it catches a panic")]
    fn an_invalid_counter_index_panics_and_changes_nothing() {
        let counters = StripedCounters::<2>::new();
        for stripe in [0, STRIPES - 1, usize::MAX] {
            let add = || counters.add(stripe, 2, 1);
            assert!(std::panic::catch_unwind(core::panic::AssertUnwindSafe(add)).is_err());
        }
        let sum = || counters.sum(2);
        assert!(std::panic::catch_unwind(core::panic::AssertUnwindSafe(sum)).is_err());
        assert_eq!([0, 1].map(|counter| counters.sum(counter)), [0; 2]);
    }
}
