//! Flags of a stored item, which the meta commands set and show.

/// The flags of an item. To change one, the value is replaced: so of all that ask, one wins.
#[doc(alias = "it_flags")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemFlags {
    /// Invalidated: shown to readers as such, until it is stored again.
    pub stale: bool,
    /// A client was asked to store it again.
    pub won: bool,
    /// Its key came in base64, and is shown so.
    pub binary: bool,
}
