//! The bound of a proposed kernel patch (`trim_negative`): three in a row.
//!
//! For comparison: `tests/seed_002.rs` shows that its bound does not hold for names that are looked
//! up twice.
//!
//! The rule must stay the patch's, the defect included.

use super::policy::{BoundInputs, NegativePolicy};
use super::trim::NewNegative;

/// Keeps at most three unused negatives in a row in each hash bucket; the fourth, which is the
/// oldest, is killed.
///
/// A positive in the chain, or a negative that was looked up again, starts a new row. So the bound
/// holds for names that are looked up once; names that are looked up twice are not bounded.
#[derive(Clone, Copy, Debug, Default)]
#[doc(alias = "trim_negative")]
pub struct ThreeInARow;

/// Negatives of a row that stay.
const ROW: usize = 3;

impl NegativePolicy for ThreeInARow {
    fn name(&self) -> &'static str {
        "three-in-a-row"
    }

    fn negative_added(&self, negative: &NewNegative<'_>) {
        // The new negative is the first of its row, so two others may stay.
        negative.trim_chain(ROW - 1);
    }

    fn bound(&self, inputs: BoundInputs) -> Option<u64> {
        // Each positive can start one more row.
        Some(inputs.buckets.saturating_add(inputs.positives).saturating_mul(ROW as u64))
    }
}
