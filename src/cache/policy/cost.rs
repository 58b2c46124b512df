//! What it costs to make a value again, against what others cost.

use std::sync::atomic::{AtomicU64, Ordering};

use lowwater_lru_core::Bytes;

/// Parts of a [`Worth`].
const PARTS: u64 = 16;
/// The dearest counts for so many of the mean, the cheapest for one part.
const MOST: u64 = 16;
/// What an insert moves the mean by: one in so many of how far its cost is from it.
const MEAN_OF: f64 = 256.0;

type Cost<K, V> = dyn Fn(&K, &V) -> u64 + Send + Sync;

/// What values of a cache cost, as its user says.
pub(crate) struct Costs<K, V> {
    of: Box<Cost<K, V>>,
    /// The mean of the logarithms of what was put in lately, an `f64`: so that one which is out of all proportion hardly moves it. Not a number before
    /// the first. A tally: everything is Relaxed, and a lost step no harm.
    mean: AtomicU64,
}

/// A cost against the mean, in [`PARTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Worth(u64);

impl Default for Worth {
    /// That of the mean.
    fn default() -> Self {
        Self(PARTS)
    }
}

impl<K, V> Costs<K, V> {
    pub(crate) fn new(of: impl Fn(&K, &V) -> u64 + Send + Sync + 'static) -> Self {
        Self { of: Box::new(of), mean: AtomicU64::new(f64::NAN.to_bits()) }
    }

    /// Of a value that is to be put in.
    pub(crate) fn worth(&self, key: &K, value: &V) -> Worth {
        let cost = ((self.of)(key, value).max(1) as f64).log2();
        let before = f64::from_bits(self.mean.load(Ordering::Relaxed));
        let mean = if before.is_nan() { cost } else { before + (cost - before) / MEAN_OF };
        self.mean.store(mean.to_bits(), Ordering::Relaxed);
        Worth((((cost - mean).exp2() * PARTS as f64) as u64).clamp(1, MOST * PARTS))
    }
}

impl Worth {
    /// So many bytes are worth those of others.
    pub(crate) fn of(self, bytes: Bytes) -> Bytes {
        Bytes::new((u128::from(bytes.get()) * u128::from(self.0) / u128::from(PARTS)).try_into().unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worth_is_against_the_mean_of_what_was_put_in_lately() {
        let costs = Costs::<(), u64>::new(|_, cost| *cost);
        let worth = |cost| costs.worth(&(), &cost).of(Bytes::new(1_600)).get();
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
            assert_eq!(Worth::default().of(Bytes::new(bytes)), Bytes::new(bytes));
        }
        assert_eq!(Worth(MOST * PARTS).of(Bytes::MAX), Bytes::MAX);
    }
}
