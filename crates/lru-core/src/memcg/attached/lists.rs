//! The chain of lists that are attached to a group, as pointers of an opaque type: the lists are a
//! layer above groups.
//!
//! By the chain, `Memcg::offline` finds the lists of a group without visiting all lists.
//!
//! Numbers such as L8 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that no list is attached once `is_closed` is set, under the same lock (L8):
//! offline would leave the list behind.

use crate::sync::{Mutex, MutexGuard};
use core::ptr;

/// A list that is attached to a group: an opaque type, which only [`list_lru`](crate::list_lru)
/// casts back.
pub(crate) struct AttachedList(());

/// The head of a group's chain.
pub(crate) struct Attached {
    /// The first list; null for none.
    pub(crate) first: *mut AttachedList,
    /// Set once, when the group starts to die: no list is attached to it any more (L8).
    pub(crate) is_closed: bool,
}

// SAFETY: the lists that `first` points to may be accessed, on any thread, by the holder of the
// lock around this.
unsafe impl Send for Attached {}

/// [`Attached`] behind its lock, and the lock under which the lists are taken off.
pub(crate) struct AttachedLists {
    attached: Mutex<Attached>,
    /// Held while the lists of a dying group move to its parent, which waits for lists' locks, and
    /// while a list's owner that is dropped detaches it. Taken before `attached`, for which threads
    /// wait that hold a list's lock.
    reparenting: Mutex<()>,
}

impl AttachedLists {
    pub(in crate::memcg) fn new() -> Self {
        let attached = Mutex::new(Attached { first: ptr::null_mut(), is_closed: false });
        Self { attached, reparenting: Mutex::new(()) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Attached> {
        self.attached.lock()
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Attached>> {
        self.attached.try_lock()
    }

    pub(crate) fn lock_reparenting(&self) -> MutexGuard<'_, ()> {
        self.reparenting.lock()
    }
}
