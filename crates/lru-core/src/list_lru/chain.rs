//! The chain of a group's lists.
//!
//! Each group chains its published lists ([`ListLruOne`]): those of any node that are in the table
//! of a `ListLru`. So taking a group offline costs O(lists of this group), however many lists
//! exist. A thread that publishes or unpublishes a list of an online group holds the chain's lock;
//! the drop of a `ListLru` takes its lists off the chain before it unpublishes them.
//!
//! Numbers such as L8 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that the chain is locked before the table's writer lock and before any list
//! (the order in [`raw`](super::raw)), and that nothing is pushed to a closed chain: going offline
//! first closes the chain and then walks over it, once.

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

    /// As [`lock`](Self::lock); `None` while another thread holds the lock.
    pub(super) fn try_lock(memcg: &'a Memcg) -> Option<Self> {
        memcg.attached().try_lock().map(Self)
    }

    /// Takes the lock that keeps the move of the lists to the parent and the drop of their owners
    /// from running at the same time. Taken before the chain.
    pub(super) fn lock_reparenting(memcg: &'a Memcg) -> MutexGuard<'a, ()> {
        memcg.attached().lock_reparenting()
    }

    /// Returns whether the group is dying, so that no list is published for it any more (L8).
    pub(super) fn is_closed(&self) -> bool {
        self.0.is_closed
    }

    /// Returns the first list, or null.
    pub(super) fn first(&self) -> *mut ListLruOne {
        self.0.first.cast()
    }

    /// Returns the list after `one`, or null.
    ///
    /// # Safety
    ///
    /// `one` is on this chain.
    pub(super) unsafe fn after(&self, one: *mut ListLruOne) -> *mut ListLruOne {
        // SAFETY: `one` is on this chain (this function's clause), and a list is taken off its
        // chain before it is retired, so it is live.
        let links = unsafe { &(*one).chain };
        // SAFETY: `next` is guarded by the chain's lock, which `self` holds.
        links.next.with(|p| unsafe { *p })
    }

    /// Pushes `one` to the front of the chain.
    ///
    /// # Safety
    ///
    /// `one` is live and stays so until it is removed, is on no chain, and is not dead
    /// ([`ListLruOne`]).
    pub(super) unsafe fn push(&mut self, one: *mut ListLruOne) {
        // SAFETY: `one` is live and on no chain (this function's clauses), and we hold the lock of
        // the chain it joins.
        unsafe { set_next(one, self.first()) };
        // SAFETY: `one` is live and on no chain (this function's clauses), and we hold the lock of
        // the chain it joins.
        unsafe { set_prev(one, ptr::null_mut()) };
        if !self.first().is_null() {
            // SAFETY: `first` is on this chain, so it is live, and we hold the chain's lock.
            unsafe { set_prev(self.first(), one) };
        }
        self.0.first = one.cast();
    }

    /// Takes `one` off the chain.
    ///
    /// # Safety
    ///
    /// `one` is on this chain.
    pub(super) unsafe fn remove(&mut self, one: *mut ListLruOne) {
        // SAFETY: `one` is on this chain (this function's clause), and a list is taken off its
        // chain before it is retired, so it is live.
        let links = unsafe { &(*one).chain };
        // SAFETY: `next` is guarded by the chain's lock, which `self` holds.
        let next = links.next.with(|p| unsafe { *p });
        // SAFETY: `prev` is guarded by the chain's lock, which `self` holds.
        let prev = links.prev.with(|p| unsafe { *p });
        if prev.is_null() {
            self.0.first = next.cast();
        } else {
            // SAFETY: `prev` is on this chain, so it is live, and we hold the chain's lock.
            unsafe { set_next(prev, next) };
        }
        if !next.is_null() {
            // SAFETY: `next` is on this chain, so it is live, and we hold the chain's lock.
            unsafe { set_prev(next, prev) };
        }
    }
}

/// # Safety
///
/// `one` is live, and the lock of the chain it is on, or will be on, is held.
unsafe fn set_next(one: *mut ListLruOne, to: *mut ListLruOne) {
    // SAFETY: `one` is live (this function's clause).
    let cell = unsafe { &(*one).chain.next };
    // SAFETY: the lock that guards the cell is held (this function's clause).
    cell.with_mut(|p| unsafe { *p = to });
}

/// # Safety
///
/// `one` is live, and the lock of the chain it is on, or will be on, is held.
unsafe fn set_prev(one: *mut ListLruOne, to: *mut ListLruOne) {
    // SAFETY: `one` is live (this function's clause).
    let cell = unsafe { &(*one).chain.prev };
    // SAFETY: the lock that guards the cell is held (this function's clause).
    cell.with_mut(|p| unsafe { *p = to });
}
