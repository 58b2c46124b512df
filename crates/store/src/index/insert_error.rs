//! The error of an insert or a replacement.
//!
//! Each variant returns the handle, since the caller must be able to drop or to retry the object:
//! an insert never loses one.

use crate::slab::{Slot, Slotted};
use core::fmt;

/// An object was not inserted; its handle is returned.
#[derive(thiserror::Error)]
pub enum InsertError<T: Slotted> {
    /// No memory for the index to grow.
    #[error("no memory for an index to grow")]
    NoMemory(Slot<T>),
    /// The caller's own `add` or `swap` refused the object; or, for a replacement, the object to be
    /// replaced is not in the index any more.
    #[error("the object was refused by the caller, or the object to be replaced has left the index")]
    Refused(Slot<T>),
    /// The object is in an index already.
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
