//! Shell.
#![no_std]
extern crate alloc;
#[cfg(any(feature = "std", lowwater_loom))]
extern crate std;

pub mod sync;
pub mod unit;
pub mod topology;
pub mod memcg;
pub mod list_lru;
pub use list_lru::Occupancy;
pub use memcg::*;
pub use topology::Topology;
pub use unit::{Bytes, NodeId, ParseBytesError};
