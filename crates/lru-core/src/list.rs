//! Intrusive lists: the links live in the object, so that adding and removing allocate nothing.
//!
//! ```text
//!     RawList { first, last }
//!         |                          \
//!         v                           v
//!     Links <---prev/next---> ... Links      each inside its object, which its list owns by a Handle turned raw
//! ```
//!
//! The intrusive-collections crate is the well-kept library for this, and was weighed first. Its lists are owned by one place
//! and know their element type; ours are spliced between groups under two locks, must be found from the element alone
//! ([`Links`] names the list it is on), and are walked by code that does not know the type.

mod handle;
mod links;

pub(crate) use handle::handle_of;
pub use handle::Handle;
pub use links::{Linked, Links};

use core::ptr;

/// A doubly linked list of [`Links`], without a lock, a length or an opinion on who owns what.
#[derive(Debug)]
pub(crate) struct RawList {
    first: *mut Links,
    last: *mut Links,
}

impl RawList {
    pub(crate) const fn new() -> Self {
        Self { first: ptr::null_mut(), last: ptr::null_mut() }
    }

    pub(crate) fn first(&self) -> *mut Links {
        self.first
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Links `node` behind the last.
    ///
    /// # Safety
    ///
    /// `node` points to live links that are on no list, and stays live until removed. The caller has the only access to this
    /// list and to the links of everything on it.
    pub(crate) unsafe fn push_back(&mut self, node: *mut Links) {
        // SAFETY: `node` is live and ours, says the caller.
        unsafe { Links::set_prev(node, self.last) };
        // SAFETY: as above.
        unsafe { Links::set_next(node, ptr::null_mut()) };
        if self.last.is_null() {
            self.first = node;
        } else {
            // SAFETY: `last` is on this list, so it is live and ours.
            unsafe { Links::set_next(self.last, node) };
        }
        self.last = node;
    }

    /// Links `node` before `at`.
    ///
    /// # Safety
    ///
    /// As for [`push_back`](Self::push_back); `at` is on this list.
    pub(crate) unsafe fn insert_before(&mut self, node: *mut Links, at: *mut Links) {
        // SAFETY: `at` is on this list, so it is live and ours.
        let prev = unsafe { Links::prev(at) };
        // SAFETY: `node` is live and ours, says the caller.
        unsafe { Links::set_prev(node, prev) };
        // SAFETY: as above.
        unsafe { Links::set_next(node, at) };
        // SAFETY: as for `prev`.
        unsafe { Links::set_prev(at, node) };
        if prev.is_null() {
            self.first = node;
        } else {
            // SAFETY: `prev` is on this list.
            unsafe { Links::set_next(prev, node) };
        }
    }

    /// Unlinks `node` and returns it as the pointer that was pushed.
    ///
    /// # Safety
    ///
    /// `node` points to links that are on this list. The caller has the only access to this list and to the links of
    /// everything on it.
    pub(crate) unsafe fn remove(&mut self, node: *const Links) -> *mut Links {
        // SAFETY: `node` is on this list, so it is live and ours.
        let next = unsafe { Links::next(node) };
        // SAFETY: as above.
        let prev = unsafe { Links::prev(node) };
        // The pointer that was pushed may reach the whole object; `node` perhaps only its links.
        let pushed = if prev.is_null() {
            core::mem::replace(&mut self.first, next)
        } else {
            // SAFETY: `prev` is on this list.
            let pushed = unsafe { Links::next(prev) };
            // SAFETY: as above.
            unsafe { Links::set_next(prev, next) };
            pushed
        };
        if next.is_null() {
            self.last = prev;
        } else {
            // SAFETY: `next` is on this list.
            unsafe { Links::set_prev(next, prev) };
        }
        pushed
    }

    /// Links `by` where `node` is, and returns that one as the pointer that was pushed.
    ///
    /// # Safety
    ///
    /// As for [`remove`](Self::remove) of `node`, and for [`push_back`](Self::push_back) of `by`.
    pub(crate) unsafe fn replace(&mut self, node: *const Links, by: *mut Links) -> *mut Links {
        // SAFETY: `node` is on this list, so it is live and ours.
        let next = unsafe { Links::next(node) };
        // SAFETY: the caller's promise is the same.
        let pushed = unsafe { self.remove(node) };
        if next.is_null() {
            // SAFETY: the caller's promise is the same.
            unsafe { self.push_back(by) };
        } else {
            // SAFETY: the caller's promise is the same; `next` is on this list.
            unsafe { self.insert_before(by, next) };
        }
        pushed
    }

    /// Unlinks the first.
    ///
    /// # Safety
    ///
    /// The caller has the only access to this list and to the links of everything on it.
    pub(crate) unsafe fn pop_front(&mut self) -> Option<*mut Links> {
        if self.first.is_null() {
            return None;
        }
        // SAFETY: `first` is on this list.
        Some(unsafe { self.remove(self.first) })
    }

    /// Moves everything on `other` before our first, in order. O(1).
    ///
    /// # Safety
    ///
    /// The caller has the only access to both lists and to the links of everything on them.
    pub(crate) unsafe fn splice_front(&mut self, other: &mut RawList) {
        if other.is_empty() {
            return;
        }
        // SAFETY: `other.last` is on `other`.
        unsafe { Links::set_next(other.last, self.first) };
        if self.first.is_null() {
            self.last = other.last;
        } else {
            // SAFETY: `first` is on this list.
            unsafe { Links::set_prev(self.first, other.last) };
        }
        self.first = other.first;
        *other = Self::new();
    }

    /// Moves everything on `other` behind our last, in order. O(1).
    ///
    /// # Safety
    ///
    /// As for [`splice_front`](Self::splice_front).
    pub(crate) unsafe fn splice_back(&mut self, other: &mut RawList) {
        core::mem::swap(self, other);
        // SAFETY: the caller's promise is the same for the two in either order.
        unsafe { self.splice_front(other) };
    }

    /// Panics unless the list holds together and has `len` elements, not counting the marks of walks.
    ///
    /// # Safety
    ///
    /// The caller has the only access to this list and to the links of everything on it.
    pub(crate) unsafe fn assert_valid(&self, len: usize) {
        let (mut seen, mut prev, mut node) = (0, ptr::null_mut(), self.first);
        while !node.is_null() {
            // SAFETY: `node` is on this list.
            let is_item = !unsafe { &*node }.is_mark();
            assert!(!is_item || seen < len, "the list must not hold more than the {len} items that were counted");
            // SAFETY: as above.
            assert_eq!(unsafe { Links::prev(node) }, prev, "an item's `prev` must be the item before it");
            prev = node;
            // SAFETY: as above.
            node = unsafe { Links::next(node) };
            seen += usize::from(is_item);
        }
        assert_eq!(seen, len, "the list must hold as many items as were counted");
        assert_eq!(self.last, prev, "`last` must be the item that has none behind it");
    }
}
