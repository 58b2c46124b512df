//! So many in each directory: what was asked for at LSFMM 2026.

use super::policy::{BoundInputs, NegativePolicy};
use super::trim::NewNegative;

/// Keeps at most so many negatives in each directory, those that were asked for again before others.
#[derive(Clone, Copy, Debug)]
pub struct PerDirectory(
    /// How many.
    pub usize,
);

impl Default for PerDirectory {
    /// 1,000, of which Ts'o said that all sane workloads could live with it.
    fn default() -> Self {
        Self(1000)
    }
}

impl NegativePolicy for PerDirectory {
    fn name(&self) -> &'static str {
        "per-directory"
    }

    fn negative_added(&self, negative: &NewNegative<'_>) {
        negative.trim_directory(self.0);
    }

    fn bound(&self, inputs: BoundInputs) -> Option<u64> {
        Some((self.0 as u64).saturating_mul(inputs.directories))
    }
}
