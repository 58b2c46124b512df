//! Slots of one size for objects that readers look at without a lock.
//!
//! ```text
//!     Slab --> chunks of 64 KiB of one node's memory, in blocks of 2 MiB from the system
//!                header | slot | slot | slot ..      a chunk goes back to the system when all its slots are free
//!     Slot --> the one handle of an object; dropped: the object is retired
//! ```
//!
//! # An object's end
//!
//! Its handle is dropped when nobody can find it any more. Readers that found it before may still look, so it waits for them, in a bag of
//! the thread's thread_cache with others: bags are sealed when they are full (a 64th of the slots, 16 to 4,096 objects, or
//! 128 KiB), a sealed one is done when all readers that were inside then have left. To know that takes a fence on every processor that runs
//! a thread of ours, 20 us where another is: so it is asked for the second sealed bag, or when somebody else's fence will do. After
//! that each object that is retired drops one or two of those that are done, so that no call pays for a thousand. [`Slab::collect`] does it all
//! at once.
//!
//! Objects are dropped, and weighed, without a lock, on the thread that happens to; with `std` a panic is caught and counted.
//!
//! A `Drop` may use the slab, and have other objects end. Those are not dropped inside of it: calls that drop objects of one type do not
//! nest on a thread (`nest.rs`), the outermost drops what the others leave to it. So an object may be dropped a little later than the call
//! returns that ended it, by a call further out on the same thread; and no number of objects that end each other needs more stack than one
//! does. That holds for slabs whose objects own other slabs, too; and for each type of object by itself. Without `std` it holds for each
//! slab by itself, and not for slabs that own each other.
//!
//! # How much waits
//!
//! For each thread_cache (two for each processor, in a slab of a thousand objects or more) an open bag, a
//! sealed one, and two or three whose readers have left; and what readers hold back.
//! [`Slab::waiting`] says how many bytes that is. Several slabs can share a count,
//! [`RetiredBytes`]: whoever has a bound on memory asks it before making more.
//!
//! # What is left in few of many slots
//!
//! A chunk with one object is a chunk. When most objects have ended, [`Slab::begin_compaction`] chooses the emptiest chunks, and nothing is put in
//! them until [`Slab::end_compaction`]; who made the objects that are there makes each again and drops the old one. Objects do not move by
//! themselves: readers look at them.
//!
//! # Why not Arc
//!
//! A count in each object is a line that every reader writes. And an allocator gives back to the system what it wants when it wants; a
//! shrink must lower what is resident.

mod bag;
mod central_free_list;
mod free;
mod fullness_groups;
#[cfg(all(feature = "std", not(lowwater_loom)))]
mod nest;
mod ready_queue;
mod retired;
mod shared;
mod slot;
mod slotted;
mod spans;
mod state;
#[cfg(test)]
mod tests;
mod thread_cache;
mod thread_caches;

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
use core::ptr::{self, NonNull};
use lowwater_base::{ByteSize, NodeId};

/// See the [module](self).
pub struct Slab<T: Slotted> {
    /// Null until the first object is made.
    shared: AtomicPtr<SharedSlab<T>>,
    /// Where what is retired is counted, too.
    retired: Option<Arc<RetiredBytes>>,
}

// SAFETY: objects are Send and Sync (bounds of `Slotted`); everything else is behind locks and atomics.
unsafe impl<T: Slotted> Send for Slab<T> {}
// SAFETY: as for Send.
unsafe impl<T: Slotted> Sync for Slab<T> {}

impl<T: Slotted> Slab<T> {
    /// An empty slab: a pointer, and some 400 bytes from the first object on.
    pub fn new() -> Self {
        Self { shared: AtomicPtr::new(ptr::null_mut()), retired: None }
    }

    /// An empty slab whose retired objects are counted in `retired`, too, with those of other
    /// slabs.
    pub fn with_retired(retired: Arc<RetiredBytes>) -> Self {
        Self { shared: AtomicPtr::new(ptr::null_mut()), retired: Some(retired) }
    }

    /// None before the first object.
    #[inline]
    pub(crate) fn shared(&self) -> Option<&SharedSlab<T>> {
        // SAFETY: once there, it lives at least until we close it.
        self.pointer().map(|shared| unsafe { shared.as_ref() })
    }

    #[inline]
    fn pointer(&self) -> Option<NonNull<SharedSlab<T>>> {
        // Acquire: meets the Release in `begin`, so that it is seen as it was made.
        let shared = NonNull::new(self.shared.load(Ordering::Acquire))?;
        #[cfg(lowwater_loom)]
        // SAFETY: as in `shared`.
        unsafe { shared.as_ref() }.assert_made();
        Some(shared)
    }

    /// Makes what the objects share; none without memory.
    #[cold]
    fn begin(&self) -> Option<NonNull<SharedSlab<T>>> {
        let new = Box::into_raw(try_box(SharedSlab::new(self.retired.clone()))?);
        // Release: meets the Acquire in `pointer`. Acquire: as there, of one that somebody else made.
        let release = if crate::mutated!("slab_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        match self.shared.compare_exchange(ptr::null_mut(), new, release, Ordering::Acquire) {
            Ok(_) => NonNull::new(new),
            Err(other) => {
                // SAFETY: it came from a box just now, and nobody saw it.
                drop(unsafe { Box::from_raw(new) });
                NonNull::new(other)
            }
        }
    }

    /// Puts an object into a slot of `node`'s memory. O(1); now and then a chunk is made.
    ///
    /// # Errors
    ///
    /// The object, if there is no memory.
    #[inline]
    pub fn alloc(&self, value: T, node: NodeId) -> Result<Slot<T>, T> {
        let Some(shared) = self.pointer().or_else(|| self.begin()) else { return Err(value) };
        // SAFETY: it came from a box, and we own it.
        unsafe { SharedSlab::alloc(shared, node, value) }.map(Slot)
    }

    /// Is the object in this slab?
    pub(crate) fn has(&self, slot: &Slot<T>) -> bool {
        // SAFETY: the object is in a slab, as is every object that has such a handle.
        let header = unsafe { SharedSlab::<T>::header(slot.0) };
        self.shared().is_some_and(|shared| core::ptr::eq(header.slab.cast(), shared))
    }

    /// Drops everything that no reader holds back, and gives chunks that are empty to the system. Says what had to stay.
    ///
    /// O(what waits). Inside a [`Guard`](lowwater_rcu::Guard) of this thread nothing that was retired under it goes; and inside the `Drop` of an
    /// object of this type the others are dropped after that.
    pub fn collect(&self) -> ByteSize {
        let Some(shared) = self.shared() else { return ByteSize::ZERO };
        let stays = shared.collect(usize::MAX);
        shared.give_spare_back();
        ByteSize::new(stays)
    }

    /// As [`collect`](Self::collect), but drops so many objects at most, for who has no time for all: the others are dropped by those who
    /// retire more, two for each. And the slab keeps a few empty chunks, up to 2 MiB, for the next objects. O(`objects`).
    pub fn collect_some(&self, objects: usize) -> ByteSize {
        ByteSize::new(self.shared().map_or(0, |shared| shared.collect(objects)))
    }

    /// Is most of what the slab has not used, so that a [migration](Self::begin_compaction) would give much of it back? O(nodes).
    pub fn is_sparse(&self) -> bool {
        self.shared().is_some_and(SharedSlab::is_sparse)
    }

    /// Has the emptiest chunks emptied, of each node, as many as there is room for in its others, if less than half of its slots are used:
    /// objects that are made from now on are put elsewhere. How many slots in them are used; 0: nothing is to be done, or somebody
    /// does it already. O(chunks).
    ///
    /// Objects do not move by themselves: whoever made them makes each again, in another slot, and drops the old one.
    /// [`ExtendibleIndex::visit_evacuating`](crate::ExtendibleIndex::visit_evacuating) shows which. A chunk goes back to the system when its last object has ended.
    #[doc(alias = "isolate_migratepages")]
    pub fn begin_compaction(&self) -> usize {
        self.shared().map_or(0, SharedSlab::begin_compaction)
    }

    /// Ends it: chunks that are not empty are used again. O(chunks).
    #[doc(alias = "putback_movable_pages")]
    pub fn end_compaction(&self) {
        if let Some(shared) = self.shared() {
            shared.end_compaction();
        }
    }

    /// Begins to wait for the readers of everything that was retired until now. O(thread_caches).
    ///
    /// For whoever goes over several slabs: if each is sealed before the first one
    /// [drops](Self::drop_some) anything, one fence on every processor is enough for all.
    pub fn seal(&self) {
        if let Some(shared) = self.shared() {
            shared.seal_all();
        }
    }

    /// Drops so many objects at most of those that were [sealed](Self::seal), and whose readers
    /// have left. How many it dropped. O(`objects`).
    pub fn drop_some(&self, objects: usize) -> usize {
        self.shared().map_or(0, |shared| shared.drop_passed(objects))
    }

    /// The [weight](Slotted::weight) of what was retired and is not dropped yet, as
    /// [`RetiredBytes`] has it.
    pub fn waiting(&self) -> ByteSize {
        self.shared().map_or(ByteSize::ZERO, |shared| shared.waiting.get())
    }

    /// Objects whose `Drop`, or whose weight, panicked.
    pub fn drop_panics(&self) -> u64 {
        // Relaxed: a number to look at.
        self.shared().map_or(0, |shared| shared.drop_panics.load(Ordering::Relaxed))
    }

    /// Memory that the slab has: chunks, used or not, and what it needs itself; nothing before the first object.
    pub fn footprint(&self) -> ByteSize {
        ByteSize::new(self.shared().map_or(0, SharedSlab::footprint) as u64)
    }

    /// Checks the structure, for tests.
    ///
    /// # Panics
    ///
    /// When something is wrong, with a sentence that says what should hold.
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
    /// Objects that still have a handle stay, and are dropped with it, at once. Inside the `Drop` of an object of this type those that
    /// have none are dropped after that.
    fn drop(&mut self) {
        #[cfg(lowwater_loom)]
        if crate::sync::unwinding() {
            return;
        }
        if let Some(shared) = self.pointer() {
            // SAFETY: it came from a box and is not used any more. Readers' references to objects borrow what owns the slab, or a handle.
            unsafe { SharedSlab::close(shared) };
        }
    }
}

impl<T: Slotted> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("footprint", &self.footprint()).finish_non_exhaustive()
    }
}
