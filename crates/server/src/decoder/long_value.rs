//! Values that leave the input as they arrive, before they are complete.
//!
//! A change must ensure that both decoders report each such value.

/// A value that leaves the input as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongValue {
    /// Its store follows when it is complete.
    Stored,
    /// Its command was answered before it.
    Discarded,
}
