//! A fixed limit per directory, as requested at LSFMM 2026.
//!
//! A simple policy, with which docs/MEASURED.md compares the default. A change must keep it as
//! proposed.

use super::policy::{BoundInputs, NegativePolicy};
use super::trim::NewNegative;

/// Keeps at most a fixed number of negatives in each directory, preferably those that were looked
/// up again.
#[derive(Clone, Copy, Debug)]
pub struct PerDirectory(
    /// The number of negatives.
    pub usize,
);

impl Default for PerDirectory {
    /// Returns a limit of 1,000, with which, according to Ts'o, all sane workloads could live.
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
