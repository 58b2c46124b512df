//! The sections: one file for each kind of measurement.

pub mod hit_ratio;
pub mod latency;
pub mod memory;
pub mod stalls;
pub mod tenants;
pub mod throughput;
