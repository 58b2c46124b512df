//! Preparing a list ahead of time, for callers that cannot allocate in `add`.
//!
//! Numbers such as L17 are those of docs/INVARIANTS.md.
//!
//! A `Prepared` counts as one reference on the list, as an item does, so a sweep (which frees idle
//! lists) needs no special case. A change must ensure that the drop gives up exactly one reference,
//! on the list to which the reference moved if the group has died.

use super::list_lru_one::ListLruOne;
use super::{AllocError, ListLru};
use crate::list::Linked;
use crate::{Memcg, NodeId};
use core::fmt;
use core::ptr::NonNull;

/// A guarantee from [`ListLru::prepare`]: as long as it exists, no sweep frees the list, so adding
/// to it needs no memory.
///
/// When the group dies, the guarantee applies to the parent's list. Dropping it takes one lock; the
/// list stays as long as it has items or another guarantee.
#[must_use = "a sweep may free the list as soon as this is dropped"]
pub struct Prepared<'a, T: Linked> {
    lru: &'a ListLru<T>,
    /// The list that was prepared. If its group has died, it leads to the list that received its
    /// items.
    one: NonNull<ListLruOne>,
}

// SAFETY: the drop only decrements a count under the list's lock, which any thread may do.
unsafe impl<T: Linked> Send for Prepared<'_, T> where T::Handle: Send {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl<T: Linked> Sync for Prepared<'_, T> where T::Handle: Send {}

impl<T: Linked> ListLru<T> {
    /// Creates the group's list on `node`, so that `add` needs no memory as long as the result
    /// exists. For a dying group, creates the list of the nearest online ancestor, to which `add`
    /// would go. (An add that splits the list does allocate, but works without memory.) O(depth of
    /// the group).
    ///
    /// # Errors
    ///
    /// [`AllocError`] if there is no memory; lists of ancestors that were created already stay,
    /// complete (`docs/INVARIANTS.md`, L6, L17).
    #[doc(alias = "memcg_list_lru_alloc")]
    pub fn prepare(&self, memcg: &Memcg, node: NodeId) -> Result<Prepared<'_, T>, AllocError> {
        let one = self.raw.prepare(memcg, node).ok_or(AllocError)?;
        Ok(Prepared::new(self, one))
    }
}

impl<'a, T: Linked> Prepared<'a, T> {
    /// Creates the guarantee for `one`. The caller passes on a reference on `one`, which the drop
    /// gives up.
    pub(super) fn new(lru: &'a ListLru<T>, one: NonNull<ListLruOne>) -> Self {
        Self { lru, one }
    }
}

impl<T: Linked> Drop for Prepared<'_, T> {
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        self.lru.raw.unprepare(self.one);
    }
}

impl<T: Linked> fmt::Debug for Prepared<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").finish_non_exhaustive()
    }
}
