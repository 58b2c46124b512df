//! Thread numbers: unique identities, and small slot numbers that threads own.

#[cfg(all(feature = "std", not(lowwater_loom)))]
pub mod owned_slot;
mod thread_id;

pub use thread_id::{spread, ThreadId};
