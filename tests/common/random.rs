//! A linear congruential generator: the same numbers in each run.
//!
//! No dependency, and the same sequence on all machines, so that bounds on results are stable.
//!
//! A change of the sequence requires all bounds that depend on it to be checked again.

/// The generator: see the module.
pub struct Random(pub u64);

impl Random {
    /// Returns a number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Returns a number below `end`, smaller ones more often: approximately Zipf with exponent 1.
    pub fn zipf(&mut self, end: u64) -> u64 {
        let fraction = (self.below(1 << 30) as f64 + 1.0) / (1_u64 << 30) as f64;
        ((end as f64).powf(fraction) as u64 - 1).min(end - 1)
    }
}
