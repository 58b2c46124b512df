//! Miss costs: the cost to recreate a value, relative to the mean of the cache.

use std::sync::atomic::{AtomicU64, Ordering};

use lowwater_lru_core::ByteSize;

/// Parts of a [`RelativeCost`].
const PARTS: u64 = 16;
/// The largest relative cost; the smallest is one part.
const RELATIVE_MAX: u64 = 16;
/// An insert moves the mean by one in so many of the distance to its cost.
const MEAN_OF: f64 = 256.0;

type Cost<K, V> = dyn Fn(&K, &V) -> u64 + Send + Sync;

/// The user's function for the cost of a value, and the mean of recent costs.
#[doc(alias = "recreation cost")]
pub(crate) struct MissCost<K, V> {
    cost: Box<Cost<K, V>>,
    /// The mean of the logarithms of recent costs, an `f64`: an outlier hardly moves it. Not a number before
    /// the first insert. A tally: all accesses are Relaxed, and a lost update does no harm.
    mean: AtomicU64,
}

/// A cost relative to the mean, in [`PARTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RelativeCost(u64);

impl Default for RelativeCost {
    /// The mean.
    fn default() -> Self {
        Self(PARTS)
    }
}

impl<K, V> MissCost<K, V> {
    pub(crate) fn new(cost: impl Fn(&K, &V) -> u64 + Send + Sync + 'static) -> Self {
        Self { cost: Box::new(cost), mean: AtomicU64::new(f64::NAN.to_bits()) }
    }

    /// The relative cost of a value that is to be inserted.
    pub(crate) fn relative(&self, key: &K, value: &V) -> RelativeCost {
        let cost = ((self.cost)(key, value).max(1) as f64).log2();
        let before = f64::from_bits(self.mean.load(Ordering::Relaxed));
        let mean = if before.is_nan() { cost } else { before + (cost - before) / MEAN_OF };
        self.mean.store(mean.to_bits(), Ordering::Relaxed);
        RelativeCost((((cost - mean).exp2() * PARTS as f64) as u64).clamp(1, RELATIVE_MAX * PARTS))
    }
}

impl RelativeCost {
    /// Scales bytes by the cost.
    pub(crate) fn scale(self, bytes: ByteSize) -> ByteSize {
        ByteSize::new((u128::from(bytes.get()) * u128::from(self.0) / u128::from(PARTS)).try_into().unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worth_is_against_the_mean_of_what_was_put_in_lately() {
        let costs = MissCost::<(), u64>::new(|_, cost| *cost);
        let worth = |cost| costs.relative(&(), &cost).scale(ByteSize::new(1_600)).get();
        assert_eq!((worth(0), worth(0)), (1_600, 1_600), "nothing is the least there is");
        let around = |expected: u64, worth: u64| assert!(worth.abs_diff(expected) <= 150, "{worth} for {expected}");
        for cost in [100, 400].into_iter().cycle().take(10_000) {
            worth(cost);
        }
        around(800, worth(100));
        around(3_200, worth(400));
        assert_eq!(worth(0), 100, "a sixteenth at least");
        assert_eq!(worth(u64::MAX), 1_600 * 16, "sixteen times at most");
        around(800, worth(100));
        for _ in 0..10_000 {
            worth(7);
        }
        around(1_600, worth(7));
    }

    #[test]
    fn the_mean_is_worth_what_it_is_and_nothing_overflows() {
        for bytes in [0, 1, 999, u64::MAX] {
            assert_eq!(RelativeCost::default().scale(ByteSize::new(bytes)), ByteSize::new(bytes));
        }
        assert_eq!(RelativeCost(RELATIVE_MAX * PARTS).scale(ByteSize::MAX), ByteSize::MAX);
    }
}
