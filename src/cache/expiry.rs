//! Expiry: deadlines and the reaper.
//!
//! `deadline`, `freshness` and `compact_duration` are arithmetic, `clock` reads the time,
//! `lifetime` is the user's function for the times of single entries, `times` has the times of a
//! whole cache, `live_ends` the ends of times to live beside idle times; `sweep` and `reaper`
//! remove expired records in the background.
//!
//! A change must ensure that each lookup checks the deadline itself: the reaper only returns
//! memory.

pub(crate) mod clock;
mod compact_duration;
pub(crate) mod deadline;
pub(crate) mod freshness;
pub(crate) mod lifetime;
mod live_ends;
mod reaper;
pub(crate) mod sweep;
pub(crate) mod times;

pub(crate) use compact_duration::TICK_TIME;
