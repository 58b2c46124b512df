//! Miss costs: the cost to recreate a value, relative to the geometric mean of the runtime's recent
//! inserts into caches with a cost function, so the costs of all its caches have one unit. Victim
//! selection weights the hits of a cache by its mean relative cost; the cost of a single value
//! weights the ghost hit of its key.
//!
//! A change must ensure that the user's cost function is called once per inserted value, and that
//! any result, 0 and the largest number included, is valid.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::runtime::MeanCost;

/// Units of a [`RelativeCost`] that make up the mean cost: the registry takes costs in sixteenths.
const PARTS: u64 = 16;
/// The largest relative cost, in multiples of the mean; the smallest is one part. Documented at
/// `CacheBuilder::recreation_cost`.
const RELATIVE_MAX: u64 = 256;
/// Each insert moves the cache's mean by 1 / `MEAN_OF` of the distance to its cost.
const MEAN_OF: u64 = 64;
/// Units of the cache's mean per unit of a [`RelativeCost`].
const MEAN_PARTS: u64 = 1 << 10;

type Cost<K, V> = dyn Fn(&K, &V) -> u64 + Send + Sync;

/// The user's function for the cost of a value, and the mean of the cache's recent relative costs.
#[doc(alias = "recreation cost")]
pub(crate) struct MissCost<K, V> {
    cost: Box<Cost<K, V>>,
    /// The mean, in units of 1 / [`MEAN_PARTS`] of a part; 0 before the first insert. A statistic:
    /// all accesses are Relaxed, and a lost update only makes it less exact.
    mean: AtomicU64,
}

/// A cost relative to the mean, in units of 1 / [`PARTS`] of the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RelativeCost(u64);

impl Default for RelativeCost {
    /// Returns the mean cost.
    fn default() -> Self {
        Self(PARTS)
    }
}

impl<K, V> MissCost<K, V> {
    pub(crate) fn new(cost: impl Fn(&K, &V) -> u64 + Send + Sync + 'static) -> Self {
        Self { cost: Box::new(cost), mean: AtomicU64::new(0) }
    }

    /// Returns the cost of a value that is about to be inserted, relative to the mean cost of the
    /// runtime's inserts, and updates both means.
    pub(crate) fn relative(&self, key: &K, value: &V, costs: &MeanCost) -> RelativeCost {
        let relative = costs.relative((self.cost)(key, value));
        let parts = ((relative * PARTS as f64) as u64).clamp(1, RELATIVE_MAX * PARTS);
        let seen = parts * MEAN_PARTS;
        let mean = match self.mean.load(Ordering::Relaxed) {
            0 => seen,
            mean => mean - mean / MEAN_OF + seen / MEAN_OF,
        };
        self.mean.store(mean, Ordering::Relaxed);
        RelativeCost(parts)
    }

    /// Returns the mean of recent relative costs; before the first insert, the smallest cost.
    pub(crate) fn mean(&self) -> RelativeCost {
        RelativeCost((self.mean.load(Ordering::Relaxed) / MEAN_PARTS).max(1))
    }
}

impl RelativeCost {
    /// Returns the cost in 16ths of the mean.
    pub(crate) fn sixteenths(self) -> u32 {
        self.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_relative_to_the_mean_of_recent_inserts() {
        let (costs, mean) = (MissCost::<(), u64>::new(|_, cost| *cost), MeanCost::default());
        let relative = |cost| costs.relative(&(), &cost, &mean).sixteenths();
        assert_eq!((relative(0), relative(0)), (16, 16), "nothing is the least there is");
        let around =
            |expected: u32, relative: u32| assert!(relative.abs_diff(expected) <= 2, "{relative} for {expected}");
        for cost in [100, 400].into_iter().cycle().take(20_000) {
            relative(cost);
        }
        around(8, relative(100));
        around(32, relative(400));
        around(20, costs.mean().sixteenths());
        assert_eq!(relative(0), 1, "a sixteenth at least");
        assert_eq!(relative(u64::MAX), 256 * 16, "256 times at most");
        around(8, relative(100));
    }

    #[test]
    fn caches_share_the_mean() {
        let (cheap, dear) = (MissCost::<(), ()>::new(|(), ()| 1), MissCost::<(), ()>::new(|(), ()| 16));
        let mean = MeanCost::default();
        for _ in 0..20_000 {
            cheap.relative(&(), &(), &mean);
            dear.relative(&(), &(), &mean);
        }
        let means = (cheap.mean().sixteenths(), dear.mean().sixteenths());
        assert!((3..=4).contains(&means.0) && (63..=64).contains(&means.1), "{means:?}");
    }
}
