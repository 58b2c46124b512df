//! The sections: one file for each kind of measurement.
//!
//! Each has a `measure` function, called by `main` with the plan, that returns its tables.
//!
//! A new section is a file with such a function, and a line in `main`.

pub mod hit_ratio;
pub mod latency;
pub mod memory;
pub mod stalls;
pub mod tenants;
pub mod throughput;
