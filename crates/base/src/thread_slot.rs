//! Thread numbers: unique identities, and small slot numbers that threads own.
//!
//! `thread_id` tells threads apart exactly; `owned_slot` gives sixteen of them a small number that
//! no other live thread has, so that such a thread may write its counter without an atomic
//! addition.
//!
//! A change must ensure that no two live threads have the same owned slot.

#[cfg(all(feature = "std", not(lowwater_loom)))]
pub mod owned_slot;
mod thread_id;

pub use thread_id::{spread, ThreadId};
