//! A thread cache: a part of a slab for some of the threads, to reduce contention, with a lock of
//! its own. It holds free slots, and retired objects that wait for their readers.
//!
//! ```text
//!     retire --> open --full--> sealed, with a grace period --readers left--> ready --dropped, a few at a time--> free --> alloc
//! ```
//!
//! A change must ensure that objects pass these stages in this order, and that an object's
//! destructor runs without the cache's lock.

use super::bag::Bag;
use super::free::FreeList;
use super::ready_queue::ReadyQueue;
use crate::rcu::GracePeriod;
use lowwater_base::NodeId;
use lowwater_lru_core::list::LinkLayout;

/// The maximum number of ready objects that nested calls leave to an outermost one: see the module
/// `nest`.
pub(super) const NESTED_MAX: u32 = 64;

/// A bag that takes no more objects and waits for its grace period.
pub(super) struct Sealed {
    pub(super) bag: Bag,
    /// The bytes counted for the bag that are subtracted when its readers have left, and not when
    /// an object is dropped.
    pub(super) bytes: u64,
    stamp: GracePeriod,
}

/// The contents of a thread cache, under its lock; see the module.
#[doc(alias = "magazine")]
pub(super) struct ThreadCache {
    /// The free slots from which objects are allocated.
    pub(super) free: FreeList,
    /// A whole batch of free slots, or none. With one batch alone, a thread that frees and
    /// allocates in turn might pass a batch on and take it back for each object.
    pub(super) spare: FreeList,
    /// The node of the free slots.
    pub(super) node: NodeId,
    /// Objects that were retired since the last bag was sealed.
    pub(super) open: Bag,
    /// The weight of the objects in the open bag, and of memory that was retired beside them.
    pub(super) open_bytes: u64,
    /// The part of `open_bytes` that is subtracted when the readers have left, not when an object
    /// is dropped.
    pub(super) beside_bytes: u64,
    /// Bytes retired less bytes dropped that are not yet added to the slab's counter.
    pub(super) unreported: i64,
    /// The number of objects in the bag that was sealed last: the measure of a backlog in `ready`.
    pub(super) bag_len: u32,
    /// Two grace periods: the older one, and the latest, which all later bags join.
    pub(super) sealed: [Option<Sealed>; 2],
    /// Objects whose readers have left, to be dropped.
    pub(super) ready: ReadyQueue,
    /// True while a thread drops objects that were in `ready`.
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    pub(super) dropping: bool,
    /// Objects that other calls leave meanwhile to the dropping thread: see the module `nest`.
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    pub(super) pending: Bag,
    /// The number of ready objects that other calls may still leave: see the module `nest`.
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    ready_max: u32,
    /// The slab's owner was dropped: an object that is retired now is dropped at once.
    pub(super) closed: bool,
}

// SAFETY: the free slots are memory that no other code uses; bags and the ready queue are Send.
unsafe impl Send for ThreadCache {}

impl ThreadCache {
    pub(super) fn new() -> Self {
        Self {
            free: FreeList::new(),
            spare: FreeList::new(),
            node: NodeId::ZERO,
            open: Bag::new(),
            open_bytes: 0,
            beside_bytes: 0,
            unreported: 0,
            bag_len: 0,
            sealed: [None, None],
            ready: ReadyQueue::new(),
            #[cfg(any(not(feature = "std"), lowwater_loom))]
            dropping: false,
            #[cfg(any(not(feature = "std"), lowwater_loom))]
            pending: Bag::new(),
            #[cfg(any(not(feature = "std"), lowwater_loom))]
            ready_max: 0,
            closed: false,
        }
    }

    /// Returns the number of free slots.
    #[cfg(test)]
    pub(super) fn free_len(&self) -> u32 {
        self.free.len() + self.spare.len()
    }

    /// Returns true if the caller should drop objects of this thread cache. Otherwise leaves `some`
    /// objects to the thread that is dropping already: ready ones, at most as many as the second
    /// argument, or others, which must be dropped.
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    pub(super) fn begin_drops(&mut self, layout: &LinkLayout, some: impl FnOnce(&mut ReadyQueue, u32) -> Bag) -> bool {
        let is_first = !core::mem::replace(&mut self.dropping, true);
        if is_first {
            self.ready_max = NESTED_MAX;
        } else {
            let mut some = some(&mut self.ready, self.ready_max);
            self.ready_max = self.ready_max.saturating_sub(some.len);
            self.pending.append(layout, &mut some);
        }
        is_first
    }

    /// Returns the maximum number of ready objects that the caller may take to drop them: few if
    /// another call is dropping.
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    pub(super) fn ready_max(&self) -> u32 {
        if self.dropping {
            self.ready_max
        } else {
            u32::MAX
        }
    }

    /// Seals the open bag. `stamp` was taken after the bag's last object became unreachable.
    /// Returns true if an older bag is waiting already.
    pub(super) fn seal(&mut self, layout: &LinkLayout, stamp: GracePeriod) -> bool {
        let bag = core::mem::replace(&mut self.open, Bag::new());
        self.bag_len = bag.len;
        self.open_bytes = 0;
        let mut sealed = Sealed { bag, bytes: core::mem::take(&mut self.beside_bytes), stamp };
        if self.sealed[0].is_none() {
            self.sealed[0] = Some(sealed);
            false
        } else {
            if let Some(waiting) = &mut self.sealed[1] {
                sealed.bag.append(layout, &mut waiting.bag);
                // Wrapping, as the slab's counter to which the same bytes were added.
                sealed.bytes = sealed.bytes.wrapping_add(waiting.bytes);
            }
            self.sealed[1] = Some(sealed);
            true
        }
    }

    /// Moves bags to `ready` after their grace period; returns the bytes to subtract from the
    /// slab's counter for them. Issues a fence on every processor only if `may_fence`; otherwise
    /// uses a fence that another thread has issued since.
    pub(super) fn advance(&mut self, layout: &LinkLayout, may_fence: bool) -> u64 {
        let mut bytes = 0;
        // The later grace period first: if it has passed, so has the older one.
        for at in [1, 0] {
            let is_past = |sealed: &Sealed| (may_fence || sealed.stamp.is_fenced()) && sealed.stamp.poll();
            if self.sealed[at].as_ref().is_some_and(is_past) {
                for sealed in &mut self.sealed[..=at] {
                    if let Some(mut sealed) = sealed.take() {
                        bytes = u64::wrapping_add(bytes, sealed.bytes);
                        self.ready.prepend(layout, &mut sealed.bag);
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

/// The right to drop a thread cache's objects. Its drop releases the right, so that a panic in an
/// object's `Drop`, which is not caught without `std`, does so too.
#[cfg(any(not(feature = "std"), lowwater_loom))]
pub(super) struct Turn<'a>(pub(super) &'a crate::sync::Mutex<ThreadCache>);

#[cfg(any(not(feature = "std"), lowwater_loom))]
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().dropping = false;
    }
}
