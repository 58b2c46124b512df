//! A group's own view: the lists that are made for it.
//!
//! Each group chains its published lists ([`ListLruOne`]), over all `ListLru`s and nodes, so that its offline costs as much as it used
//! and not as much as there is. A thread that publishes or unpublishes a list of the group holds the chain's lock.

use super::list_lru_one::ListLruOne;
use crate::memcg::attached::Attached;
use crate::sync::MutexGuard;
use crate::Memcg;
use core::ptr;

/// The chain of a group's lists, locked.
pub(crate) struct Chain<'a>(MutexGuard<'a, Attached>);

impl<'a> Chain<'a> {
    pub(super) fn lock(memcg: &'a Memcg) -> Self {
        Self(memcg.attached().lock())
    }

    pub(super) fn try_lock(memcg: &'a Memcg) -> Option<Self> {
        memcg.attached().try_lock().map(Self)
    }

    /// Is the group dying, so that nothing is published for it any more? (L8)
    pub(super) fn is_closed(&self) -> bool {
        self.0.is_closed
    }

    pub(super) fn first(&self) -> *mut ListLruOne {
        self.0.first.cast()
    }

    /// The one behind `one`.
    ///
    /// # Safety
    ///
    /// `one` is on this chain.
    pub(super) unsafe fn after(&self, one: *mut ListLruOne) -> *mut ListLruOne {
        // SAFETY: it is on this chain, so it is live.
        let links = unsafe { &(*one).chain };
        // SAFETY: the chain's lock is held, as we are borrowed from it.
        links.next.with(|p| unsafe { *p })
    }

    /// # Safety
    ///
    /// `one` is live, stays so until removed, is on no chain and not dead.
    pub(super) unsafe fn push(&mut self, one: *mut ListLruOne) {
        // SAFETY: live and on no chain, says the caller.
        unsafe { set_next(one, self.first()) };
        // SAFETY: as above.
        unsafe { set_prev(one, ptr::null_mut()) };
        if !self.first().is_null() {
            // SAFETY: `first` is on this chain.
            unsafe { set_prev(self.first(), one) };
        }
        self.0.first = one.cast();
    }

    /// # Safety
    ///
    /// `one` is on this chain.
    pub(super) unsafe fn remove(&mut self, one: *mut ListLruOne) {
        // SAFETY: it is on this chain, so it is live.
        let links = unsafe { &(*one).chain };
        // SAFETY: the chain's lock is held, as we are borrowed for writing.
        let next = links.next.with(|p| unsafe { *p });
        // SAFETY: as above.
        let prev = links.prev.with(|p| unsafe { *p });
        if prev.is_null() {
            self.0.first = next.cast();
        } else {
            // SAFETY: its neighbour is on this chain.
            unsafe { set_next(prev, next) };
        }
        if !next.is_null() {
            // SAFETY: its neighbour is on this chain.
            unsafe { set_prev(next, prev) };
        }
    }
}

/// # Safety
///
/// `one` is live, and the lock of the chain it is on, or will be on, is held.
unsafe fn set_next(one: *mut ListLruOne, to: *mut ListLruOne) {
    // SAFETY: live, says the caller.
    let cell = unsafe { &(*one).chain.next };
    // SAFETY: the lock is held, says the caller.
    cell.with_mut(|p| unsafe { *p = to });
}

/// # Safety
///
/// As for [`set_next`].
unsafe fn set_prev(one: *mut ListLruOne, to: *mut ListLruOne) {
    // SAFETY: live, says the caller.
    let cell = unsafe { &(*one).chain.prev };
    // SAFETY: the lock is held, says the caller.
    cell.with_mut(|p| unsafe { *p = to });
}
