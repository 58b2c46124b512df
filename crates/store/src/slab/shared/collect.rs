//! Collection of all objects that wait.

use super::super::bag::Bag;
use super::super::slotted::Slotted;
use super::super::thread_cache::ThreadCache;
use super::SharedSlab;
use crate::rcu;
use crate::sync::Mutex;

/// Objects that are dropped at once when everything is collected.
const COLLECT: usize = 64;

impl<T: Slotted> SharedSlab<T> {
    /// Seals everything, drops what can be dropped, `most` objects at most, and gives free slots back. What had to stay, in bytes.
    pub(in crate::slab) fn collect(&self, most: usize) -> u64 {
        self.seal_all();
        self.drop_passed(most);
        self.waiting.get().get()
    }

    /// Seals what is open in every thread_cache, without a fence: so that one is enough for all.
    pub(in crate::slab) fn seal_all(&self) {
        for thread_cache in self.thread_caches.all() {
            let mut thread_cache = thread_cache.lock();
            if thread_cache.open.len != 0 || thread_cache.open_bytes != 0 {
                thread_cache.seal(T::LAYOUT, rcu::start_poll());
            }
        }
    }

    /// Drops what is sealed and can be dropped, `most` objects at most; gives free slots back, and
    /// tells exactly what stays. How many it dropped.
    pub(in crate::slab) fn drop_passed(&self, most: usize) -> usize {
        let mut left = most;
        for thread_cache in self.thread_caches.all() {
            self.advance(&mut thread_cache.lock(), true);
            left -= self.empty(thread_cache, left);
        }
        most - left
    }

    /// Gives empty chunks that are kept for the next objects back to the system.
    pub(in crate::slab) fn give_spare_back(&self) {
        self.pool.lock().give_spare_back();
    }

    /// Drops what a thread_cache's readers have left, `most` at most, and gives its free slots back. How many it dropped.
    pub(super) fn empty(&self, thread_cache: &Mutex<ThreadCache>, most: usize) -> usize {
        // Each turn makes the bag smaller; what others add meanwhile is theirs to drop.
        let all = most.min(thread_cache.lock().ready.len() as usize);
        let mut left = all;
        loop {
            let mut locked = thread_cache.lock();
            let batch = locked.ready.pop_some(T::LAYOUT, left.min(COLLECT));
            self.flush(&mut locked, &mut self.pool.lock(), 0);
            self.report(&mut locked);
            #[cfg(any(not(feature = "std"), lowwater_loom))]
            let batch = {
                let mut batch = batch;
                if batch.len != 0 {
                    locked.begin_drops(T::LAYOUT, |_| core::mem::replace(&mut batch, Bag::new()));
                }
                batch
            };
            drop(locked);
            left = left.saturating_sub(COLLECT);
            if batch.len != 0 {
                // SAFETY: they were in the slab's bags, so nobody has them; their readers have left, and the lock was given back.
                unsafe { Self::end_passed(thread_cache, batch) };
            }
            if left == 0 {
                return all;
            }
        }
    }

    /// As [`end_all`](Self::end_all), for what is of this thread_cache of a slab that stays.
    ///
    /// # Safety
    ///
    /// As there. Without `std`, [`ThreadCache::begin_drops`] of that thread_cache said that the caller should.
    pub(super) unsafe fn end_passed(thread_cache: &Mutex<ThreadCache>, batch: Bag) {
        #[cfg(all(feature = "std", not(lowwater_loom)))]
        {
            let _ = thread_cache;
            // SAFETY: the caller's promise is the same.
            unsafe { Self::end_all(batch) };
        }
        #[cfg(any(not(feature = "std"), lowwater_loom))]
        {
            let mut batch = batch;
            while batch.len != 0 {
                let turn = super::super::thread_cache::Turn(thread_cache);
                // SAFETY: the caller's promise is the same, or they were left by somebody who had them from the thread_cache's bags.
                unsafe { Self::end_all(batch) };
                core::mem::forget(turn);
                let mut thread_cache = thread_cache.lock();
                batch = core::mem::replace(&mut thread_cache.pending, Bag::new());
                thread_cache.dropping = batch.len != 0;
            }
        }
    }
}
