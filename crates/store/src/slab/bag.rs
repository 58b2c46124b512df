//! Objects that nobody can find any more, joined by their own links.

use core::ptr::NonNull;
use lowwater_lru_core::list::{Hook, LinkLayout, RawQueue};

/// See the module.
pub(super) struct Bag {
    queue: RawQueue,
    pub(super) len: u32,
}

// SAFETY: a bag owns its objects, of a type that is Send (a bound of `Slotted`).
unsafe impl Send for Bag {}

impl Bag {
    pub(super) const fn new() -> Self {
        Self { queue: RawQueue::new(), len: 0 }
    }

    /// Takes an object over, and remembers what it [weighs](Self::weight).
    ///
    /// # Safety
    ///
    /// The links are those of an object that the bag owns from now on, given as its handle was; of one shape for all.
    #[inline]
    pub(super) unsafe fn push(&mut self, shape: &LinkLayout, links: NonNull<Hook>, weight: u32) {
        // SAFETY: the object is on no list, as its handle was the caller's; a queue does not use `prev`.
        unsafe { shape.set_spare(links, weight) };
        // SAFETY: the caller says so.
        let node = unsafe { shape.node(links) };
        // SAFETY: the object is on no list: its handle was the caller's.
        unsafe { self.queue.push_back(shape, node) };
        self.len += 1;
    }

    /// What an object weighs by the call that pushed it.
    ///
    /// # Safety
    ///
    /// The links came from a bag of this shape, and the caller has the only access to them.
    #[inline]
    pub(super) unsafe fn weight(shape: &LinkLayout, links: NonNull<Hook>) -> u32 {
        // SAFETY: the clause of the caller; `push` wrote it.
        unsafe { shape.spare(links) }
    }

    #[inline]
    pub(super) fn pop(&mut self, shape: &LinkLayout) -> Option<NonNull<Hook>> {
        // SAFETY: the bag owns what is on it.
        let node = unsafe { self.queue.pop_front(shape) }?;
        self.len -= 1;
        Some(node.at)
    }

    /// Moves the one that comes off next behind what is in the other; which it is.
    pub(super) fn move_first(&mut self, shape: &LinkLayout, to: &mut Self) -> Option<NonNull<Hook>> {
        // SAFETY: the bag owns what is on it.
        let node = unsafe { self.queue.pop_front(shape) }?;
        self.len -= 1;
        // SAFETY: it was taken off just now, and is the other bag's from here on.
        unsafe { to.queue.push_back(shape, node) };
        to.len += 1;
        Some(node.at)
    }

    /// Puts everything of the other before what is here.
    pub(super) fn append(&mut self, shape: &LinkLayout, other: &mut Self) {
        let other = core::mem::replace(other, Self::new());
        // SAFETY: both own what is on them.
        unsafe { self.queue.splice_front(shape, other.queue) };
        self.len += other.len;
    }

    /// The one that comes off next.
    #[inline]
    pub(super) fn first(&self, shape: &LinkLayout) -> Option<NonNull<Hook>> {
        // SAFETY: the bag owns what is in it.
        unsafe { self.queue.first(shape) }.map(|node| node.at)
    }
}
