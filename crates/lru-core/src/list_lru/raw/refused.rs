//! The reason why an item is not added.
//!
//! The public methods turn it into their own errors: `add` has one for each case, `add_batch` one
//! for all.
//!
//! A change must ensure that an item on a list is refused as `Linked`, even if there is no memory
//! for a list.

/// The reason why an item was not added.
pub(in super::super) enum Refused {
    /// The item is on a list already.
    Linked,
    /// There is no memory for the list, and no ancestor has a list.
    NoMemory,
    /// The list holds `ITEMS_MAX` items.
    Full,
}
