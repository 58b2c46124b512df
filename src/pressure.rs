//! Memory pressure from outside, and the ceiling that it leaves a runtime: the crate `lowwater-pressure`, and what the reclaimer knows of
//! limits.

pub use lowwater_pressure::*;
pub use lowwater_shrinker::{ReclaimReason, Watermarks};

pub use crate::runtime::MonitoredReclaimer;
