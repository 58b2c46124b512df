//! The lists that are attached to a group: a chain of structures whose type this module does not
//! know.

use crate::sync::{Mutex, MutexGuard};
use core::ptr;

/// A list that is attached to a group, as the group names it: an opaque type, which only
/// [`list_lru`](crate::list_lru) casts back.
pub(crate) struct AttachedList(());

/// The chain of lists that are attached to a group.
pub(crate) struct Attached {
    /// The first list; null for none.
    pub(crate) first: *mut AttachedList,
    /// Set once, when the group begins to die: nothing is attached to it any more (L8).
    pub(crate) is_closed: bool,
}

// SAFETY: what `first` leads to may be touched by the holder of the lock around this, on any
// thread.
unsafe impl Send for Attached {}

/// [`Attached`], behind its lock.
pub(crate) struct AttachedLists(Mutex<Attached>);

impl AttachedLists {
    pub(in crate::memcg) fn new() -> Self {
        Self(Mutex::new(Attached { first: ptr::null_mut(), is_closed: false }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Attached> {
        self.0.lock()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Attached>> {
        self.0.try_lock()
    }
}
