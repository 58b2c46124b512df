//! Shell.
#![no_std]
extern crate alloc;
#[cfg(any(feature = "std", lowwater_loom))]
extern crate std;

pub mod sync;
pub mod unit;
pub use unit::{Bytes, NodeId, ParseBytesError};
