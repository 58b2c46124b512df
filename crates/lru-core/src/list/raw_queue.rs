//! A queue of links. Links are removed only at the front, so each refers to the next one and none
//! to the previous one.
//!
//! For objects that wait in order and are never removed from the middle, such as retired ones. The
//! reference to the next object takes half of the memory of an object's links; the other half is
//! free for a weight (`LinkLayout::set_spare`).
//!
//! A change must ensure that links are removed at the front only, and that no operation of the
//! queue writes their `prev`, which holds the weight.

use super::link_layout::LinkLayout;
use super::link_ref::{LinkNode, LinkRef};

/// A singly linked list of links of one [`LinkLayout`], without a length or a notion of ownership.
/// Removing the first links accesses no others.
///
/// Every call must pass the same `layout`.
#[derive(Debug)]
pub struct RawQueue {
    first: LinkRef,
    /// None exactly if `first` is none.
    last: LinkRef,
}

impl Default for RawQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl RawQueue {
    /// Creates an empty queue.
    pub const fn new() -> Self {
        Self { first: LinkRef::NONE, last: LinkRef::NONE }
    }

    /// Returns the links that [`pop_front`](Self::pop_front) removes next.
    ///
    /// # Safety
    ///
    /// Every call on this queue passes the same `layout`, and everything on the queue is live.
    #[inline]
    pub unsafe fn first(&self, layout: &LinkLayout) -> Option<LinkNode> {
        let by = self.first;
        // SAFETY: `first` is none or on this queue, so it is live (this function's clause).
        let at = unsafe { layout.find(by) }?;
        Some(LinkNode { at, by })
    }

    /// Appends `node`.
    ///
    /// # Safety
    ///
    /// 1. Every call on this queue passes the same `layout`, and everything on the queue is live.
    /// 2. `node` points to live links that are on no list, and stays live until removed.
    /// 3. The caller has exclusive access to this queue and to the links of everything on it.
    #[inline]
    pub unsafe fn push_back(&mut self, layout: &LinkLayout, node: LinkNode) {
        // SAFETY: `node` is live and on no list (clause 2), so only the caller accesses its links.
        unsafe { layout.set_next(node.at, LinkRef::NONE) };
        // SAFETY: `last` is none or on this queue, so it is live (clause 1).
        match unsafe { layout.find(self.last) } {
            None => self.first = node.by,
            // SAFETY: `last` is on this queue, and the caller has exclusive access to its links
            // (clause 3).
            Some(last) => unsafe { layout.set_next(last, node.by) },
        }
        self.last = node.by;
    }

    /// Removes and returns the first links.
    ///
    /// # Safety
    ///
    /// 1. Every call on this queue passes the same `layout`, and everything on the queue is live.
    /// 2. The caller has exclusive access to this queue and to the links of everything on it.
    #[inline]
    pub unsafe fn pop_front(&mut self, layout: &LinkLayout) -> Option<LinkNode> {
        // SAFETY: clause 1 is that of `first`.
        let node = unsafe { self.first(layout) }?;
        // SAFETY: `node` is on this queue, and the caller has exclusive access to its links (clause
        // 2).
        self.first = unsafe { layout.next(node.at) };
        if self.first.is_none() {
            self.last = LinkRef::NONE;
        }
        Some(node)
    }

    /// Prepends all links of `other`, in order. O(1).
    ///
    /// # Safety
    ///
    /// 1. Every call on both queues passes the same `layout`, and everything on them is live.
    /// 2. The caller has exclusive access to both queues and to the links of everything on them.
    pub unsafe fn splice_front(&mut self, layout: &LinkLayout, other: Self) {
        // SAFETY: `last` is none or on `other`, so it is live (clause 1).
        let Some(last) = (unsafe { layout.find(other.last) }) else { return };
        // SAFETY: `last` is on `other`, and the caller has exclusive access to its links (clause
        // 2).
        unsafe { layout.set_next(last, self.first) };
        if self.first.is_none() {
            self.last = other.last;
        }
        self.first = other.first;
    }
}
