//! The reason why an item is not added.

/// The reason why an item was not added.
pub(in super::super) enum Refused {
    /// The item is on a list already.
    Linked,
    /// There is no memory for the list, and no ancestor has a list.
    NoMemory,
    /// The list holds `ITEMS_MAX` items.
    Full,
}
