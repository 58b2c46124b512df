//! Flags of a stored item, which the meta commands set and show.
//!
//! Three bits of `ItemHeader`; plain data.
//!
//! A change must ensure that a new flag gets a bit of its own in `ItemHeader`: all three that it
//! has are in use.

/// The flags of an item. A change replaces the value atomically, so of several clients exactly one
/// wins.
#[doc(alias = "it_flags")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemFlags {
    /// Invalidated: readers see the value marked stale until it is stored again.
    pub stale: bool,
    /// A client has won the right to store the value again.
    pub won: bool,
    /// The key was sent in base64, and is shown in base64.
    pub binary: bool,
}
