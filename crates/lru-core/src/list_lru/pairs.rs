//! A group's own view: which of all the lists have something made for it.
//!
//! Each group chains its published lists ([`One`]), over all `ListLru`s and nodes, so that its offline costs as much as it used
//! and not as much as there is. Whoever publishes or unpublishes a list of the group holds this lock.

use super::One;
use crate::sync::{Mutex, MutexGuard, UnsafeCell};
use core::ptr;

/// Neighbours on a group's chain. Two cells, as a dead list uses each for a purpose of its own (see [`One`]).
pub(crate) struct ChainLinks {
    pub(super) next: UnsafeCell<*mut One>,
    pub(super) prev: UnsafeCell<*mut One>,
}

impl ChainLinks {
    pub(super) fn new() -> Self {
        Self { next: UnsafeCell::new(ptr::null_mut()), prev: UnsafeCell::new(ptr::null_mut()) }
    }
}

/// The chain's head, and whether it is closed.
pub(crate) struct Chain {
    first: *mut One,
    /// Set once, when the group begins to die: nothing is published for it any more (L8).
    pub(super) closed: bool,
}

// SAFETY: what `first` leads to may be touched by whoever holds the lock around the chain, on any thread.
unsafe impl Send for Chain {}

/// See the module.
pub(crate) struct Pairs(Mutex<Chain>);

impl Pairs {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Chain { first: ptr::null_mut(), closed: false }))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Chain> {
        self.0.lock()
    }

    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Chain>> {
        self.0.try_lock()
    }
}

impl Chain {
    pub(super) fn first(&self) -> *mut One {
        self.first
    }

    /// The one behind `one`.
    ///
    /// # Safety
    ///
    /// `one` is on this chain.
    pub(super) unsafe fn after(&self, one: *mut One) -> *mut One {
        // SAFETY: it is on this chain, so it is live.
        let links = unsafe { &(*one).chain };
        // SAFETY: the chain's lock is held, as we are borrowed from it.
        links.next.with(|p| unsafe { *p })
    }

    /// # Safety
    ///
    /// `one` is live, stays so until removed, is on no chain and not dead.
    pub(super) unsafe fn push(&mut self, one: *mut One) {
        // SAFETY: live and on no chain, says the caller.
        unsafe { set_next(one, self.first) };
        // SAFETY: as above.
        unsafe { set_prev(one, ptr::null_mut()) };
        if !self.first.is_null() {
            // SAFETY: `first` is on this chain.
            unsafe { set_prev(self.first, one) };
        }
        self.first = one;
    }

    /// # Safety
    ///
    /// `one` is on this chain.
    pub(super) unsafe fn remove(&mut self, one: *mut One) {
        // SAFETY: it is on this chain, so it is live.
        let links = unsafe { &(*one).chain };
        // SAFETY: the chain's lock is held, as we are borrowed for writing.
        let next = links.next.with(|p| unsafe { *p });
        // SAFETY: as above.
        let prev = links.prev.with(|p| unsafe { *p });
        if prev.is_null() {
            self.first = next;
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
unsafe fn set_next(one: *mut One, to: *mut One) {
    // SAFETY: live, says the caller.
    let cell = unsafe { &(*one).chain.next };
    // SAFETY: the lock is held, says the caller.
    cell.with_mut(|p| unsafe { *p = to });
}

/// # Safety
///
/// As for [`set_next`].
unsafe fn set_prev(one: *mut One, to: *mut One) {
    // SAFETY: live, says the caller.
    let cell = unsafe { &(*one).chain.prev };
    // SAFETY: the lock is held, says the caller.
    cell.with_mut(|p| unsafe { *p = to });
}
