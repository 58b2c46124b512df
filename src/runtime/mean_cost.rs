//! The mean of what values cost to make again, over all caches of a runtime that were told.

use std::sync::atomic::{AtomicU64, Ordering};

/// An insert moves the mean by one in so many of the distance to its cost.
const MEAN_OF: f64 = 1_024.0;

/// The mean of the logarithms of recent costs, as the bits of an `f64` and inverted, so that 0 is none: one odd cost hardly moves it.
/// A tally: all accesses are Relaxed, and a lost update does no harm.
#[derive(Default)]
pub(crate) struct MeanCost(AtomicU64);

impl MeanCost {
    /// A cost in parts of the mean of recent ones, to which it is added.
    pub(crate) fn relative(&self, cost: u64) -> f64 {
        let cost = (cost.max(1) as f64).log2();
        let mean = match self.0.load(Ordering::Relaxed) {
            0 => cost,
            bits => {
                let before = f64::from_bits(!bits);
                before + (cost - before) / MEAN_OF
            }
        };
        self.0.store(!mean.to_bits(), Ordering::Relaxed);
        (cost - mean).exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_geometric_and_one_odd_cost_hardly_moves_it() {
        let mean = MeanCost::default();
        assert_eq!(mean.relative(7), 1.0);
        for cost in [100, 400].into_iter().cycle().take(20_000) {
            mean.relative(cost);
        }
        let relative = mean.relative(200);
        assert!((0.99..1.01).contains(&relative), "{relative}");
        mean.relative(u64::MAX);
        let relative = mean.relative(200);
        assert!((0.95..1.01).contains(&relative), "{relative}");
    }
}
