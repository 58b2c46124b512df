//! The bound of seed 002: three in a row.

use super::policy::{BoundInputs, NegativePolicy};
use super::trim::NewNegative;

/// Keeps at most three unused negatives in a row in each hash bucket; the fourth and oldest goes.
///
/// A positive in the chain, or a negative that was asked for again, begins a new row. So the bound is on names that are asked for
/// once; who asks twice is not bounded.
#[derive(Clone, Copy, Debug, Default)]
#[doc(alias = "trim_negative")]
pub struct ThreeInARow;

/// How many stay in a row.
const ROW: usize = 3;

impl NegativePolicy for ThreeInARow {
    fn name(&self) -> &'static str {
        "three-in-a-row"
    }

    fn negative_added(&self, negative: &NewNegative<'_>) {
        // The new one is the first of its row.
        negative.trim_chain(ROW - 1);
    }

    fn bound(&self, inputs: BoundInputs) -> Option<u64> {
        // Each positive can begin one more row.
        Some(inputs.buckets.saturating_add(inputs.positives).saturating_mul(ROW as u64))
    }
}
