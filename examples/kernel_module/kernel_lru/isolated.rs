// SPDX-License-Identifier: GPL-2.0

//! Isolated objects: taken off their list by a walk, to be freed when no lock is held.
//!
//! Destructors may sleep or take locks, so a walk collects objects here instead of dropping them
//! under the list's lock. A change must ensure that only the owner reaches an isolated object.

use super::lru_arc::{LruArc, LruItem};
use core::ptr::NonNull;

/// A private list of isolated objects, which it owns: dropping it drops the objects still on it.
///
/// An object on it counts as linked: no other thread can add it to a list or remove it from this
/// one.
///
/// # Invariants
///
/// It owns one reference of each object from `first` to `last`, chained by their `next`.
pub(crate) struct Isolated<T> {
    first: Option<NonNull<LruItem<T>>>,
    last: Option<NonNull<LruItem<T>>>,
    len: usize,
}

// SAFETY: It is a queue of `LruArc<T>`.
unsafe impl<T: Send + Sync> Send for Isolated<T> {}

impl<T> Isolated<T> {
    /// Creates an empty list, without an allocation.
    pub(crate) const fn new() -> Self {
        // INVARIANT: There is no object.
        Self {
            first: None,
            last: None,
            len: 0,
        }
    }

    /// Returns the number of objects.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no objects.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends an object.
    ///
    /// # Safety
    ///
    /// The object is claimed and on no list; this list takes over the reference.
    pub(super) unsafe fn push(&mut self, item: NonNull<LruItem<T>>) {
        // SAFETY: The object is alive, and by its invariant 3 `next` is ours from now on.
        unsafe { *item.as_ref().next.get() = None };
        match self.last {
            None => self.first = Some(item),
            // SAFETY: By the type invariant, the object is alive and its `next` is ours.
            Some(last) => unsafe { *last.as_ref().next.get() = Some(item) },
        }
        // INVARIANT: The object was chained behind the last one.
        self.last = Some(item);
        self.len += 1;
    }

    /// Removes and returns the object that was isolated first.
    pub(crate) fn pop(&mut self) -> Option<LruArc<T>> {
        let item = self.first?;
        // INVARIANT: The list begins with the object after it, whose reference it keeps.
        // SAFETY: By the type invariant, the object is alive and its `next` is ours.
        self.first = unsafe { *item.as_ref().next.get() };
        if self.first.is_none() {
            self.last = None;
        }
        self.len -= 1;
        // SAFETY: By the type invariant, the object is alive.
        unsafe { item.as_ref() }.unclaim();
        // SAFETY: The reference was this list's until now.
        Some(unsafe { LruArc::from_item(item) })
    }
}

impl<T> Default for Isolated<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> ExactSizeIterator for Isolated<T> {}

impl<T> Iterator for Isolated<T> {
    type Item = LruArc<T>;

    fn next(&mut self) -> Option<LruArc<T>> {
        self.pop()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len, Some(self.len))
    }
}

impl<T> Drop for Isolated<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
