//! A part of a slab for some of the threads, so that two meet seldom: free slots at hand, and objects that wait for their readers.
//!
//! ```text
//!     retire --> open --full--> sealed, with the moment --readers left--> passed --dropped, a few at a time--> free --> alloc
//! ```

use super::bag::Bag;
use super::free::FreeList;
use super::ready_queue::ReadyQueue;
use crate::rcu::GracePeriod;
use lowwater_base::NodeId;
use lowwater_lru_core::list::LinkLayout;

/// A bag that is closed.
pub(super) struct Sealed {
    pub(super) bag: Bag,
    /// What was counted for it that nobody counts down when an object is dropped.
    pub(super) bytes: u64,
    stamp: GracePeriod,
}

/// See the module.
#[doc(alias = "magazine")]
pub(super) struct ThreadCache {
    pub(super) free: FreeList,
    /// Of which node the free slots are.
    pub(super) node: NodeId,
    pub(super) open: Bag,
    /// What the objects in the open bag weigh, and what was retired beside them.
    pub(super) open_bytes: u64,
    /// Of these, what is not counted down when an object is dropped.
    pub(super) beside_bytes: u64,
    /// Bytes that were retired less those that were dropped, and nobody was told of yet.
    pub(super) unreported: i64,
    /// Objects of the bag that was closed last.
    pub(super) bag_len: u32,
    /// Two moments: the older, and the latest, which all that comes later joins.
    pub(super) sealed: [Option<Sealed>; 2],
    pub(super) ready: ReadyQueue,
    /// Does somebody drop objects that were in `passed`?
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    pub(super) dropping: bool,
    /// What others would drop meanwhile, for him to drop: see the module `nest`.
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    pub(super) pending: Bag,
    pub(super) closed: bool,
}

// SAFETY: free slots are memory that nobody uses.
unsafe impl Send for ThreadCache {}

impl ThreadCache {
    pub(super) fn new() -> Self {
        Self {
            free: FreeList::new(),
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
            closed: false,
        }
    }

    /// Is it for the caller to drop objects of this thread_cache? Else `some` of them are left to whoever does already.
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    pub(super) fn begin_drops(&mut self, shape: &LinkLayout, some: impl FnOnce(&mut ReadyQueue) -> Bag) -> bool {
        let is_first = !core::mem::replace(&mut self.dropping, true);
        if !is_first {
            self.pending.append(shape, &mut some(&mut self.ready));
        }
        is_first
    }

    /// Closes the open bag. `stamp` is a moment after its last object was made unreachable. Does another one wait already?
    pub(super) fn seal(&mut self, shape: &LinkLayout, stamp: GracePeriod) -> bool {
        let bag = core::mem::replace(&mut self.open, Bag::new());
        self.bag_len = bag.len;
        self.open_bytes = 0;
        let mut sealed = Sealed { bag, bytes: core::mem::take(&mut self.beside_bytes), stamp };
        if self.sealed[0].is_none() {
            self.sealed[0] = Some(sealed);
            false
        } else {
            if let Some(waiting) = &mut self.sealed[1] {
                sealed.bag.append(shape, &mut waiting.bag);
                // Wrapping: what was added to the slab's count, which does the same.
                sealed.bytes = sealed.bytes.wrapping_add(waiting.bytes);
            }
            self.sealed[1] = Some(sealed);
            true
        }
    }

    /// Moves those whose readers have left on; how many bytes are to be counted down for that. A
    /// fence that reaches every processor is run only if `may_fence`;
    /// without it, one that somebody else has run since will do.
    pub(super) fn advance(&mut self, shape: &LinkLayout, may_fence: bool) -> u64 {
        let mut bytes = 0;
        // The later moment first: if it is past, so is the other.
        for at in [1, 0] {
            let is_past = |sealed: &Sealed| (may_fence || sealed.stamp.is_fenced()) && sealed.stamp.poll();
            if self.sealed[at].as_ref().is_some_and(is_past) {
                for sealed in &mut self.sealed[..=at] {
                    if let Some(mut sealed) = sealed.take() {
                        bytes = u64::wrapping_add(bytes, sealed.bytes);
                        self.ready.prepend(shape, &mut sealed.bag);
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

/// The right to drop a thread_cache's objects, should an object's `Drop` panic, which without `std` nobody catches.
#[cfg(any(not(feature = "std"), lowwater_loom))]
pub(super) struct Turn<'a>(pub(super) &'a crate::sync::Mutex<ThreadCache>);

#[cfg(any(not(feature = "std"), lowwater_loom))]
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().dropping = false;
    }
}
