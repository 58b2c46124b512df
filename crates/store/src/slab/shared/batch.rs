//! The objects that one call drops.
//!
//! A [`Batch`] is an array on the stack, so that dropping needs no memory. A change must ensure
//! that a batch is filled under the lock of a thread cache and its objects are dropped after the
//! lock is released.

use super::super::thread_cache::ThreadCache;
use core::ptr::NonNull;
use lowwater_lru_core::list::{Hook, LinkLayout};

/// The maximum number of objects that one call retires.
pub(in crate::slab) const RETIRE_MAX: usize = 8;
/// The maximum number of objects that are dropped for each retired one.
pub(super) const DROPS_MAX: usize = 2;
/// The maximum number of objects that one call drops.
const MAX: usize = RETIRE_MAX * DROPS_MAX;

/// Objects without readers, by their links, that are dropped without a lock. Their slots are freed
/// together, under one lock.
pub(super) struct Batch {
    links: [Option<NonNull<Hook>>; MAX],
    len: usize,
}

impl Batch {
    /// Takes up to `most` objects from `next`.
    #[inline]
    fn fill(most: usize, mut next: impl FnMut() -> Option<NonNull<Hook>>) -> Self {
        let mut batch = Self { links: [None; MAX], len: 0 };
        while batch.len < most.min(MAX) {
            let Some(links) = next() else { break };
            batch.links[batch.len] = Some(links);
            batch.len += 1;
        }
        batch
    }

    /// Takes up to `most` objects that are ready in a thread cache.
    #[inline]
    pub(super) fn ready(layout: &LinkLayout, thread_cache: &mut ThreadCache, most: usize) -> Self {
        Self::fill(most, || thread_cache.ready.pop(layout))
    }

    /// Takes some of the objects that other calls have left to the calling one.
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    pub(super) fn pending(layout: &LinkLayout, thread_cache: &mut ThreadCache) -> Self {
        Self::fill(DROPS_MAX, || thread_cache.pending.pop(layout))
    }

    /// Creates a batch of one object.
    #[cfg(any(not(feature = "std"), lowwater_loom))]
    pub(super) fn one(links: NonNull<Hook>) -> Self {
        let mut first = Some(links);
        Self::fill(1, || first.take())
    }

    #[cfg(any(not(feature = "std"), lowwater_loom))]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = NonNull<Hook>> + '_ {
        self.links[..self.len].iter().copied().flatten()
    }
}
