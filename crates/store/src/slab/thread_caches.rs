//! The thread caches of a slab: one at first; from 1,024 slots on more, each for a few threads.
//!
//! A small slab has a single cache, since each costs memory and holds back some slots. The others
//! are allocated once, about twice as many as processors, and never removed. A change must ensure
//! that they are published by a Release after they are initialized.

use super::thread_cache::ThreadCache;
use crate::fallible::{try_box, try_slice};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::Mutex;
use alloc::boxed::Box;
use core::ptr;
use crossbeam_utils::CachePadded;
use lowwater_base::{cpu, thread_slot};

/// The maximum number of thread caches besides the first; a power of two, because
/// [`local`](ThreadCaches::local) masks a thread's number with their number less 1.
const MAX: usize = 64;

struct More {
    thread_caches: Box<[CachePadded<Mutex<ThreadCache>>]>,
    /// Never changes: a model check uses it to detect a read before the caches are published.
    #[cfg(lowwater_loom)]
    made: crate::sync::UnsafeCell<()>,
}

pub(super) struct ThreadCaches {
    first: Mutex<ThreadCache>,
    /// The other thread caches; null until they are allocated.
    more: AtomicPtr<More>,
}

impl ThreadCaches {
    pub(super) fn new() -> Self {
        Self { first: Mutex::new(ThreadCache::new()), more: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns the thread cache of the calling thread.
    #[inline]
    pub(super) fn local(&self) -> &Mutex<ThreadCache> {
        match self.more() {
            None => &self.first,
            Some(thread_caches) => &thread_caches[thread_slot::spread() & (thread_caches.len() - 1)],
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Mutex<ThreadCache>> {
        core::iter::once(&self.first).chain(self.more().into_iter().flatten().map(|thread_cache| &**thread_cache))
    }

    #[inline]
    fn more(&self) -> Option<&[CachePadded<Mutex<ThreadCache>>]> {
        // Acquire: pairs with the Release in `grow`, so that the thread caches are seen
        // initialized.
        let more = self.more.load(Ordering::Acquire);
        // SAFETY: once set, the pointer stays valid until this is dropped.
        let more = (!more.is_null()).then(|| unsafe { &*more })?;
        #[cfg(lowwater_loom)]
        more.made.with(|_| ());
        Some(&more.thread_caches)
    }

    /// Allocates the other thread caches, if they do not exist and there is memory. The contents of
    /// the first cache stay there until a collection.
    ///
    /// The caller borrows the slab and holds the lock of its central free list. If the slab could
    /// be dropped meanwhile, its `close` would miss the new caches, and a thread could use them.
    pub(super) fn grow(&self) {
        if self.more().is_some() {
            return;
        }
        let nr = (2 * cpu::allowed().min(MAX / 2)).next_power_of_two();
        // Without memory all threads share the first cache; the next chunk tries again.
        let Some(thread_caches) = try_slice(nr, |_| CachePadded::new(Mutex::new(ThreadCache::new()))) else { return };
        let more = More {
            thread_caches,
            #[cfg(lowwater_loom)]
            made: crate::sync::UnsafeCell::new(()),
        };
        let Some(more) = try_box(more) else { return };
        // Release: pairs with the Acquire in `more`. No other thread stores: the lock of the
        // central free list is held.
        let ordering = if crate::mutated!("stripes_relaxed") { Ordering::Relaxed } else { Ordering::Release };
        self.more.store(Box::into_raw(more), ordering);
    }

    pub(super) fn footprint(&self) -> usize {
        self.more().map_or(0, |more| size_of::<More>() + size_of_val(more))
    }
}

impl Drop for ThreadCaches {
    fn drop(&mut self) {
        if cfg!(any(debug_assertions, lowwater_loom)) {
            assert!(
                self.all().all(|thread_cache| thread_cache.try_lock().is_some()),
                "a thread cache is unlocked when it is dropped"
            );
        }
        // Relaxed: `&mut self`, no other thread has access.
        let more = self.more.load(Ordering::Relaxed);
        if !more.is_null() {
            // SAFETY: the pointer came from a box, and `&mut self` is the only access.
            drop(unsafe { Box::from_raw(more) });
        }
    }
}
