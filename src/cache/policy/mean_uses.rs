//! A moving mean of the use counts of the records that eviction walks visit.
//!
//! The means of both queues are compared, to shrink probation while its records are used less.
//!
//! A change must ensure that all bytes may be zero, as in a new tenant: a mean of 0.

use std::sync::atomic::{AtomicU32, Ordering};

/// Each record moves the mean by 1 / `MEAN_OF` of the distance to its use count.
const MEAN_OF: u64 = 128;

/// A moving mean of use counts, in fixed point. All accesses are Relaxed: it is a statistic, and a
/// lost update only makes it less exact.
#[derive(Default)]
pub(crate) struct MeanUses(AtomicU32);

impl MeanUses {
    /// One use, in fixed point.
    pub(crate) const ONE: u64 = 1 << 20;

    /// Adds `records` records with a total of `uses` uses to the mean.
    pub(crate) fn note(&self, records: u64, uses: u64) {
        let counted = records.clamp(1, MEAN_OF);
        let mean = self.get() * (MEAN_OF - counted) + uses * Self::ONE * counted / records.max(1);
        self.0.store(u32::try_from(mean / MEAN_OF).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Returns the mean number of uses of a record, times [`ONE`](Self::ONE).
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed).into()
    }

    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_follows_the_visited_records() {
        let uses = MeanUses::default();
        (0..2_000).for_each(|n| uses.note(8, 8 * (n % 2)));
        assert!(uses.get().abs_diff(MeanUses::ONE / 2) < MeanUses::ONE / 16, "{}", uses.get());
        (0..2_000).for_each(|_| uses.note(1, 0));
        assert!(uses.get() < MeanUses::ONE / 1_000, "{}", uses.get());
        uses.note(500, 3 * 500);
        assert_eq!(uses.get(), 3 * MeanUses::ONE);
        uses.reset();
        assert_eq!(uses.get(), 0);
    }
}
