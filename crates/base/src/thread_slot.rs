//! Numbers of threads: an identity, and small slots that have an owner.

#[cfg(all(feature = "std", not(lowwater_loom)))]
pub mod owned_slot;
mod thread_id;

pub use thread_id::{spread, ThreadId};
