//! The mean cost of making a value again, over all caches of a runtime that have costs.
//!
//! A cost is compared with the mean, so caches may use any unit, as long as all use the same.
//!
//! A change must ensure that any cost is accepted, 0 and the largest number included.

use std::sync::atomic::{AtomicU64, Ordering};

/// An insert moves the mean towards its cost by their distance divided by this: slowly, so that one
/// outlier hardly moves it.
const MEAN_OF: f64 = 1_024.0;

/// The mean of the logarithms of recent costs, so that large costs do not decide it. Stored as the
/// inverted bits of an `f64`, so that 0 stands for no mean. All accesses are Relaxed: the mean is
/// an estimate, and a lost update does no harm.
#[derive(Default)]
pub(crate) struct MeanCost(AtomicU64);

impl MeanCost {
    /// Adds a cost to the mean, and returns the cost relative to the new mean.
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
