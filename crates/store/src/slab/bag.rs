//! Bags: queues of retired objects, linked through the objects' own links.
//!
//! Retired objects wait in bags, first for their readers, then for their drop; the objects of a
//! sealed bag share one grace period. No memory is needed to retire an object: its links, which no
//! list uses any more, hold the queue and the object's weight. A change must ensure that an object
//! is in one bag at most.

use core::ptr::NonNull;
use lowwater_base::packed_size::PackedSize;
use lowwater_lru_core::list::{Hook, LinkLayout, RawQueue};

/// An object's weight in its links: exact below 256 MiB, above rounded up by less than 1/2^26.
pub(super) type Weight = PackedSize<28>;

/// A queue of objects that no new reader can find, all of one type. Every call must pass that
/// type's `layout`.
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

    /// Adds an object and stores its [weight](Self::weight) in its links.
    ///
    /// # Safety
    ///
    /// `links` are the links of an object, and its ownership passes to the bag; all objects of a
    /// bag have the same `layout`.
    #[inline]
    pub(super) unsafe fn push(&mut self, layout: &LinkLayout, links: NonNull<Hook>, weight: Weight) {
        // SAFETY: the caller owns the object's only handle, so the object is on no list; a queue
        // does not use `prev`.
        unsafe { layout.set_spare(links, weight.bits()) };
        // SAFETY: the caller's clause: `links` have this layout.
        let node = unsafe { layout.node(links) };
        // SAFETY: the object is on no list, because the caller owned its handle.
        unsafe { self.queue.push_back(layout, node) };
        self.len += 1;
    }

    /// Returns the weight with which an object was pushed.
    ///
    /// # Safety
    ///
    /// The links came from a bag of this layout, and the caller has exclusive access to them.
    #[inline]
    pub(super) unsafe fn weight(layout: &LinkLayout, links: NonNull<Hook>) -> Weight {
        // SAFETY: the caller's clause: exclusive access to links of this layout; `push` wrote the
        // weight.
        Weight::from_bits(unsafe { layout.spare(links) })
    }

    #[inline]
    pub(super) fn pop(&mut self, layout: &LinkLayout) -> Option<NonNull<Hook>> {
        // SAFETY: the bag owns the objects in it.
        let node = unsafe { self.queue.pop_front(layout) }?;
        self.len -= 1;
        Some(node.at)
    }

    /// Moves the first object to the end of `to`, and returns it.
    pub(super) fn move_first(&mut self, layout: &LinkLayout, to: &mut Self) -> Option<NonNull<Hook>> {
        // SAFETY: the bag owns the objects in it.
        let node = unsafe { self.queue.pop_front(layout) }?;
        self.len -= 1;
        // SAFETY: the object was removed from this bag just now, and from here on belongs to `to`.
        unsafe { to.queue.push_back(layout, node) };
        to.len += 1;
        Some(node.at)
    }

    /// Puts all objects of `other` before the objects of this bag.
    pub(super) fn append(&mut self, layout: &LinkLayout, other: &mut Self) {
        let other = core::mem::replace(other, Self::new());
        // SAFETY: each bag owns the objects in it.
        unsafe { self.queue.splice_front(layout, other.queue) };
        self.len += other.len;
    }

    /// Returns the object that `pop` returns next.
    #[inline]
    pub(super) fn first(&self, layout: &LinkLayout) -> Option<NonNull<Hook>> {
        // SAFETY: the bag owns the objects in it.
        unsafe { self.queue.first(layout) }.map(|node| node.at)
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use lowwater_lru_core::list::Linked;
    use lowwater_lru_core::{linked, Links};

    struct Object {
        links: Links,
    }

    linked!(impl[] for Object { links, handle: alloc::boxed::Box<Object> });

    #[test]
    fn a_moved_object_counts_in_its_new_bag_alone() {
        let layout = LinkLayout::ANYWHERE;
        let objects = [(); 3].map(|()| Object { links: Links::new() });
        let (mut from, mut to) = (Bag::new(), Bag::new());
        let links = objects.each_ref().map(|object| {
            // SAFETY: `object` is live, and is in no bag yet.
            let links = unsafe { Object::links(NonNull::from(object)) };
            // SAFETY: `links` belong to `object`, which is in no bag yet; the objects outlive the
            // bags, which drop nothing.
            unsafe { from.push(layout, links, Weight::pack(1)) };
            links
        });
        assert_eq!(from.move_first(layout, &mut to), Some(links[0]));
        assert_eq!((from.len, to.len), (2, 1));
        assert_eq!(from.move_first(layout, &mut to), Some(links[1]));
        assert_eq!((from.len, to.len), (1, 2));
        assert_eq!((to.pop(layout), to.pop(layout), to.pop(layout)), (Some(links[0]), Some(links[1]), None));
        assert_eq!((from.first(layout), to.len), (Some(links[2]), 0));
    }
}
