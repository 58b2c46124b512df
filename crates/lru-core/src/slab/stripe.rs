//! A part of a slab for some of the threads, so that two meet seldom: free slots at hand, and objects that wait for their readers.
//!
//! ```text
//!     retire --> open --full--> sealed, with the moment --readers left--> passed --dropped, a few at a time--> free --> alloc
//! ```

use super::free::FreeList;
use crate::list::{Hook, RawQueue, Shape};
use crate::rcu::Stamp;
use crate::NodeId;
use core::ptr::NonNull;

/// Objects that nobody can find any more, joined by their own links.
pub(super) struct Bag {
    queue: RawQueue,
    pub(super) len: u32,
}

/// A bag that is closed.
pub(super) struct Sealed {
    pub(super) bag: Bag,
    /// What its objects weigh.
    bytes: u64,
    stamp: Stamp,
}

// SAFETY: a bag owns its objects, of a type that is Send (a bound of `Slotted`).
unsafe impl Send for Bag {}

impl Bag {
    pub(super) const fn new() -> Self {
        Self { queue: RawQueue::new(), len: 0 }
    }

    /// # Safety
    ///
    /// The links are those of an object that the bag owns from now on, given as its handle was; of one shape for all.
    #[inline]
    pub(super) unsafe fn push(&mut self, shape: &Shape, links: NonNull<Hook>) {
        // SAFETY: the caller says so.
        let node = unsafe { shape.node(links) };
        // SAFETY: the object is on no list: its handle was the caller's.
        unsafe { self.queue.push_back(shape, node) };
        self.len += 1;
    }

    #[inline]
    pub(super) fn pop(&mut self, shape: &Shape) -> Option<NonNull<Hook>> {
        // SAFETY: the bag owns what is on it.
        let node = unsafe { self.queue.pop_front(shape) }?;
        self.len -= 1;
        Some(node.at)
    }

    /// Puts everything of the other before what is here.
    pub(super) fn append(&mut self, shape: &Shape, other: &mut Self) {
        let other = core::mem::replace(other, Self::new());
        // SAFETY: both own what is on them.
        unsafe { self.queue.splice_front(shape, other.queue) };
        self.len += other.len;
    }
}

/// Objects that their readers have left. Who drops them would wait for one after the other, as all left long ago: so with each slot that is
/// given out one more is asked for ahead.
pub(super) struct Passed {
    bag: Bag,
    /// The one that was asked for last; in the bag.
    ahead: Option<NonNull<Hook>>,
}

impl Passed {
    const fn new() -> Self {
        Self { bag: Bag::new(), ahead: None }
    }

    pub(super) fn len(&self) -> u32 {
        self.bag.len
    }

    #[inline]
    pub(super) fn pop(&mut self, shape: &Shape) -> Option<NonNull<Hook>> {
        let links = self.bag.pop(shape)?;
        if self.ahead == Some(links) {
            self.ahead = None;
        }
        Some(links)
    }

    /// Puts what their readers have just left before the others: it is nearer.
    fn prepend(&mut self, shape: &Shape, bag: &mut Bag) {
        self.bag.append(shape, bag);
        self.ahead = None;
    }

    /// The next one to be asked for, from the first to the last.
    #[inline]
    pub(super) fn look_ahead(&mut self, shape: &Shape) -> Option<NonNull<Hook>> {
        self.ahead = if let Some(ahead) = self.ahead {
            // SAFETY: it is in the bag.
            let next = unsafe { shape.next(ahead) };
            // SAFETY: it is none, or in the bag.
            unsafe { shape.find(next) }
        } else {
            // SAFETY: the bag owns what is in it.
            unsafe { self.bag.queue.first(shape) }.map(|node| node.at)
        };
        self.ahead
    }

    /// Everything, to be dropped.
    pub(super) fn take(&mut self) -> Bag {
        core::mem::replace(self, Self::new()).bag
    }
}

/// See the module.
pub(super) struct Stripe {
    pub(super) free: FreeList,
    /// Of which node the free slots are.
    pub(super) node: NodeId,
    pub(super) open: Bag,
    /// What the objects in the open bag weigh.
    pub(super) open_bytes: u64,
    /// Objects of the bag that was closed last.
    pub(super) bag_len: u32,
    /// Two moments: the older, and the latest, which all that comes later joins.
    pub(super) sealed: [Option<Sealed>; 2],
    pub(super) passed: Passed,
    pub(super) closed: bool,
}

// SAFETY: free slots are memory that nobody uses.
unsafe impl Send for Stripe {}

impl Stripe {
    pub(super) fn new() -> Self {
        Self {
            free: FreeList::new(),
            node: NodeId::ZERO,
            open: Bag::new(),
            open_bytes: 0,
            bag_len: 0,
            sealed: [None, None],
            passed: Passed::new(),
            closed: false,
        }
    }

    /// Closes the open bag. `stamp` is a moment after its last object was made unreachable. Does another one wait already?
    pub(super) fn seal(&mut self, shape: &Shape, stamp: Stamp) -> bool {
        let bag = core::mem::replace(&mut self.open, Bag::new());
        self.bag_len = bag.len;
        let mut sealed = Sealed { bag, bytes: core::mem::take(&mut self.open_bytes), stamp };
        if self.sealed[0].is_none() {
            self.sealed[0] = Some(sealed);
            false
        } else {
            if let Some(waiting) = &mut self.sealed[1] {
                sealed.bag.append(shape, &mut waiting.bag);
                sealed.bytes += waiting.bytes;
            }
            self.sealed[1] = Some(sealed);
            true
        }
    }

    /// Moves those whose readers have left on; how many bytes that were. A fence that reaches every processor is run only if `may_fence`;
    /// without it, one that somebody else has run since will do.
    pub(super) fn advance(&mut self, shape: &Shape, may_fence: bool) -> u64 {
        let mut bytes = 0;
        // The later moment first: if it is past, so is the other.
        for at in [1, 0] {
            let is_past = |sealed: &Sealed| (may_fence || sealed.stamp.is_fenced()) && sealed.stamp.is_past();
            if self.sealed[at].as_ref().is_some_and(is_past) {
                for sealed in &mut self.sealed[..=at] {
                    if let Some(mut sealed) = sealed.take() {
                        bytes += sealed.bytes;
                        self.passed.prepend(shape, &mut sealed.bag);
                    }
                }
                break;
            }
        }
        if self.sealed[0].is_none() {
            self.sealed.swap(0, 1);
        }
        bytes
    }
}
