//! Expiry: deadlines and the reaper.

pub(crate) mod clock;
mod compact_duration;
pub(crate) mod deadline;
mod reaper;
pub(crate) mod sweep;

pub(crate) use compact_duration::TICK_TIME;
