//! No bound but memory: what Linux does.

use super::policy::{NegativePolicy, Situation};
use super::trim::Settled;

/// Keeps every negative until there is pressure.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unbounded;

impl NegativePolicy for Unbounded {
    fn name(&self) -> &'static str {
        "unbounded"
    }

    fn settled(&self, _: &Settled<'_>) {}

    fn bound(&self, _: Situation) -> Option<u64> {
        None
    }
}
