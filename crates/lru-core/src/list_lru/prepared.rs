//! A list that is there, for those who cannot allocate later.

use super::{ListLru, One};
use crate::list::Linked;
use core::fmt;
use core::ptr::NonNull;

/// The promise of [`ListLru::prepare`]: while this is kept, no sweep gives the list back, so adding to it allocates nothing.
///
/// When the group dies, the promise is the parent's list's. Dropping it is cheap; the list stays while it is used.
#[must_use = "the list may be given back as soon as this is dropped"]
pub struct Prepared<'a, T: Linked> {
    lru: &'a ListLru<T>,
    one: NonNull<One>,
}

// SAFETY: all it does is to count, under the list's lock, from any thread.
unsafe impl<T: Linked> Send for Prepared<'_, T> where T::Handle: Send {}
// SAFETY: as for Send.
unsafe impl<T: Linked> Sync for Prepared<'_, T> where T::Handle: Send {}

impl<'a, T: Linked> Prepared<'a, T> {
    /// `one` counts a reference that is given up when this is dropped.
    pub(super) fn new(lru: &'a ListLru<T>, one: NonNull<One>) -> Self {
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
