//! Allocation of slots: from the thread cache, which is refilled by a batch that another thread has
//! freed, or from the chunks.
//!
//! The common case takes the lock of one thread cache, prefetches the next object that is ready to
//! be dropped, and pops a slot. A change must ensure that this case neither locks the central free
//! list nor reads the prefetched object.

use super::super::central_free_list::CentralFreeList;
use super::super::free::Free;
use super::super::slotted::Slotted;
use super::super::thread_cache::ThreadCache;
use super::SharedSlab;
use crate::sync::atomic::Ordering;
use crate::sync::MutexGuard;
use core::ptr::NonNull;
use lowwater_base::poison::unpoison;
use lowwater_base::prefetch::prefetch;
use lowwater_base::NodeId;

/// A thread cache takes 1/16 of the slab's slots from their chunks at once, so that one cache holds
/// back a small part of them; but at most this number, as each slot may be a cache miss under the
/// central free list's lock.
const REFILL_MAX: usize = 32;
/// The number of slots from which a slab has several thread caches.
const SPREAD_FROM: usize = if cfg!(lowwater_loom) { 1 } else { 1024 };

impl<T: Slotted> SharedSlab<T> {
    /// Moves an object into a free slot; returns the object if there is no memory. `this` is a raw
    /// pointer, not a reference, because a new chunk's header stores it, and the last handle frees
    /// the shared part by it.
    ///
    /// # Safety
    ///
    /// `this` came from a box, and its owner exists during the call.
    #[inline]
    pub(in crate::slab) unsafe fn alloc(this: NonNull<Self>, node: NodeId, value: T) -> Result<NonNull<T>, T> {
        // SAFETY: the caller's clause: the owner of `this` exists, so it is live.
        let Some(slot) = unsafe { this.as_ref() }.slot(node, this) else { return Err(value) };
        let object = slot.cast::<T>();
        // SAFETY: the slot was just allocated to this call.
        unsafe { unpoison(object.as_ptr().cast(), size_of::<T>()) };
        // SAFETY: the slot was just allocated to this call, is large enough, and aligned.
        unsafe { object.write(value) };
        Ok(object)
    }

    /// Takes a free slot for an object on `node`; `None` without memory.
    #[inline]
    pub(super) fn slot(&self, node: NodeId, this: NonNull<Self>) -> Option<NonNull<Free>> {
        let mut thread_cache = self.thread_caches.local().lock();
        if let Some(links) = thread_cache.ready.prefetch_next(T::LAYOUT) {
            // SAFETY: only a `T`'s links are in bags.
            let object = unsafe { T::from_links(links) };
            // SAFETY: bags own their objects, and the thread cache's lock is held.
            prefetch(unsafe { object.as_ref() });
        }
        if thread_cache.node == node {
            if let Some(slot) = thread_cache.free.pop() {
                return Some(slot);
            }
        }
        self.refill(&mut thread_cache, node, this)
    }

    /// Moves free slots of `node` to the thread cache, whose slots of another node go back first,
    /// and takes one of them: from the spare batch, from the transfer cache, or from the chunks.
    #[cold]
    pub(super) fn refill(
        &self,
        thread_cache: &mut ThreadCache,
        node: NodeId,
        this: NonNull<Self>,
    ) -> Option<NonNull<Free>> {
        if thread_cache.node == node && thread_cache.spare.len() > 0 {
            thread_cache.free = thread_cache.spare.take();
            return thread_cache.free.pop();
        }
        let mut pool = self.pool.lock();
        if thread_cache.node != node {
            // Relaxed: once set, `mixed` stays. A thread that does not see it yet may free one slot
            // into the thread cache of another node.
            self.mixed.store(true, Ordering::Relaxed);
            self.flush(thread_cache, &mut pool);
            thread_cache.node = node;
        }
        if let Some(batch) = pool.transfer.take(node) {
            thread_cache.free = batch;
            return thread_cache.free.pop();
        }
        let nr = (pool.slots / 16).clamp(1, REFILL_MAX) as u32;
        let slab = this.as_ptr().cast_const().cast();
        let before = pool.slots;
        let got = pool.take(nr, node, slab, &mut thread_cache.free);
        if pool.slots != before {
            self.count(&pool);
            if pool.slots >= SPREAD_FROM {
                self.thread_caches.grow();
            }
        }
        got.then(|| thread_cache.free.pop()).flatten()
    }

    /// Stores the number of slots for readers that do not lock the central free list.
    pub(super) fn count(&self, pool: &MutexGuard<'_, CentralFreeList>) {
        // Relaxed: a number that bounds a batch.
        self.slots.store(pool.slots, Ordering::Relaxed);
    }
}
