//! The policy without a bound: only memory pressure removes negatives, as in Linux.
//!
//! Tests and examples compare the other policies with it.
//!
//! A change must ensure that the policy never removes a negative by itself.

use super::policy::{BoundInputs, NegativePolicy};
use super::trim::NewNegative;

/// Keeps every negative until there is memory pressure.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unbounded;

impl NegativePolicy for Unbounded {
    fn name(&self) -> &'static str {
        "unbounded"
    }

    fn negative_added(&self, _: &NewNegative<'_>) {}

    fn bound(&self, _: BoundInputs) -> Option<u64> {
        None
    }
}
