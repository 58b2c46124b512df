//! The sections: one file for each kind of measurement.
//!
//! Each has a `measure` function, which `main` calls with the plan and the report, to which it adds
//! its tables.
//!
//! A new section is a file with such a function, a value of `Section`, and a call in `main`; its
//! tables are listed in `ci/comparison.sh`.

pub mod hit_ratio;
pub mod latency;
pub mod memory;
pub mod stalls;
pub mod tenants;
pub mod throughput;
