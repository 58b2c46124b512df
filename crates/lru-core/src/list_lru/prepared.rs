//! A list that is there, for those who cannot allocate later.

use super::list_lru_one::ListLruOne;
use super::{AllocError, ListLru};
use crate::list::Linked;
use crate::{Memcg, NodeId};
use core::fmt;
use core::ptr::NonNull;

/// The promise of [`ListLru::prepare`]: while this is kept, no sweep gives the list back, so adding to it allocates nothing.
///
/// When the group dies, the promise is the parent's list's. Dropping it is cheap; the list stays while it is used.
#[must_use = "the list may be given back as soon as this is dropped"]
pub struct Prepared<'a, T: Linked> {
    lru: &'a ListLru<T>,
    one: NonNull<ListLruOne>,
}

// SAFETY: all it does is to count, under the list's lock, from any thread.
unsafe impl<T: Linked> Send for Prepared<'_, T> where T::Handle: Send {}
// SAFETY: as for Send.
unsafe impl<T: Linked> Sync for Prepared<'_, T> where T::Handle: Send {}

impl<T: Linked> ListLru<T> {
    /// Makes the group's list on `node`, so that `add` needs no memory while the answer is kept; a dying group's nearest online
    /// ancestor's, to which `add` would go. (One that splits the list asks for some, and does without.) O(depth of the group).
    ///
    /// # Errors
    ///
    /// [`AllocError`] without memory; what was made on the way (lists of ancestors) stays and is whole (L6, L17).
    #[doc(alias = "memcg_list_lru_alloc")]
    pub fn prepare(&self, memcg: &Memcg, node: NodeId) -> Result<Prepared<'_, T>, AllocError> {
        let one = self.raw.prepare(memcg, node).ok_or(AllocError)?;
        Ok(Prepared::new(self, one))
    }
}

impl<'a, T: Linked> Prepared<'a, T> {
    /// `one` counts a reference that is given up when this is dropped.
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
