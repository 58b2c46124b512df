//! Shell.
#![no_std]
extern crate alloc;
#[cfg(any(feature = "std", lowwater_loom))]
extern crate std;

pub mod chains;
pub mod list;
pub mod list_lru;
pub mod memcg;
mod rcu;
pub mod sync;
pub mod topology;
pub mod unit;

pub use list::{Handle, Linked, Links};
pub use list_lru::{AddError, AllocError, Isolate, Isolated, ListLru, Occupancy, Unlocked, Verdict};
pub use memcg::*;
pub use topology::Topology;
pub use unit::{Bytes, NodeId, ParseBytesError};
