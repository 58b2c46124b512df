//! A doubly linked list of links ([`Hook`]s), from the oldest to the youngest: items, and the marks
//! of walks' cursors.
//!
//! All functions that change a list are unsafe: the caller holds the list's lock and guarantees
//! that nodes are linked at most once. A change must keep the provenance rule: a removed node is
//! returned as the reference that its neighbour stored. It must also keep the prefetch cursor none
//! or on the list.

use super::hook::Hook;
use super::link_layout::LinkLayout;
use super::link_ref::{LinkNode, LinkRef};
use super::tail_and_prefetch::TailAndPrefetch;
use core::ptr::NonNull;

/// A doubly linked list of links of one [`LinkLayout`], without a lock, a length or a notion of
/// ownership.
///
/// Every call must pass the same `layout`.
#[derive(Debug)]
pub(crate) struct RawList {
    /// The oldest item; none if the list is empty.
    first: LinkRef,
    /// The youngest item, and the prefetch cursor.
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

    /// Appends `node` at the young end.
    ///
    /// # Safety
    ///
    /// `node` points to live links that are on no list, and stays live until removed. The caller
    /// has exclusive access to this list and to the links of everything on it.
    #[inline]
    pub(crate) unsafe fn push_back(&mut self, layout: &LinkLayout, node: LinkNode) {
        // SAFETY: `node` is live, and the caller has exclusive access to it (this function's
        // clause).
        unsafe { layout.set_prev(node.at, self.tail.last(layout)) };
        // SAFETY: `node` is live, and the caller has exclusive access to it (this function's
        // clause).
        unsafe { layout.set_next(node.at, LinkRef::NONE) };
        // SAFETY: `last` is none or on this list, so it is live.
        match unsafe { layout.find(self.tail.last(layout)) } {
            None => self.first = node.by,
            // SAFETY: `last` is on this list, so it is live, and the caller has exclusive access to
            // its links.
            Some(last) => unsafe { layout.set_next(last, node.by) },
        }
        self.tail.set_last(layout, node.by);
        // SAFETY: the caller has exclusive access to this list (this function's clause).
        unsafe { self.prefetch_next(layout) };
    }

    /// Sets the prefetch cursor to the position at which the next walk will begin, and prefetches
    /// that item. Each later append prefetches one more.
    ///
    /// # Safety
    ///
    /// `next` is none, or refers to links on this list.
    #[inline]
    pub(crate) unsafe fn expect(&mut self, layout: &LinkLayout, next: LinkRef) {
        // SAFETY: `next` is none or on this list (this function's clause), so it is live.
        unsafe { layout.prefetch(next) };
        self.tail.set_prefetch_cursor(layout, next);
    }

    /// Advances the prefetch cursor by one item, until it reaches the end.
    ///
    /// # Safety
    ///
    /// The caller has exclusive access to this list and to the links of everything on it.
    #[inline]
    unsafe fn prefetch_next(&mut self, layout: &LinkLayout) {
        // SAFETY: the prefetch cursor is none or on this list, so it is live.
        if let Some(ahead) = unsafe { layout.find(self.tail.prefetch_cursor(layout)) } {
            // SAFETY: `ahead` is on this list, and the caller has exclusive access to its links.
            let next = unsafe { layout.next(ahead) };
            // The item that was just appended is in the cache already.
            let is_last = next == self.tail.last(layout);
            // SAFETY: `next` is none or on this list.
            unsafe { self.expect(layout, if is_last { LinkRef::NONE } else { next }) };
        }
    }

    /// Inserts `node` before `at`. Does not move the prefetch cursor.
    ///
    /// # Safety
    ///
    /// The clauses of [`push_back`](Self::push_back), and `at` is on this list.
    pub(crate) unsafe fn insert_before(&mut self, layout: &LinkLayout, node: LinkNode, at: NonNull<Hook>) {
        // SAFETY: `at` is on this list, so it is live, and the caller has exclusive access to its
        // links.
        let prev = unsafe { layout.prev(at) };
        // SAFETY: `node` is live, and the caller has exclusive access to it (clause of
        // `push_back`).
        unsafe { layout.set_prev(node.at, prev) };
        // SAFETY: `prev` is none or on this list, so it is live.
        let next = match unsafe { layout.find(prev) } {
            None => core::mem::replace(&mut self.first, node.by),
            Some(prev) => {
                // SAFETY: `prev` is on this list, and the caller has exclusive access to its links.
                let next = unsafe { layout.next(prev) };
                // SAFETY: `prev` is on this list, and the caller has exclusive access to its links.
                unsafe { layout.set_next(prev, node.by) };
                next
            }
        };
        // SAFETY: `node` is live, and the caller has exclusive access to it (clause of
        // `push_back`).
        unsafe { layout.set_next(node.at, next) };
        // SAFETY: `at` is on this list, so it is live, and the caller has exclusive access to its
        // links.
        unsafe { layout.set_prev(at, node.by) };
    }

    /// Unlinks `node`, and returns the reference by which it was pushed.
    ///
    /// # Safety
    ///
    /// `node` points to links that are on this list. The caller has exclusive access to this list
    /// and to the links of everything on it.
    #[inline]
    pub(crate) unsafe fn remove(&mut self, layout: &LinkLayout, node: NonNull<Hook>) -> LinkRef {
        // SAFETY: `node` is on this list, so it is live, and the caller has exclusive access to its
        // links.
        let next = unsafe { layout.next(node) };
        // SAFETY: `node` is on this list, so it is live, and the caller has exclusive access to its
        // links.
        let prev = unsafe { layout.prev(node) };
        // Return the reference that the neighbour stores: its provenance covers the whole object,
        // while that of `node` may cover only the links.
        // SAFETY: `prev` is none or on this list, so it is live.
        let pushed = match unsafe { layout.find(prev) } {
            None => core::mem::replace(&mut self.first, next),
            Some(prev) => {
                // SAFETY: `prev` is on this list, and the caller has exclusive access to its links.
                let pushed = unsafe { layout.next(prev) };
                // SAFETY: `prev` is on this list, and the caller has exclusive access to its links.
                unsafe { layout.set_next(prev, next) };
                pushed
            }
        };
        // SAFETY: `next` is none or on this list, so it is live.
        match unsafe { layout.find(next) } {
            None => self.tail.set_last(layout, prev),
            // SAFETY: `next` is on this list, and the caller has exclusive access to its links.
            Some(next) => unsafe { layout.set_prev(next, prev) },
        }
        if self.tail.prefetch_cursor(layout) == pushed {
            self.tail.set_prefetch_cursor(layout, next);
        }
        pushed
    }

    /// Unlinks `node`, the first item. Returns the item that is first then, if any: its reference
    /// and its links. The caller knows the reference of `node` from [`first`](Self::first).
    ///
    /// # Safety
    ///
    /// `node` points to the links of the first item. The caller has exclusive access to this list
    /// and to the links of everything on it.
    #[inline]
    pub(crate) unsafe fn remove_first(
        &mut self,
        layout: &LinkLayout,
        node: NonNull<Hook>,
    ) -> (LinkRef, Option<NonNull<Hook>>) {
        // SAFETY: `node` is on this list, so it is live, and the caller has exclusive access to its
        // links.
        let next = unsafe { layout.next(node) };
        let pushed = core::mem::replace(&mut self.first, next);
        // SAFETY: `next` is none or on this list, so it is live.
        let next_at = unsafe { layout.find(next) };
        match next_at {
            None => self.tail = TailAndPrefetch::NONE,
            Some(next_at) => {
                // SAFETY: `next_at` is on this list, and the caller has exclusive access to its
                // links.
                unsafe { layout.set_prev(next_at, LinkRef::NONE) };
                if self.tail.prefetch_cursor(layout) == pushed {
                    self.tail.set_prefetch_cursor(layout, next);
                }
            }
        }
        (next, next_at)
    }

    /// Puts `by` in the place of `node`, and returns the reference by which `node` was pushed.
    ///
    /// # Safety
    ///
    /// The clauses of [`remove`](Self::remove) for `node`, and of [`push_back`](Self::push_back)
    /// for `by`.
    #[inline]
    pub(crate) unsafe fn replace(&mut self, layout: &LinkLayout, node: NonNull<Hook>, by: LinkNode) -> LinkRef {
        // SAFETY: `node` is on this list, so it is live, and the caller has exclusive access to its
        // links.
        let next = unsafe { layout.next(node) };
        // SAFETY: `node` is on this list, so it is live, and the caller has exclusive access to its
        // links.
        let prev = unsafe { layout.prev(node) };
        // SAFETY: `by` is live and on no list (clause of `push_back`).
        unsafe { layout.set_next(by.at, next) };
        // SAFETY: `by` is live and on no list (clause of `push_back`).
        unsafe { layout.set_prev(by.at, prev) };
        // The reference that the neighbour stores is returned, for the reason given in `remove`.
        // SAFETY: `prev` is none or on this list, so it is live.
        let pushed = match unsafe { layout.find(prev) } {
            None => core::mem::replace(&mut self.first, by.by),
            Some(prev) => {
                // SAFETY: `prev` is on this list, and the caller has exclusive access to its links.
                let pushed = unsafe { layout.next(prev) };
                // SAFETY: `prev` is on this list, and the caller has exclusive access to its links.
                unsafe { layout.set_next(prev, by.by) };
                pushed
            }
        };
        // SAFETY: `next` is none or on this list, so it is live.
        match unsafe { layout.find(next) } {
            None => self.tail.set_last(layout, by.by),
            // SAFETY: `next` is on this list, and the caller has exclusive access to its links.
            Some(next) => unsafe { layout.set_prev(next, by.by) },
        }
        if self.tail.prefetch_cursor(layout) == pushed {
            self.tail.set_prefetch_cursor(layout, by.by);
        }
        pushed
    }

    /// Moves all items of `other` to the old end, in order. O(1). This list's prefetch cursor
    /// stays, that of `other` is lost.
    ///
    /// # Safety
    ///
    /// The caller has exclusive access to both lists and to the links of everything on them. Both
    /// have the same layout.
    pub(crate) unsafe fn splice_front(&mut self, layout: &LinkLayout, other: &mut RawList) {
        let theirs = other.tail.last(layout);
        // SAFETY: `theirs` is none or on `other`, so it is live.
        let Some(last) = (unsafe { layout.find(theirs) }) else { return };
        // SAFETY: `last` is on `other`, and the caller has exclusive access to its links.
        unsafe { layout.set_next(last, self.first) };
        // SAFETY: `first` is none or on this list, so it is live.
        match unsafe { layout.find(self.first) } {
            None => self.tail.set_last(layout, theirs),
            // SAFETY: `first` is on this list, and the caller has exclusive access to its links.
            Some(first) => unsafe { layout.set_prev(first, theirs) },
        }
        self.first = other.first;
        *other = Self::new();
    }

    /// Moves all items of `other` to the young end, in order. O(1). The prefetch cursor of `other`
    /// stays, this list's is lost.
    ///
    /// # Safety
    ///
    /// The clause of [`splice_front`](Self::splice_front).
    pub(crate) unsafe fn splice_back(&mut self, layout: &LinkLayout, other: &mut RawList) {
        core::mem::swap(self, other);
        // SAFETY: the clause of `splice_front` is symmetric in the two lists.
        unsafe { self.splice_front(layout, other) };
    }

    /// Returns the item that was prefetched last, or none.
    #[cfg(all(test, not(lowwater_loom), target_pointer_width = "64"))]
    pub(crate) fn prefetch_cursor(&self, layout: &LinkLayout) -> LinkRef {
        self.tail.prefetch_cursor(layout)
    }

    /// Panics unless the list is consistent and has `len` items, not counting the cursors of walks.
    ///
    /// # Safety
    ///
    /// The caller has exclusive access to this list and to the links of everything on it.
    pub(crate) unsafe fn assert_valid(&self, layout: &LinkLayout, len: usize) {
        let (mut seen, mut prev, mut by) = (0, LinkRef::NONE, self.first);
        let mut ahead = self.tail.prefetch_cursor(layout);
        // SAFETY: `by` is none or on this list, so it is live.
        while let Some(node) = unsafe { layout.find(by) } {
            // SAFETY: `node` is on this list, so it is live.
            let is_item = !unsafe { node.as_ref() }.is_cursor();
            assert!(!is_item || seen < len, "the list must not hold more than the {len} items that were counted");
            // SAFETY: `node` is on this list, and the caller has exclusive access to its links.
            assert_eq!(unsafe { layout.prev(node) }, prev, "an item's `prev` must be the item before it");
            if by == ahead {
                ahead = LinkRef::NONE;
            }
            prev = by;
            // SAFETY: `node` is on this list, and the caller has exclusive access to its links.
            by = unsafe { layout.next(node) };
            seen += usize::from(is_item);
        }
        assert_eq!(seen, len, "the list must hold as many items as were counted");
        assert_eq!(ahead, LinkRef::NONE, "the prefetch cursor must be on the list");
        assert_eq!(self.tail.last(layout), prev, "`last` must be the item that has none behind it");
    }
}
