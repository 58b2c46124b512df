//! The reason for which an item is not added.

/// Why an item was not added.
pub(in super::super) enum Refused {
    /// It is on a list already.
    Linked,
    /// There is no memory for the list, nor a populated ancestor.
    NoMemory,
    /// The list holds as many items as can be counted.
    Full,
}
