//! What is measured, one file each.

pub mod hit_ratio;
pub mod latency;
pub mod memory;
pub mod stalls;
pub mod tenants;
pub mod throughput;
