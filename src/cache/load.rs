//! Loads: one load for all callers that miss the same key at the same time (single flight).

pub(crate) mod fill;
pub(crate) mod single_flight;
mod wait_graph;
