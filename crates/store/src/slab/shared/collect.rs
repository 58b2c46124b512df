//! Collection: drops the retired objects whose readers have left, of all thread caches.
//!
//! Retired objects are otherwise dropped only when more objects are retired; a shrinker calls
//! `collect` to free memory now. A change must ensure that all bags are sealed before the one
//! fence, that no lock is held while an object is dropped, and that objects which other threads add
//! do not prolong a collection.

use super::super::bag::Bag;
#[cfg(all(feature = "std", not(lowwater_loom)))]
use super::super::nest;
use super::super::slotted::Slotted;
use super::super::thread_cache::ThreadCache;
use super::SharedSlab;
use crate::rcu;
use crate::sync::Mutex;

/// Objects that a collection drops between two acquisitions of the lock.
const COLLECT: usize = 64;

impl<T: Slotted> SharedSlab<T> {
    /// Seals all open bags, drops at most `most` objects without readers, and returns free slots to
    /// their chunks, of those in the transfer cache at most `most`. Returns the retired bytes that
    /// remain.
    pub(in crate::slab) fn collect(&self, most: usize) -> u64 {
        self.seal_all();
        self.drop_ready(most);
        self.flush_transfer(most);
        self.waiting.get().get()
    }

    /// Seals the open bag of every thread cache, without a fence, so that a single fence serves
    /// all.
    pub(in crate::slab) fn seal_all(&self) {
        for thread_cache in self.thread_caches.all() {
            let mut thread_cache = thread_cache.lock();
            if thread_cache.open.len != 0 || thread_cache.open_bytes != 0 {
                thread_cache.seal(T::LAYOUT, rcu::start_poll());
            }
        }
    }

    /// Drops at most `most` sealed objects without readers, returns free slots to their chunks, and
    /// adds all unreported bytes to the counter. Returns the upper bound of the number of dropped
    /// objects, as [`empty`](Self::empty).
    pub(in crate::slab) fn drop_ready(&self, most: usize) -> usize {
        let mut left = most;
        for thread_cache in self.thread_caches.all() {
            self.advance(&mut thread_cache.lock(), true);
            left -= self.empty(thread_cache, left);
        }
        most - left
    }

    /// Returns spare chunks to the system.
    pub(in crate::slab) fn give_spare_back(&self) {
        self.pool.lock().give_spare_back();
    }

    /// Drops at most `most` ready objects of a thread cache, and returns its free slots to their
    /// chunks. Returns the number of ready objects that it found, at most `most`: other threads may
    /// drop some of them. A nested call takes only few (`nest`).
    pub(super) fn empty(&self, thread_cache: &Mutex<ThreadCache>, most: usize) -> usize {
        // The bound of the loop: objects that other threads add from now on are left to them.
        let all = {
            let locked = thread_cache.lock();
            #[cfg(all(feature = "std", not(lowwater_loom)))]
            let ready_max = nest::ready_max::<T>();
            #[cfg(any(not(feature = "std"), lowwater_loom))]
            let ready_max = locked.ready_max();
            most.min(ready_max.min(locked.ready.len()) as usize)
        };
        let mut left = all;
        loop {
            let mut locked = thread_cache.lock();
            let batch = locked.ready.pop_some(T::LAYOUT, left.min(COLLECT));
            self.flush(&mut locked, &mut self.pool.lock());
            self.report(&mut locked);
            #[cfg(any(not(feature = "std"), lowwater_loom))]
            let batch = {
                let mut batch = batch;
                if batch.len != 0 {
                    locked.begin_drops(T::LAYOUT, |_, _| core::mem::replace(&mut batch, Bag::new()));
                }
                batch
            };
            drop(locked);
            left = left.saturating_sub(COLLECT);
            if batch.len != 0 {
                // SAFETY: the objects were in this slab's bags, so there is no handle to them;
                // their readers have left, and the lock was released.
                unsafe { Self::end_ready(thread_cache, batch) };
            }
            if left == 0 {
                return all;
            }
        }
    }

    /// As [`end_all`](Self::end_all), for objects of this thread cache, while the slab exists.
    ///
    /// # Safety
    ///
    /// The clauses of [`end_all`](Self::end_all). Without `std`, also: [`ThreadCache::begin_drops`]
    /// of that thread cache returned true to the caller.
    pub(super) unsafe fn end_ready(thread_cache: &Mutex<ThreadCache>, batch: Bag) {
        #[cfg(all(feature = "std", not(lowwater_loom)))]
        {
            let _ = thread_cache;
            // SAFETY: the caller's clauses are those of `end_all`.
            unsafe { Self::end_all(batch) };
        }
        #[cfg(any(not(feature = "std"), lowwater_loom))]
        {
            let mut batch = batch;
            while batch.len != 0 {
                let turn = super::super::thread_cache::Turn(thread_cache);
                // SAFETY: the caller's clauses are those of `end_all`; objects left by other calls
                // came from the thread cache's bags, under the same clauses.
                unsafe { Self::end_all(batch) };
                core::mem::forget(turn);
                let mut thread_cache = thread_cache.lock();
                batch = core::mem::replace(&mut thread_cache.pending, Bag::new());
                thread_cache.dropping = batch.len != 0;
            }
        }
    }
}
