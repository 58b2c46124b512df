//! The thread_caches of a slab: one at first, one for each few threads when it is worth it.

use super::thread_cache::ThreadCache;
use crate::fallible::{try_box, try_slice};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::Mutex;
use alloc::boxed::Box;
use core::ptr;
use crossbeam_utils::CachePadded;
use lowwater_base::{cpu, thread_slot};

/// At most so many.
const MAX: usize = 64;

struct More {
    thread_caches: Box<[CachePadded<Mutex<ThreadCache>>]>,
    /// Never changes: so that a model check sees who comes before they are published.
    #[cfg(lowwater_loom)]
    made: crate::sync::UnsafeCell<()>,
}

pub(super) struct ThreadCaches {
    first: Mutex<ThreadCache>,
    /// The others; null until there are some.
    more: AtomicPtr<More>,
}

impl ThreadCaches {
    pub(super) fn new() -> Self {
        Self { first: Mutex::new(ThreadCache::new()), more: AtomicPtr::new(ptr::null_mut()) }
    }

    /// That of this thread.
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
        // Acquire: meets the Release in `grow`, so that the thread_caches are seen as they were made.
        let more = self.more.load(Ordering::Acquire);
        // SAFETY: once set, it stays until this is dropped.
        let more = (!more.is_null()).then(|| unsafe { &*more })?;
        #[cfg(lowwater_loom)]
        more.made.with(|_| ());
        Some(&more.thread_caches)
    }

    /// Makes the others, if they are not there and there is memory. What is in the first stays there until somebody collects.
    ///
    /// For who has the slab and holds the pool's lock: beside the slab's end somebody could find thread_caches that nobody closes.
    pub(super) fn grow(&self) {
        if self.more().is_some() {
            return;
        }
        let nr = (2 * cpu::allowed()).next_power_of_two().min(MAX);
        // Without memory threads meet in the first; the next chunk asks again.
        let Some(thread_caches) = try_slice(nr, |_| CachePadded::new(Mutex::new(ThreadCache::new()))) else { return };
        let more = More {
            thread_caches,
            #[cfg(lowwater_loom)]
            made: crate::sync::UnsafeCell::new(()),
        };
        let Some(more) = try_box(more) else { return };
        // Release: meets the Acquire in `more`. Nobody else stores: the pool's lock is held.
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
                "nobody holds a thread_cache that goes"
            );
        }
        // Relaxed: we have the only access.
        let more = self.more.load(Ordering::Relaxed);
        if !more.is_null() {
            // SAFETY: it came from a box, and nobody else has access.
            drop(unsafe { Box::from_raw(more) });
        }
    }
}
