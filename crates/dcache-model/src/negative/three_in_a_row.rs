//! The bound of seed 002: three in a row.

use super::policy::{NegativePolicy, Situation};
use super::trim::Settled;

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

    fn settled(&self, negative: &Settled<'_>) {
        // The new one is the first of its row.
        negative.trim_chain(ROW - 1);
    }

    fn bound(&self, situation: Situation) -> Option<u64> {
        // Each positive can begin one more row.
        Some(situation.buckets.saturating_add(situation.positives).saturating_mul(ROW as u64))
    }
}
