//! Edits of a value: what an update finds, decides and may lack.

use std::time::Duration;

use lowwater::cache::Current;

use super::key_hash::KeyHash;
use crate::value::Value;

/// The value that an update finds under its key.
#[derive(Clone, Copy, Debug)]
pub struct Existing<'a> {
    pub value: &'a Value,
    /// None: it does not expire.
    pub left: Option<Duration>,
}

/// The decision of an update on the value under its key.
#[derive(Clone, Debug)]
pub enum Edit {
    Keep,
    Remove,
    /// A value, for the update's time.
    Put(Value),
    /// A value, for the time that is left to the one that is there.
    Change(Value),
}

/// There is no memory for a value: its tenant's `max`, or the whole budget, is in use and
/// protected; or clients who do not read hold too much of it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory storing object")]
pub struct OutOfMemory;

impl<'a> Existing<'a> {
    /// The value that `current` holds.
    pub fn of(current: &'a Current<'_, KeyHash, Value>) -> Self {
        Self { value: current.value(), left: current.time_left() }
    }
}
