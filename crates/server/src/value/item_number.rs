//! The numbers of a stored item.
//!
//! The two differ only if a client gave a CAS number itself: then the order of stores, by which a
//! flush decides, must not depend on it.

/// The numbers of an item: its place in the order of all stores, and the CAS number that a client
/// has given, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemNumber {
    /// The store's own number, which grows with each store. A flush takes a number, too, and covers
    /// all values with lower ones.
    pub serial: u64,
    /// The number that clients see instead of `serial` (flag `E` of the meta commands).
    pub given: Option<u64>,
}

impl ItemNumber {
    /// Returns the CAS number, which clients see.
    pub fn unique(self) -> u64 {
        self.given.unwrap_or(self.serial)
    }
}

impl From<u64> for ItemNumber {
    fn from(serial: u64) -> Self {
        Self { serial, given: None }
    }
}
