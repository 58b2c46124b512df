//! Edits of a value: the existing value, the decision of an update, and its error.
//!
//! A command passes a function from [`Existing`] to [`Edit`], and `update.rs` applies the edit
//! atomically.
//!
//! A change must ensure that such a function has no effects, since it may be called more than once.

use std::time::Duration;

use lowwater::cache::Current;

use super::key_hash::KeyHash;
use crate::protocol::expiry::Expiry;
use crate::value::Value;

/// The value that an update finds under its key.
#[derive(Clone, Copy, Debug)]
pub struct Existing<'a> {
    pub value: &'a Value,
    /// The time left; `None`: the value does not expire.
    pub left: Option<Duration>,
}

/// The decision of an update on the value under its key.
#[derive(Clone, Debug)]
pub enum Edit {
    Keep,
    Remove,
    /// Sets the expiry of the existing value, which counts as a use of the value.
    Touch(Expiry),
    /// Stores a value with the update's expiry.
    Put(Value),
    /// Stores a value with this expiry instead of the update's.
    PutFor(Value, Expiry),
    /// Stores a value with the time left of the existing value.
    Change(Value),
}

/// There is no memory for a value: the tenant's `max` or the whole budget is in use and nothing may
/// be evicted, or the unread output of clients holds too many evicted values.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory storing object")]
pub struct OutOfMemory;

impl<'a> Existing<'a> {
    /// Returns the value of `current` and the time left to it.
    pub fn of(current: &'a Current<'_, KeyHash, Value>) -> Self {
        Self { value: current.value(), left: current.time_left() }
    }
}
