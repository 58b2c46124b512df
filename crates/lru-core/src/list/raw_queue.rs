//! A queue of links: what is on it is only ever taken off at its front, so each names the one behind it and none the one before.

use super::link_layout::LinkLayout;
use super::link_ref::{LinkNode, LinkRef};

/// A singly linked list of links of one [`LinkLayout`], without a length or an opinion on who owns what. Taking the first off touches no other.
///
/// Every call is given the same shape.
#[derive(Debug)]
pub struct RawQueue {
    first: LinkRef,
    /// None if there is no first.
    last: LinkRef,
}

impl Default for RawQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl RawQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { first: LinkRef::NONE, last: LinkRef::NONE }
    }

    /// The one that is taken off next.
    ///
    /// # Safety
    ///
    /// Every call is given the same `shape`, and what is on the queue is live.
    ///
    /// What is on the queue is live.
    #[inline]
    pub unsafe fn first(&self, shape: &LinkLayout) -> Option<LinkNode> {
        let by = self.first;
        // SAFETY: it is none, or on this queue.
        let at = unsafe { shape.find(by) }?;
        Some(LinkNode { at, by })
    }

    /// Puts `node` behind the last.
    ///
    /// # Safety
    ///
    /// Every call is given the same `shape`, and what is on the queue is live.
    ///
    /// `node` points to live links that are on no list, and stays live until taken off. The caller has the only access to this queue and to the
    /// links of everything on it.
    #[inline]
    pub unsafe fn push_back(&mut self, shape: &LinkLayout, node: LinkNode) {
        // SAFETY: `node` is live and ours, says the caller.
        unsafe { shape.set_next(node.at, LinkRef::NONE) };
        // SAFETY: if there is a last one, it is on this queue, so it is live and ours.
        match unsafe { shape.find(self.last) } {
            None => self.first = node.by,
            // SAFETY: as above.
            Some(last) => unsafe { shape.set_next(last, node.by) },
        }
        self.last = node.by;
    }

    /// Takes the first off.
    ///
    /// # Safety
    ///
    /// Every call is given the same `shape`, and what is on the queue is live.
    ///
    /// The caller has the only access to this queue and to the links of everything on it.
    #[inline]
    pub unsafe fn pop_front(&mut self, shape: &LinkLayout) -> Option<LinkNode> {
        // SAFETY: the caller's promise is the same.
        let node = unsafe { self.first(shape) }?;
        // SAFETY: it is on this queue.
        self.first = unsafe { shape.next(node.at) };
        if self.first.is_none() {
            self.last = LinkRef::NONE;
        }
        Some(node)
    }

    /// Puts everything on `other` before our first, in order. O(1).
    ///
    /// # Safety
    ///
    /// Every call is given the same `shape`, and what is on the queue is live.
    ///
    /// The caller has the only access to both queues and to the links of everything on them.
    pub unsafe fn splice_front(&mut self, shape: &LinkLayout, other: Self) {
        // SAFETY: it is none, or on `other`.
        let Some(last) = (unsafe { shape.find(other.last) }) else { return };
        // SAFETY: it is on `other`.
        unsafe { shape.set_next(last, self.first) };
        if self.first.is_none() {
            self.last = other.last;
        }
        self.first = other.first;
    }
}
