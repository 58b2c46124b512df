//! Dropping of objects whose readers have left, and freeing of their slots.

use super::super::bag::Bag;
use super::super::central_free_list::CentralFreeList;
use super::super::free::Free;
#[cfg(all(feature = "std", not(lowwater_loom)))]
use super::super::nest;
use super::super::slotted::Slotted;
use super::super::thread_cache::ThreadCache;
use super::SharedSlab;
use crate::sync::atomic::Ordering;
use crate::sync::{Mutex, MutexGuard};
use crate::unwind;
use alloc::boxed::Box;
use core::ptr::NonNull;
use lowwater_base::poison::poison;
use lowwater_lru_core::list::Hook;

/// Objects that are dropped for each one that is retired, at most.
pub(super) const DROPS_MAX: usize = 2;
/// Free slots that a thread cache keeps at hand.
const FREE_MAX: u32 = 512;

/// Objects that one call drops.
pub(super) type Batch = [Option<NonNull<Hook>>; DROPS_MAX];

impl<T: Slotted> SharedSlab<T> {
    /// Drops objects without a lock, and then takes their slots back, under one; and so what calls of this inside of this one leave to it.
    /// The slab may be dropped meanwhile: then it goes with the last slot, and is not used after that.
    ///
    /// # Safety
    ///
    /// They are this slab's, at least one, of the thread_cache `here`; nobody has them, and their readers have left.
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    #[inline]
    pub(super) unsafe fn drop_some(this: *const Self, _here: *const Mutex<ThreadCache>, batch: Batch) {
        nest::Frame::with::<T>(|frame| {
            // SAFETY: the caller's promise on the objects is the same.
            let bytes = unsafe { Self::drop_batch(&batch) };
            // SAFETY: a slab's shared part is there while one of its slots is not free.
            let thread_cache = unsafe { &*this }.thread_caches.local().lock();
            // SAFETY: the batch is this slab's, and was dropped above.
            unsafe { Self::slots_back(this, thread_cache, batch, bytes) };
            while let Some(links) = frame.pop(T::LAYOUT) {
                // SAFETY: whoever left it there had it from a bag whose readers have left, of a slab of this type. No lock is held.
                unsafe { Self::end(links) };
            }
        });
    }

    /// The same where no thread has memory of its own: what other calls leave to this one is in the thread_cache.
    ///
    /// # Safety
    ///
    /// The objects are this slab's, at least one, of the thread_cache `here`; nobody has them, and their readers have left.
    /// [`ThreadCache::begin_drops`] of that thread_cache said that the caller should drop them.
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    pub(super) unsafe fn drop_some(this: *const Self, here: *const Mutex<ThreadCache>, mut batch: Batch) {
        loop {
            // SAFETY: the slab, and its thread_cache, is there while a slot of the batch is not free.
            let turn = super::super::thread_cache::Turn(unsafe { &*here });
            // SAFETY: the caller's promise on the objects is the same, or they are of the thread_cache's, which has the same from who left them.
            let bytes = unsafe { Self::drop_batch(&batch) };
            core::mem::forget(turn);
            // SAFETY: the slots of the batch are not free yet.
            let mut thread_cache = unsafe { &*here }.lock();
            let next: Batch = core::array::from_fn(|_| thread_cache.pending.pop(T::LAYOUT));
            thread_cache.dropping = next[0].is_some();
            if next[0].is_none() {
                // SAFETY: the batch is this slab's, and was dropped above.
                return unsafe { Self::slots_back(this, thread_cache, batch, bytes) };
            }
            // SAFETY: the batch is this slab's, and was dropped above; `next` keeps the slab there.
            unsafe { Self::slots_back(this, thread_cache, batch, bytes) };
            batch = next;
        }
    }

    /// Drops objects. What was counted for them, in bytes.
    ///
    /// # Safety
    ///
    /// Nobody has the objects, their readers have left, and they are not used afterwards.
    #[inline]
    pub(super) unsafe fn drop_batch(batch: &Batch) -> i64 {
        let mut bytes = 0;
        for &links in batch.iter().flatten() {
            // SAFETY: batches come from bags; the rest is the caller's promise.
            bytes += unsafe { Self::drop_object(links) };
        }
        bytes
    }

    /// Takes the slots of a batch back into a thread_cache, and counts its bytes down.
    ///
    /// # Safety
    ///
    /// The objects are this slab's, and the thread_cache is; they were dropped, and nobody else knows their slots. The slab is not used
    /// afterwards, unless the caller knows of another slot that is not free.
    #[inline]
    pub(super) unsafe fn slots_back(
        this: *const Self,
        mut thread_cache: MutexGuard<'_, ThreadCache>,
        batch: Batch,
        bytes: i64,
    ) {
        // SAFETY: the slab is there while a slot of the batch is not free; where the thread_cache is not closed, as long as its lock is
        // held, as the pool is closed after all thread_caches.
        let shared = unsafe { &*this };
        if !thread_cache.closed {
            shared.count_retired(&mut thread_cache, bytes.wrapping_neg());
            batch.into_iter().flatten().for_each(|links| shared.take_back(&mut thread_cache, links));
            return;
        }
        shared.add_retired(bytes.wrapping_neg());
        // Given back, not kept: the thread_cache may go with the last slot.
        let _held = crate::mutated!("slots_back_under_lock").then_some(thread_cache);
        for links in batch.into_iter().flatten() {
            // SAFETY: only a `T`'s links are in bags.
            let object = unsafe { T::from_links(links) };
            // SAFETY: it was dropped, and nobody else knows the slot, by the caller's promise.
            unsafe { Self::give_back(object) };
        }
    }

    /// Takes the slot of a dropped object back, into a thread_cache that is not closed.
    pub(super) fn take_back(&self, thread_cache: &mut ThreadCache, links: NonNull<Hook>) {
        // SAFETY: only a `T`'s links are in bags.
        let object = unsafe { T::from_links(links) };
        // Relaxed: as in `refill`, and of `compacting` and `evacuating`: hints, as in `CentralFreeList::begin_compaction`.
        let is_ours = !self.mixed.load(Ordering::Relaxed) && !self.compacting.load(Ordering::Relaxed) || {
            // SAFETY: its slot is not free yet.
            let header = unsafe { Self::header(object) };
            header.node == thread_cache.node && !header.evacuating.load(Ordering::Relaxed)
        };
        if !is_ours {
            // SAFETY: it was dropped, and nobody else knows the slot.
            return unsafe { Self::give_back(object) };
        }
        // SAFETY: the object was dropped by the caller, and nobody else knows the slot.
        unsafe { poison(object.as_ptr().cast(), size_of::<T>(), size_of::<Free>()) };
        // SAFETY: it was dropped, and nobody else knows the slot.
        unsafe { thread_cache.free.push(object.cast()) };
        if thread_cache.free.len() > FREE_MAX {
            self.flush(thread_cache, &mut self.pool.lock(), FREE_MAX / 2);
        }
    }

    /// Gives a thread_cache's free slots back but for so many.
    pub(super) fn flush(&self, thread_cache: &mut ThreadCache, pool: &mut MutexGuard<'_, CentralFreeList>, keep: u32) {
        let before = pool.slots;
        while thread_cache.free.len() > keep {
            let Some(slot) = thread_cache.free.pop() else { break };
            // SAFETY: its slot is not free for the pool.
            let number = unsafe { Self::header(slot.cast()) }.number;
            // SAFETY: it came from the pool, and nobody uses it.
            unsafe { pool.put(slot, number) };
        }
        if pool.slots != before {
            self.count(pool);
        }
    }

    /// Gives one slot back to the pool, and with the last one of a slab that is closed, the slab: unless the caller knows that there are
    /// other slots which are not free, or that the pool is not closed, it does not use the slab afterwards, nor hold one of its locks.
    ///
    /// # Safety
    ///
    /// The slot is one of a slab's, not free, what was in it is gone, and nobody else knows it.
    pub(in crate::slab) unsafe fn give_back(object: NonNull<T>) {
        // SAFETY: its slot is not free.
        let header = unsafe { Self::header(object) };
        let shared = header.slab.cast::<Self>();
        // SAFETY: a slab's shared part is there while one of its slots is not free.
        let this = unsafe { &*shared };
        let mut pool = this.pool.lock();
        // SAFETY: the caller's clause: what was in the slot is gone, and nobody else knows it.
        unsafe { poison(object.as_ptr().cast(), size_of::<T>(), size_of::<Free>()) };
        // SAFETY: it came from the pool, and nobody uses it.
        unsafe { pool.put(object.cast(), header.number) };
        let is_last = pool.closed && pool.free == pool.slots;
        drop(pool);
        if is_last {
            // SAFETY: it came from a box; its owner is gone, and so is every object: nobody is left who could reach it.
            drop(unsafe { Box::from_raw(shared.cast_mut()) });
        }
    }

    /// Drops an object, and gives its slot back, with what [`give_back`](Self::give_back) says of the slab.
    ///
    /// # Safety
    ///
    /// The links came from a bag, nobody has the object, its readers have left, and it is not used afterwards. No lock of the slab is held.
    pub(super) unsafe fn end(links: NonNull<Hook>) {
        // SAFETY: only a `T`'s links are in bags.
        let object = unsafe { T::from_links(links) };
        // SAFETY: the caller's promise is the same.
        let bytes = unsafe { Self::drop_object(links) };
        // SAFETY: its slot is not free.
        let shared = unsafe { Self::header(object) }.slab.cast::<Self>();
        // SAFETY: a slab's shared part is there while one of its slots is not free.
        unsafe { &*shared }.add_retired(bytes.wrapping_neg());
        // SAFETY: it was dropped just now, and nobody else knows the slot.
        unsafe { Self::give_back(object) };
    }

    /// Drops an object. What was counted for it, in bytes. Its slot, which is not free yet, keeps the slab there, whatever the object's
    /// `Drop` does.
    ///
    /// # Safety
    ///
    /// The links came from a bag, nobody has the object, its readers have left, and it is not used afterwards.
    pub(super) unsafe fn drop_object(links: NonNull<Hook>) -> i64 {
        if !core::mem::needs_drop::<T>() {
            return 0;
        }
        // SAFETY: the links came from a bag, and nobody else has the object (clause of the caller).
        let bytes = unsafe { Bag::weight(T::LAYOUT, links) };
        // SAFETY: only a `T`'s links are in bags.
        let object = unsafe { T::from_links(links) };
        // SAFETY: nobody has it, by the caller's promise.
        let drop_it = || unsafe { object.drop_in_place() };
        if unwind::caught(drop_it).is_none() {
            // SAFETY: its slot is not free.
            let shared = unsafe { Self::header(object) }.slab.cast::<Self>();
            // SAFETY: a slab's shared part is there while one of its slots is not free.
            unsafe { &*shared }.count_panic();
        }
        i64::from(bytes)
    }

    /// Drops objects and gives their slots back, as [`end`](Self::end), or leaves them to a call on this thread that does so already.
    ///
    /// # Safety
    ///
    /// They are of slabs of this type, nobody has them, their readers have left, and no lock of a slab is held.
    pub(super) unsafe fn end_all(mut bag: Bag) {
        #[cfg(all(feature = "std", not(lowwater_loom)))]
        if core::mem::needs_drop::<T>() {
            if nest::leave_to_outer::<T>(T::LAYOUT, || core::mem::replace(&mut bag, Bag::new())) {
                return;
            }
            return nest::Frame::with::<T>(|frame| {
                while let Some(links) = bag.pop(T::LAYOUT).or_else(|| frame.pop(T::LAYOUT)) {
                    // SAFETY: the caller's promise is the same, and that of whoever left it in the frame.
                    unsafe { Self::end(links) };
                }
            });
        }
        while let Some(links) = bag.pop(T::LAYOUT) {
            // SAFETY: the caller's promise is the same.
            unsafe { Self::end(links) };
        }
    }
}
