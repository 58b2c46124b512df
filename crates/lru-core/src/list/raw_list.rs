//! A doubly linked list of links.

use super::hook::Hook;
use super::link_layout::LinkLayout;
use super::link_ref::{LinkNode, LinkRef};
use super::tail_and_prefetch::TailAndPrefetch;
use core::ptr::NonNull;

/// A doubly linked list of links of one [`LinkLayout`], without a lock, a length or an opinion on who owns what.
///
/// Every call is given the same shape.
#[derive(Debug)]
pub(crate) struct RawList {
    first: LinkRef,
    pub(super) tail: TailAndPrefetch,
}

impl RawList {
    pub(crate) const fn new() -> Self {
        Self { first: LinkRef::NONE, tail: TailAndPrefetch::NONE }
    }

    #[inline]
    pub(crate) fn first(&self) -> LinkRef {
        self.first
    }

    /// Links `node` behind the last.
    ///
    /// # Safety
    ///
    /// `node` points to live links that are on no list, and stays live until removed. The caller has the only access to this
    /// list and to the links of everything on it.
    #[inline]
    pub(crate) unsafe fn push_back(&mut self, shape: &LinkLayout, node: LinkNode) {
        // SAFETY: `node` is live and ours, says the caller.
        unsafe { shape.set_prev(node.at, self.tail.last(shape)) };
        // SAFETY: as above.
        unsafe { shape.set_next(node.at, LinkRef::NONE) };
        // SAFETY: if there is a last one, it is on this list, so it is live and ours.
        match unsafe { shape.find(self.tail.last(shape)) } {
            None => self.first = node.by,
            // SAFETY: as above.
            Some(last) => unsafe { shape.set_next(last, node.by) },
        }
        self.tail.set_last(shape, node.by);
        // SAFETY: the caller's promise is the same.
        unsafe { self.prefetch_next(shape) };
    }

    /// Says where the next walk will begin, so that what it will come to is asked for, one with each that is put behind.
    ///
    /// # Safety
    ///
    /// `next` is none, or on this list.
    #[inline]
    pub(crate) unsafe fn expect(&mut self, shape: &LinkLayout, next: LinkRef) {
        // SAFETY: it is none, or on this list, so it is live.
        unsafe { shape.prefetch(next) };
        self.tail.set_prefetch_cursor(shape, next);
    }

    /// Asks for one more ahead, until there is none.
    ///
    /// # Safety
    ///
    /// The caller has the only access to this list and to the links of everything on it.
    #[inline]
    unsafe fn prefetch_next(&mut self, shape: &LinkLayout) {
        // SAFETY: it is none, or on this list.
        if let Some(ahead) = unsafe { shape.find(self.tail.prefetch_cursor(shape)) } {
            // SAFETY: it is on this list.
            let next = unsafe { shape.next(ahead) };
            // What was just put behind is near.
            let is_last = next == self.tail.last(shape);
            // SAFETY: it is none, or on this list.
            unsafe { self.expect(shape, if is_last { LinkRef::NONE } else { next }) };
        }
    }

    /// Links `node` before `at`.
    ///
    /// # Safety
    ///
    /// As for [`push_back`](Self::push_back); `at` is on this list.
    pub(crate) unsafe fn insert_before(&mut self, shape: &LinkLayout, node: LinkNode, at: NonNull<Hook>) {
        // SAFETY: `at` is on this list, so it is live and ours.
        let prev = unsafe { shape.prev(at) };
        // SAFETY: `node` is live and ours, says the caller.
        unsafe { shape.set_prev(node.at, prev) };
        // SAFETY: as above, of what is before it.
        let next = match unsafe { shape.find(prev) } {
            None => core::mem::replace(&mut self.first, node.by),
            Some(prev) => {
                // SAFETY: `prev` is on this list.
                let next = unsafe { shape.next(prev) };
                // SAFETY: as above.
                unsafe { shape.set_next(prev, node.by) };
                next
            }
        };
        // SAFETY: as for `prev` of `node`.
        unsafe { shape.set_next(node.at, next) };
        // SAFETY: as for `prev`.
        unsafe { shape.set_prev(at, node.by) };
    }

    /// Unlinks `node`, and returns what it was pushed as.
    ///
    /// # Safety
    ///
    /// `node` points to links that are on this list. The caller has the only access to this list and to the links of
    /// everything on it.
    #[inline]
    pub(crate) unsafe fn remove(&mut self, shape: &LinkLayout, node: NonNull<Hook>) -> LinkRef {
        // SAFETY: `node` is on this list, so it is live and ours.
        let next = unsafe { shape.next(node) };
        // SAFETY: as above.
        let prev = unsafe { shape.prev(node) };
        // What was pushed may reach the whole object; `node` perhaps only its links.
        // SAFETY: it is none, or on this list.
        let pushed = match unsafe { shape.find(prev) } {
            None => core::mem::replace(&mut self.first, next),
            Some(prev) => {
                // SAFETY: `prev` is on this list.
                let pushed = unsafe { shape.next(prev) };
                // SAFETY: as above.
                unsafe { shape.set_next(prev, next) };
                pushed
            }
        };
        // SAFETY: as above.
        match unsafe { shape.find(next) } {
            None => self.tail.set_last(shape, prev),
            // SAFETY: `next` is on this list.
            Some(next) => unsafe { shape.set_prev(next, prev) },
        }
        if self.tail.prefetch_cursor(shape) == pushed {
            self.tail.set_prefetch_cursor(shape, next);
        }
        pushed
    }

    /// Links `by` where `node` is, and returns what that one was pushed as.
    ///
    /// # Safety
    ///
    /// As for [`remove`](Self::remove) of `node`, and for [`push_back`](Self::push_back) of `by`.
    pub(crate) unsafe fn replace(&mut self, shape: &LinkLayout, node: NonNull<Hook>, by: LinkNode) -> LinkRef {
        // SAFETY: `node` is on this list, so it is live and ours.
        let next = unsafe { shape.next(node) };
        // SAFETY: the caller's promise is the same.
        let pushed = unsafe { self.remove(shape, node) };
        // SAFETY: it is none, or on this list.
        match unsafe { shape.find(next) } {
            // SAFETY: the caller's promise is the same.
            None => unsafe { self.push_back(shape, by) },
            // SAFETY: the caller's promise is the same; `next` is on this list.
            Some(next) => unsafe { self.insert_before(shape, by, next) },
        }
        pushed
    }

    /// Moves everything on `other` before our first, in order. O(1).
    ///
    /// # Safety
    ///
    /// The caller has the only access to both lists and to the links of everything on them.
    pub(crate) unsafe fn splice_front(&mut self, shape: &LinkLayout, other: &mut RawList) {
        // SAFETY: it is none, or on `other`.
        let theirs = other.tail.last(shape);
        // SAFETY: it is none, or on `other`.
        let Some(last) = (unsafe { shape.find(theirs) }) else { return };
        // SAFETY: it is on `other`.
        unsafe { shape.set_next(last, self.first) };
        // SAFETY: it is none, or on this list.
        match unsafe { shape.find(self.first) } {
            None => self.tail.set_last(shape, theirs),
            // SAFETY: `first` is on this list.
            Some(first) => unsafe { shape.set_prev(first, theirs) },
        }
        self.first = other.first;
        *other = Self::new();
    }

    /// Moves everything on `other` behind our last, in order. O(1).
    ///
    /// # Safety
    ///
    /// As for [`splice_front`](Self::splice_front).
    pub(crate) unsafe fn splice_back(&mut self, shape: &LinkLayout, other: &mut RawList) {
        core::mem::swap(self, other);
        // SAFETY: the caller's promise is the same for the two in either order.
        unsafe { self.splice_front(shape, other) };
    }

    /// The item that was asked for last.
    #[cfg(all(test, not(lowwater_loom), target_pointer_width = "64"))]
    pub(crate) fn prefetch_cursor(&self, shape: &LinkLayout) -> LinkRef {
        self.tail.prefetch_cursor(shape)
    }

    /// Panics unless the list holds together and has `len` elements, not counting the marks of walks.
    ///
    /// # Safety
    ///
    /// The caller has the only access to this list and to the links of everything on it.
    pub(crate) unsafe fn assert_valid(&self, shape: &LinkLayout, len: usize) {
        let (mut seen, mut prev, mut by) = (0, LinkRef::NONE, self.first);
        let mut ahead = self.tail.prefetch_cursor(shape);
        // SAFETY: it is none, or on this list.
        while let Some(node) = unsafe { shape.find(by) } {
            // SAFETY: `node` is on this list.
            let is_item = !unsafe { node.as_ref() }.is_mark();
            assert!(!is_item || seen < len, "the list must not hold more than the {len} items that were counted");
            // SAFETY: as above.
            assert_eq!(unsafe { shape.prev(node) }, prev, "an item's `prev` must be the item before it");
            if by == ahead {
                ahead = LinkRef::NONE;
            }
            prev = by;
            // SAFETY: as above.
            by = unsafe { shape.next(node) };
            seen += usize::from(is_item);
        }
        assert_eq!(seen, len, "the list must hold as many items as were counted");
        assert_eq!(ahead, LinkRef::NONE, "what is asked for ahead must be on the list");
        assert_eq!(self.tail.last(shape), prev, "`last` must be the item that has none behind it");
    }
}
