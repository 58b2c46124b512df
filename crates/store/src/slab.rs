//! Slots of one size for objects that readers access without a lock.
//!
//! ```text
//!     Slab --> chunks of 64 KiB of one node's memory, in spans of 2 MiB from the system
//!                header | slot | slot | slot ..      a chunk goes back to the system when all its slots are free
//!          --> the first 64 KiB: parts of chunks that all slabs share, from 256 bytes on
//!     Slot --> the one handle of an object; dropped: the object is retired
//! ```
//!
//! A change must ensure that an object is dropped only after every reader has left that may have
//! found it, and that no `Drop` and no weigher runs under a lock of the slab.
//!
//! # How an object is dropped
//!
//! An object is retired when its handle is dropped and no index has it: no new reader can find it
//! then. Earlier readers may still use the object, so it waits for them in a bag of the thread
//! cache, together with other objects. A bag is sealed when it is full (1/64 of the slots, 16 to
//! 4,096 objects, or 128 KiB). A sealed bag is ready when all readers have left that were inside
//! when it was sealed. Detecting this takes a fence on every processor that runs a thread of this
//! process, 20 us if another thread runs; so the fence is issued for the second sealed bag, or a
//! fence that another thread issued is used. Afterwards each retired object drops one or two ready
//! objects, so that no call drops a thousand. [`Slab::collect`] drops all ready objects at once.
//!
//! Objects are weighed without a lock on the thread that retires them, and dropped without a lock
//! on any thread that retires objects or collects; with `std` a panic is caught and counted.
//!
//! A `Drop` may use the slab, and retire other objects. Those are not dropped inside of it: calls
//! that drop objects of one type do not nest on a thread (`nest.rs`); the nested calls leave their
//! objects to the outermost. So an object may be dropped a little later than the return of the call
//! that retired it, by an enclosing call on the same thread; and a chain of any length of objects
//! that retire each other needs no more stack than one of them. This also holds for objects that
//! own other slabs, and for each type of object separately. Without `std` it holds for each slab
//! separately, and not for slabs that own each other.
//!
//! # How much memory waits
//!
//! For each thread cache (one, and about two per processor once the slab has 1,024 slots) an open
//! bag, a sealed bag, and two or three ready bags; and everything that a reader holds back.
//! [`Slab::waiting`] returns the bytes. Several slabs can share a counter, [`RetiredBytes`]: an
//! owner with a memory limit reads it before it allocates more.
//!
//! Free slots wait, too, until the next collection: up to 256 in each thread cache, and 1/16 of all
//! slots on their way from threads that drop objects to threads that allocate
//! (`transfer_cache.rs`).
//!
//! # Compaction
//!
//! A chunk with a single object still takes a whole chunk of memory. When most objects have been
//! dropped, [`Slab::begin_compaction`] selects the emptiest chunks, and no object is put in them
//! until [`Slab::end_compaction`]; the owner of the remaining objects copies each to a new slot and
//! drops the old one. The slab does not move objects itself, because readers access them.
//!
//! # Why not `Arc`
//!
//! A count in each object is a cache line that every reader writes. And a general allocator returns
//! memory to the system at its own discretion, while a shrink must lower the resident memory.

mod bag;
mod central_free_list;
mod chunk_memory;
mod free;
mod fullness_groups;
#[cfg(all(feature = "std", not(lowwater_loom)))]
mod nest;
mod numbered_memory;
mod ready_queue;
mod retired;
mod shared;
#[cfg(not(lowwater_loom))]
mod shared_chunks;
mod slot;
mod slotted;
mod spans;
mod state;
#[cfg(test)]
mod tests;
mod thread_cache;
mod thread_caches;
mod transfer_cache;

pub(crate) use fullness_groups::{FullnessGroups, GroupLink, HasGroupLink, NONE};
pub use retired::RetiredBytes;
pub(crate) use shared::SharedSlab;
pub use slotted::{Slot, Slotted};
pub(crate) use spans::{Memory, Spans};
pub use state::SlotState;

use crate::fallible::try_box;
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::Arc;
use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};
use lowwater_base::{ByteSize, NodeId};

/// A slab of objects of one type; see the [module](self).
pub struct Slab<T: Slotted> {
    /// Null until the first object is allocated.
    shared: AtomicPtr<SharedSlab<T>>,
    /// A shared counter to which this slab's retired bytes are added, too.
    retired: Option<Arc<RetiredBytes>>,
}

// SAFETY: objects are Send and Sync (bounds of `Slotted`); everything else is behind locks and
// atomics.
unsafe impl<T: Slotted> Send for Slab<T> {}
// SAFETY: shared access reaches objects, which are Send and Sync (bounds of `Slotted`), and state
// behind locks and atomics.
unsafe impl<T: Slotted> Sync for Slab<T> {}

impl<T: Slotted> Slab<T> {
    /// Creates an empty slab: two pointers, and about 600 bytes beside its chunks from the first
    /// object on.
    pub fn new() -> Self {
        Self { shared: AtomicPtr::new(ptr::null_mut()), retired: None }
    }

    /// Creates an empty slab that also counts its retired objects in `retired`, together with those
    /// of other slabs.
    pub fn with_retired(retired: Arc<RetiredBytes>) -> Self {
        Self { shared: AtomicPtr::new(ptr::null_mut()), retired: Some(retired) }
    }

    /// Returns the shared part; `None` before the first object.
    #[inline]
    pub(crate) fn shared(&self) -> Option<&SharedSlab<T>> {
        // SAFETY: the shared part lives at least until the drop of this slab closes it.
        self.pointer().map(|shared| unsafe { shared.as_ref() })
    }

    #[inline]
    fn pointer(&self) -> Option<NonNull<SharedSlab<T>>> {
        // Acquire: pairs with the Release in `begin`, so that the shared part is seen initialized.
        let shared = NonNull::new(self.shared.load(Ordering::Acquire))?;
        #[cfg(lowwater_loom)]
        // SAFETY: the shared part lives at least until the drop of this slab closes it.
        unsafe { shared.as_ref() }.assert_made();
        Some(shared)
    }

    /// Allocates the shared part; `None` without memory.
    #[cold]
    fn begin(&self) -> Option<NonNull<SharedSlab<T>>> {
        let new = Box::into_raw(try_box(SharedSlab::new(self.retired.clone()))?);
        // Release: pairs with the Acquire in `pointer`. Acquire on failure: the same pairing, for a
        // shared part that another thread allocated.
        let release = if crate::mutated!("slab_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        match self.shared.compare_exchange(ptr::null_mut(), new, release, Ordering::Acquire) {
            Ok(_) => NonNull::new(new),
            Err(other) => {
                // SAFETY: the pointer came from a box just now, and was not published.
                drop(unsafe { Box::from_raw(new) });
                NonNull::new(other)
            }
        }
    }

    /// Puts an object into a slot in `node`'s memory. O(1); a call may allocate a chunk.
    ///
    /// # Errors
    ///
    /// Returns the object if there is no memory.
    #[inline]
    pub fn alloc(&self, value: T, node: NodeId) -> Result<Slot<T>, T> {
        let Some(shared) = self.pointer().or_else(|| self.begin()) else { return Err(value) };
        // SAFETY: `shared` came from a box, and this slab, its owner, is borrowed.
        unsafe { SharedSlab::alloc(shared, node, value) }.map(|object| Slot(object, PhantomData))
    }

    /// Returns true if the object is in this slab.
    pub(crate) fn has(&self, slot: &Slot<T>) -> bool {
        // SAFETY: an object with a `Slot` is in a slab, and its slot is not free.
        let owner = unsafe { SharedSlab::<T>::owner(slot.0) };
        self.shared().is_some_and(|shared| core::ptr::eq(owner.slab.cast(), shared))
    }

    /// Drops every object that no reader holds back, and returns empty chunks to the system.
    /// Returns the bytes that remain.
    ///
    /// O(waiting objects). Inside a [`Guard`](lowwater_rcu::Guard) of this thread, objects retired
    /// under that guard remain. Inside the `Drop` of an object of this type, at most 64 objects are
    /// dropped, after that `Drop` has returned; later calls drop the rest.
    pub fn collect(&self) -> ByteSize {
        let Some(shared) = self.shared() else { return ByteSize::ZERO };
        let stays = shared.collect(usize::MAX);
        shared.give_spare_back();
        ByteSize::new(stays)
    }

    /// As [`collect`](Self::collect), but drops at most `objects` objects, for callers with limited
    /// time: later retirements drop the rest, one or two for each retired object. The slab also
    /// keeps a few empty chunks, about 2 MiB, for new objects. O(`objects`).
    pub fn collect_some(&self, objects: usize) -> ByteSize {
        ByteSize::new(self.shared().map_or(0, |shared| shared.collect(objects)))
    }

    /// Returns true if less than half of the slots of some node with at least 16 chunks are in use,
    /// so that a [compaction](Self::begin_compaction) would return much memory. O(nodes).
    pub fn is_sparse(&self) -> bool {
        self.shared().is_some_and(SharedSlab::is_sparse)
    }

    /// Begins a compaction: on each [sparse](Self::is_sparse) node, selects the emptiest chunks for
    /// evacuation, as many as the remaining chunks have room for. New objects are then put
    /// elsewhere. Returns the number of used slots in the selected chunks; 0 if there is nothing to
    /// do or a compaction is running. O(chunks).
    ///
    /// The slab does not move objects: their owner copies each to another slot and drops the old
    /// one. [`ExtendibleIndex::visit_evacuating`](crate::ExtendibleIndex::visit_evacuating) shows
    /// which. A chunk returns to the system when its last object has been dropped.
    #[doc(alias = "isolate_migratepages")]
    pub fn begin_compaction(&self) -> usize {
        self.shared().map_or(0, SharedSlab::begin_compaction)
    }

    /// Ends a compaction: selected chunks that are not empty are allocated from again. O(chunks).
    #[doc(alias = "putback_movable_pages")]
    pub fn end_compaction(&self) {
        if let Some(shared) = self.shared() {
            shared.end_compaction();
        }
    }

    /// Seals all open bags: starts a grace period for everything that has been retired so far.
    /// O(thread caches).
    ///
    /// For callers that go over several slabs: if all are sealed before the first
    /// [`drop_some`](Self::drop_some), one fence on every processor is enough for all.
    pub fn seal(&self) {
        if let Some(shared) = self.shared() {
            shared.seal_all();
        }
    }

    /// Drops at most `objects` objects that were [sealed](Self::seal) and have no readers left.
    /// Returns the number of dropped objects. O(`objects`).
    pub fn drop_some(&self, objects: usize) -> usize {
        self.shared().map_or(0, |shared| shared.drop_ready(objects))
    }

    /// Counts objects that have a handle as retired, `bytes` of [weight](Slotted::weight) in all,
    /// because the slab is about to be dropped and then their handles: the drop of each object
    /// subtracts its weight, and the last one the rest, if `bytes` is another sum. Several calls
    /// add up.
    pub fn count_all(&self, bytes: ByteSize) {
        if let Some(shared) = self.shared() {
            shared.count_all(bytes.get());
        }
    }

    /// Returns the [weight](Slotted::weight) of the objects that are retired and not yet dropped,
    /// with the precision of [`RetiredBytes`].
    pub fn waiting(&self) -> ByteSize {
        self.shared().map_or(ByteSize::ZERO, |shared| shared.waiting.get())
    }

    /// Returns the number of panics of objects' `Drop`s and weighers.
    pub fn drop_panics(&self) -> u64 {
        // Relaxed: a statistic.
        self.shared().map_or(0, |shared| shared.drop_panics.load(Ordering::Relaxed))
    }

    /// Returns the slab's memory: all chunks, used or not, and its own bookkeeping; zero before the
    /// first object. Of shared chunks only the slab's parts count.
    pub fn footprint(&self) -> ByteSize {
        ByteSize::new(self.shared().map_or(0, SharedSlab::footprint) as u64)
    }

    /// Checks the structure, for tests.
    ///
    /// # Panics
    ///
    /// If an invariant is violated, with a sentence that states the invariant.
    pub fn assert_valid(&self) {
        if let Some(shared) = self.shared() {
            shared.assert_valid();
        }
    }
}

impl<T: Slotted> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Slotted> Drop for Slab<T> {
    /// Objects that still have a handle live on, and are dropped at once when the handle is. If
    /// this runs inside the `Drop` of an object of this type, the retired objects are dropped after
    /// that `Drop`.
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        if let Some(shared) = self.pointer() {
            // SAFETY: the pointer came from a box and is not used afterwards. Readers' references
            // to objects borrow the slab's owner, or a handle.
            unsafe { SharedSlab::close(shared) };
        }
    }
}

impl<T: Slotted> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("footprint", &self.footprint()).finish_non_exhaustive()
    }
}
