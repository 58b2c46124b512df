//! Memory pressure outside of the runtime, and the budget that it leaves: the crate
//! `lowwater-pressure`, the reclaimer's watermarks, and the connection of both.
//
// Re-exports, so that a program needs no second dependency. A change must ensure that nothing but
// re-exports is here.

pub use lowwater_pressure::*;
pub use lowwater_shrinker::{ReclaimReason, Watermarks};

pub use crate::runtime::MonitoredReclaimer;
