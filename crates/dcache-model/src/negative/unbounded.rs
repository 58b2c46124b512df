//! No bound but memory, as in Linux.
//!
//! For comparison in tests and examples.
//!
//! It must never remove a negative by itself.

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
