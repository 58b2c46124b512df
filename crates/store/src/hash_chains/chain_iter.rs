//! The objects that a reader finds on a chain.

use super::hash_link::{untagged, HashNode};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::Arc;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

/// An object that a reader found. It may have left the table since.
pub struct Found<'g, T> {
    /// As it was inserted: a reference would reach no more than the object, this pointer also the counts before it.
    pub(super) raw: NonNull<T>,
    reader: PhantomData<&'g T>,
}

// SAFETY: it is a reference for as long as the reader is inside, and a way to a handle of one's own.
unsafe impl<T: Send + Sync> Send for Found<'_, T> {}
// SAFETY: as for Send.
unsafe impl<T: Send + Sync> Sync for Found<'_, T> {}

/// The objects of one chain.
pub struct ChainIter<'g, T> {
    pub(super) next: Option<Found<'g, T>>,
}

impl<'g, T: HashNode> Iterator for ChainIter<'g, T> {
    type Item = Found<'g, T>;

    #[inline]
    fn next(&mut self) -> Option<Found<'g, T>> {
        let here = self.next.take()?;
        // SAFETY: the reader arrived at `here` in the read side, so what it names is held (invariant 4).
        self.next = unsafe { follow(&here.get().link().next) };
        Some(here)
    }
}

impl<T> fmt::Debug for ChainIter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChainIter").finish_non_exhaustive()
    }
}

/// The object that a head or a `next` names.
///
/// # Safety
///
/// The thread is in the read side for all of `'g`, and `from` is a head, or the `next` of an object at which the thread arrived
/// in it.
#[inline]
pub(super) unsafe fn follow<'g, T: HashNode>(from: &AtomicPtr<T>) -> Option<Found<'g, T>> {
    // Acquire: meets the Release in `insert` and in `leave`.
    let raw = NonNull::new(untagged(from.load(Ordering::Acquire)))?;
    // By invariant 4 it is held while the reader is inside.
    let found = Found { raw, reader: PhantomData };
    #[cfg(lowwater_loom)]
    found.get().link().seen.with(|_| ());
    Some(found)
}

impl<'g, T> Found<'g, T> {
    #[inline]
    pub(super) fn object(&self) -> &'g T {
        // SAFETY: the table held it when the reader came by, so it stays while the reader is inside (invariant 4).
        unsafe { self.raw.as_ref() }
    }
}

impl<'g, T: HashNode> Found<'g, T> {
    /// The object, for as long as the reader is inside.
    #[inline]
    pub fn get(&self) -> &'g T {
        self.object()
    }

    /// A handle of one's own.
    #[inline]
    pub fn to_arc(&self) -> Arc<T> {
        let raw = self.raw.as_ptr().cast_const();
        // SAFETY: it came from `Arc::into_raw`, and by invariants 3 and 4 the table's count on it is not given up while the reader is
        // inside.
        unsafe { Arc::increment_strong_count(raw) };
        // SAFETY: this is the count that was just added.
        unsafe { Arc::from_raw(raw) }
    }
}

impl<T> Deref for Found<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.object()
    }
}

impl<T> fmt::Debug for Found<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Found").finish_non_exhaustive()
    }
}
