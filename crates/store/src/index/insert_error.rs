//! Why an object was not put in.

use crate::slab::{Slot, Slotted};
use core::fmt;

/// An object was not put in; its handle is given back.
#[derive(thiserror::Error)]
pub enum InsertError<T: Slotted> {
    /// There is no memory for the index to grow.
    #[error("no memory for an index to grow")]
    NoMemory(Slot<T>),
    /// The caller's own `add` refused.
    #[error("the object was refused by what was to own it")]
    Refused(Slot<T>),
    /// It is in an index already.
    #[error("the object is in an index already")]
    Indexed(Slot<T>),
}

impl<T: Slotted> fmt::Debug for InsertError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMemory(_) => "NoMemory",
            Self::Refused(_) => "Refused",
            Self::Indexed(_) => "Indexed",
        })
    }
}
