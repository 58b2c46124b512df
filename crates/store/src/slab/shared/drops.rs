//! Dropping of objects after their readers have left, and freeing of their slots.
//!
//! For each retired object at most two objects are dropped whose readers have left, so that the
//! cost of drops is spread evenly. A change must ensure that a destructor runs without a lock, that
//! a panic in it is counted and does not leak the slot, and that a slot is freed exactly once.

use super::super::bag::Bag;
use super::super::central_free_list::CentralFreeList;
use super::super::free::{Free, FreeList};
#[cfg(all(feature = "std", not(lowwater_loom)))]
use super::super::nest;
use super::super::slotted::Slotted;
use super::super::thread_cache::ThreadCache;
use super::super::transfer_cache::BATCH;
use super::batch::Batch;
use super::SharedSlab;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, MutexGuard};
use crate::unwind;
use alloc::boxed::Box;
use core::ptr::NonNull;
use lowwater_base::poison::poison;
use lowwater_lru_core::list::Hook;

impl<T: Slotted> SharedSlab<T> {
    /// Drops objects without a lock, then frees their slots under one lock; then drops the objects
    /// that nested calls left to this one. The slab may be dropped meanwhile: its shared part is
    /// then freed with the last slot, and not used afterwards.
    ///
    /// # Safety
    ///
    /// The objects are this slab's, at least one, of the thread cache `here`; there is no handle to
    /// them, and their readers have left.
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    #[inline]
    pub(super) unsafe fn drop_some(this: *const Self, _here: *const Mutex<ThreadCache>, batch: Batch) {
        nest::Frame::with::<T>(|frame| {
            // SAFETY: the caller's clause: there is no handle to the objects, and their readers
            // have left.
            let bytes = unsafe { Self::drop_batch(&batch) };
            // SAFETY: a slab's shared part exists while one of its slots is not free, and the
            // batch's slots are not.
            let thread_cache = unsafe { &*this }.thread_caches.local().lock();
            // SAFETY: the batch is this slab's, and was dropped above.
            unsafe { Self::slots_back(this, thread_cache, batch, bytes) };
            while let Some(links) = frame.pop(T::LAYOUT) {
                // SAFETY: the object was left by a call that took it from a bag without readers, of
                // a slab of this type. No lock is held.
                unsafe { Self::end(links) };
            }
        });
    }

    /// As the variant above, for builds without thread-local storage and for loom: the objects that
    /// other calls leave to this one are in the thread cache.
    ///
    /// # Safety
    ///
    /// The objects are this slab's, at least one, of the thread cache `here`; there is no handle to
    /// them, and their readers have left. [`ThreadCache::begin_drops`] of that thread cache
    /// returned true to the caller.
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    pub(super) unsafe fn drop_some(this: *const Self, here: *const Mutex<ThreadCache>, mut batch: Batch) {
        loop {
            // SAFETY: the slab's shared part, with its thread cache, exists while a slot of the
            // batch is not free.
            let turn = super::super::thread_cache::Turn(unsafe { &*here });
            // SAFETY: the caller's clause, or for the objects in `pending` the same clause of the
            // call that left them.
            let bytes = unsafe { Self::drop_batch(&batch) };
            core::mem::forget(turn);
            // SAFETY: the slots of the batch are not free yet, so the shared part with its thread
            // cache exists.
            let mut thread_cache = unsafe { &*here }.lock();
            let next = Batch::pending(T::LAYOUT, &mut thread_cache);
            thread_cache.dropping = !next.is_empty();
            if next.is_empty() {
                // SAFETY: the batch is this slab's, and was dropped above.
                return unsafe { Self::slots_back(this, thread_cache, batch, bytes) };
            }
            // SAFETY: the batch is this slab's, and was dropped above; the slots of `next` are not
            // free and keep the shared part alive.
            unsafe { Self::slots_back(this, thread_cache, batch, bytes) };
            batch = next;
        }
    }

    /// Drops the objects of a batch. Returns the bytes to subtract for them.
    ///
    /// # Safety
    ///
    /// There is no handle to the objects, their readers have left, and they are not used
    /// afterwards.
    #[inline]
    pub(super) unsafe fn drop_batch(batch: &Batch) -> i64 {
        let mut bytes = 0;
        for links in batch.iter() {
            // SAFETY: batches come from bags; the caller's clause: no handle, no readers, no later
            // use.
            bytes += unsafe { Self::drop_object(links) };
        }
        bytes
    }

    /// Frees the slots of a batch into a thread cache, and subtracts `bytes` from the counters.
    ///
    /// # Safety
    ///
    /// The objects are this slab's, and so is the thread cache; the objects were dropped, and no
    /// other code knows their slots. The slab is not used afterwards, unless another slot is
    /// certain not to be free.
    #[inline]
    pub(super) unsafe fn slots_back(
        this: *const Self,
        mut thread_cache: MutexGuard<'_, ThreadCache>,
        batch: Batch,
        bytes: i64,
    ) {
        // SAFETY: the shared part exists while a slot of the batch is not free; and if the thread
        // cache is not closed, as long as its lock is held, because the pool is closed after all
        // thread caches.
        let shared = unsafe { &*this };
        if !thread_cache.closed {
            shared.count_retired(&mut thread_cache, bytes.wrapping_neg());
            batch.iter().for_each(|links| shared.take_back(&mut thread_cache, links));
            return;
        }
        shared.add_retired(bytes.wrapping_neg());
        // Released before the loop: the thread cache may be freed with the last slot.
        let _held = crate::mutated!("slots_back_under_lock").then_some(thread_cache);
        for links in batch.iter() {
            // SAFETY: only a `T`'s links are in bags.
            let object = unsafe { T::from_links(links) };
            // SAFETY: the caller's clause: the object was dropped, and no other code has the
            // slot.
            unsafe { Self::return_slot(object) };
        }
    }

    /// Frees the slot of a dropped object: into a thread cache that is not closed, or into the
    /// slot's chunk, if the chunk is on another node or is being evacuated.
    #[inline]
    pub(super) fn take_back(&self, thread_cache: &mut ThreadCache, links: NonNull<Hook>) {
        // SAFETY: only a `T`'s links are in bags.
        let object = unsafe { T::from_links(links) };
        // Relaxed, all: `mixed` is set once, see `refill`; `compacting` and `evacuating` are hints:
        // a slot for which they are missed stays in the thread cache for now.
        let is_ours = !self.mixed.load(Ordering::Relaxed) && !self.compacting.load(Ordering::Relaxed) || {
            // SAFETY: the object's slot is not free yet.
            let node = unsafe { Self::node(object) };
            // SAFETY: as above.
            let owner = unsafe { Self::owner(object) };
            node == thread_cache.node && !owner.evacuating.load(Ordering::Relaxed)
        };
        if !is_ours {
            // SAFETY: the object was dropped, and no other code has the slot.
            return unsafe { Self::return_slot(object) };
        }
        // SAFETY: the object was dropped by the caller, and no other code has the slot.
        unsafe { poison(object.as_ptr().cast(), size_of::<T>(), size_of::<Free>()) };
        // SAFETY: the object was dropped, and no other code has the slot.
        unsafe { thread_cache.free.push(object.cast()) };
        if thread_cache.free.len() == BATCH {
            self.set_aside(thread_cache);
        }
    }

    /// Makes a whole batch of free slots the spare one. The spare one before goes to the transfer
    /// cache; or to the chunks, if enough wait there, or chunks are being evacuated. If too many
    /// batches wait, one of them also goes to the chunks.
    #[cold]
    fn set_aside(&self, thread_cache: &mut ThreadCache) {
        let batch = core::mem::replace(&mut thread_cache.spare, thread_cache.free.take());
        if batch.len() == 0 {
            return;
        }
        let pool = &mut self.pool.lock();
        let slots = pool.slots;
        // Relaxed: a hint, as in `take_back`.
        let refused = match self.compacting.load(Ordering::Relaxed) {
            false => pool.transfer.put(batch, thread_cache.node, slots).err(),
            true => Some(batch),
        };
        let Some(batch) = refused else { return };
        self.put_all(batch, pool);
        if pool.transfer.has_too_many(slots) {
            if let Some(batch) = pool.transfer.pop() {
                self.put_all(batch, pool);
            }
        }
    }

    /// Returns a thread cache's free slots to their chunks.
    pub(super) fn flush(&self, thread_cache: &mut ThreadCache, pool: &mut MutexGuard<'_, CentralFreeList>) {
        self.put_all(thread_cache.free.take(), pool);
        self.put_all(thread_cache.spare.take(), pool);
    }

    /// Returns at most `slots` slots in the transfer cache to their chunks, in whole batches.
    pub(super) fn flush_transfer(&self, slots: usize) {
        // The bound of the loop: batches that other threads add from now on stay.
        let batches = self.pool.lock().transfer.len().min(slots / BATCH as usize);
        for _ in 0..batches {
            // Locked for each batch, as other threads wait for the lock.
            let pool = &mut self.pool.lock();
            let Some(batch) = pool.transfer.pop() else { break };
            self.put_all(batch, pool);
        }
    }

    /// Returns free slots to their chunks.
    fn put_all(&self, mut slots: FreeList, pool: &mut MutexGuard<'_, CentralFreeList>) {
        let before = pool.slots;
        while let Some(slot) = slots.pop() {
            // SAFETY: for the pool the slot is not free, so its chunk exists.
            let number = unsafe { Self::owner(slot.cast()) }.number;
            // SAFETY: the slot came from this pool's chunk of that number, and no other code uses
            // it.
            unsafe { pool.put(slot, number) };
        }
        if pool.slots != before {
            self.count(pool);
        }
    }

    /// Returns one slot to its chunk. If it was the last slot of a closed slab, frees the slab's
    /// shared part: afterwards the caller neither uses the slab nor holds one of its locks, unless
    /// another slot is certain not to be free, or the pool certain not to be closed.
    ///
    /// # Safety
    ///
    /// The slot is a slab's, and not free; its contents are gone, and no other code has it.
    pub(in crate::slab) unsafe fn return_slot(object: NonNull<T>) {
        // SAFETY: the object's slot is not free.
        let owner = unsafe { Self::owner(object) };
        let shared = owner.slab.cast::<Self>();
        // SAFETY: a slab's shared part exists while one of its slots is not free.
        let this = unsafe { &*shared };
        let mut pool = this.pool.lock();
        // SAFETY: the caller's clause: the slot's contents are gone, and no other code has it.
        unsafe { poison(object.as_ptr().cast(), size_of::<T>(), size_of::<Free>()) };
        // SAFETY: the slot came from this pool's chunk of that number, and no other code uses it.
        unsafe { pool.put(object.cast(), owner.number) };
        let is_last = pool.closed && pool.free == pool.slots;
        drop(pool);
        if is_last {
            // SAFETY: the shared part came from a box; its owner and every object are gone, so no
            // other code can reach it.
            drop(unsafe { Box::from_raw(shared.cast_mut()) });
        }
    }

    /// Drops an object and returns its slot to its chunk, with the effect on the slab that
    /// [`return_slot`](Self::return_slot) documents.
    ///
    /// # Safety
    ///
    /// The links came from a bag, there is no handle to the object, its readers have left, and it
    /// is not used afterwards. No lock of the slab is held.
    pub(super) unsafe fn end(links: NonNull<Hook>) {
        // SAFETY: only a `T`'s links are in bags.
        let object = unsafe { T::from_links(links) };
        // SAFETY: the caller's clause: links from a bag, no handle, no readers, no later use.
        let bytes = unsafe { Self::drop_object(links) };
        // SAFETY: the object's slot is not free.
        let shared = unsafe { Self::owner(object) }.slab.cast::<Self>();
        // SAFETY: a slab's shared part exists while one of its slots is not free.
        unsafe { &*shared }.add_retired(bytes.wrapping_neg());
        // SAFETY: the object was dropped just now, and no other code has the slot.
        unsafe { Self::return_slot(object) };
    }

    /// Drops an object. Returns the bytes to subtract for it: 0 for a type without a destructor,
    /// whose bytes are subtracted when the bag's readers have left. The object's slot is not free
    /// yet and keeps the shared part alive, whatever the object's `Drop` does.
    ///
    /// # Safety
    ///
    /// The links came from a bag, there is no handle to the object, its readers have left, and it
    /// is not used afterwards.
    pub(super) unsafe fn drop_object(links: NonNull<Hook>) -> i64 {
        if !core::mem::needs_drop::<T>() {
            return 0;
        }
        // SAFETY: the caller's clause: the links came from a bag, and no other code has the object.
        let bytes = unsafe { Bag::weight(T::LAYOUT, links) }.unpack();
        // SAFETY: only a `T`'s links are in bags.
        let object = unsafe { T::from_links(links) };
        // SAFETY: the caller's clause: no handle, no readers, no later use.
        let drop_it = || unsafe { object.drop_in_place() };
        if unwind::caught(drop_it).is_none() {
            // SAFETY: the object's slot is not free.
            let shared = unsafe { Self::owner(object) }.slab.cast::<Self>();
            // SAFETY: a slab's shared part exists while one of its slots is not free.
            unsafe { &*shared }.count_panic();
        }
        bytes as i64
    }

    /// Drops objects and frees their slots, as [`end`](Self::end), or leaves them to an enclosing
    /// call on this thread.
    ///
    /// # Safety
    ///
    /// The objects are of slabs of this type, there is no handle to them, their readers have left,
    /// and no lock of a slab is held.
    pub(super) unsafe fn end_all(mut bag: Bag) {
        #[cfg(all(feature = "std", not(lowwater_loom)))]
        if core::mem::needs_drop::<T>() {
            if nest::leave_to_outer::<T>(T::LAYOUT, |_| core::mem::replace(&mut bag, Bag::new())) {
                return;
            }
            return nest::Frame::with::<T>(|frame| {
                while let Some(links) = bag.pop(T::LAYOUT).or_else(|| frame.pop(T::LAYOUT)) {
                    // SAFETY: the caller's clause, or for objects in the frame the same clause of
                    // the call that left them.
                    unsafe { Self::end(links) };
                }
            });
        }
        while let Some(links) = bag.pop(T::LAYOUT) {
            // SAFETY: the caller's clause: no handle, no readers, no lock held; the links came from
            // a bag.
            unsafe { Self::end(links) };
        }
    }
}
