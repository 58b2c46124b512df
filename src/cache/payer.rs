//! The group that pays for a new value.
//!
//! An overwrite keeps the group of the replaced entry unless the caller names another, so the group
//! is known only after a lookup.
//!
//! A change must ensure that an entry keeps its group unless the caller has named one.

use lowwater_lru_core::Memcg;

/// The group that is charged for a new value, unless the value replaces another and no group was
/// named.
#[derive(Clone, Copy)]
pub(super) struct Payer<'a> {
    pub(super) group: &'a Memcg,
    /// Whether the caller has named the group: then a present entry moves to it. Otherwise the
    /// entry keeps its own group.
    pub(super) is_named: bool,
}

impl<'a> Payer<'a> {
    /// Returns the payer of a write that names no group: the group of the replaced value, or
    /// `group` if no value is replaced.
    pub(super) fn new(group: &'a Memcg) -> Self {
        Self { group, is_named: false }
    }

    /// Returns the payer of a write that names `group`.
    pub(super) fn named(group: &'a Memcg) -> Self {
        Self { group, is_named: true }
    }
}
