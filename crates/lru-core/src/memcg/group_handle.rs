//! The part of a group's handle that a tree's table and stock use.
//!
//! The table and the stock hold handles, and every group holds its tree: one recursive type. This
//! trait keeps `table.rs` and `stock.rs` below the file of that type in the dependency order of
//! `memcg.rs`.
//!
//! A change must ensure that `table.rs` and `stock.rs` need nothing of a group but this trait.

use super::id::MemcgId;

/// A handle on a group, as the table and the stock hold it: [`Memcg`](crate::Memcg).
///
/// Two handles are equal if and only if both are on the same group.
pub(crate) trait GroupHandle: Clone + Eq {
    /// Returns the address of the group, which is unique while a handle exists.
    fn addr(&self) -> usize;

    /// Returns the id of the group.
    fn id(&self) -> MemcgId;

    /// Returns the parent group; none for the root.
    fn parent(&self) -> Option<&Self>;

    /// Returns the name below the parent.
    fn name(&self) -> &str;

    /// Returns whether the group is online.
    fn is_online(&self) -> bool;

    /// Sets the group's state to dying.
    fn set_dying(&self);
}
