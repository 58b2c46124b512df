//! The reason why an item is not added.
//!
//! The public methods turn it into their own error types; only the internal code needs all three
//! cases apart.
//!
//! A change must ensure that an item on a list is refused as `Linked`, even if there is no memory
//! for a list: each case is another error of `add`.

/// The reason why an item was not added.
pub(in super::super) enum Refused {
    /// The item is on a list already.
    Linked,
    /// There is no memory for the list, and no ancestor has a list.
    NoMemory,
    /// The list holds `ITEMS_MAX` items.
    Full,
}
