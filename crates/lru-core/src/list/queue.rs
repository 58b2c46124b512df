//! A queue of links: what is on it is only ever taken off at its front, so each names the one behind it and none the one before.

use super::{Node, Ref, Shape};

/// A singly linked list of links of one [`Shape`], without a length or an opinion on who owns what. Taking the first off touches no other.
///
/// Every call is given the same shape.
#[derive(Debug)]
pub(crate) struct RawQueue {
    first: Ref,
    /// None if there is no first.
    last: Ref,
}

impl RawQueue {
    pub(crate) const fn new() -> Self {
        Self { first: Ref::NONE, last: Ref::NONE }
    }

    /// The one that is taken off next.
    ///
    /// # Safety
    ///
    /// What is on the queue is live.
    #[inline]
    pub(crate) unsafe fn first(&self, shape: &Shape) -> Option<Node> {
        let by = self.first;
        // SAFETY: it is none, or on this queue.
        let at = unsafe { shape.find(by) }?;
        Some(Node { at, by })
    }

    /// Puts `node` behind the last.
    ///
    /// # Safety
    ///
    /// `node` points to live links that are on no list, and stays live until taken off. The caller has the only access to this queue and to the
    /// links of everything on it.
    #[inline]
    pub(crate) unsafe fn push_back(&mut self, shape: &Shape, node: Node) {
        // SAFETY: `node` is live and ours, says the caller.
        unsafe { shape.set_next(node.at, Ref::NONE) };
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
    /// The caller has the only access to this queue and to the links of everything on it.
    #[inline]
    pub(crate) unsafe fn pop_front(&mut self, shape: &Shape) -> Option<Node> {
        // SAFETY: the caller's promise is the same.
        let node = unsafe { self.first(shape) }?;
        // SAFETY: it is on this queue.
        self.first = unsafe { shape.next(node.at) };
        if self.first.is_none() {
            self.last = Ref::NONE;
        }
        Some(node)
    }

    /// Puts everything on `other` before our first, in order. O(1).
    ///
    /// # Safety
    ///
    /// The caller has the only access to both queues and to the links of everything on them.
    pub(crate) unsafe fn splice_front(&mut self, shape: &Shape, other: Self) {
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
