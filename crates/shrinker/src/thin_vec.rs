//! A vector of one word while it is empty, for fields of structures that exist for each (group,
//! node) and whose vectors are mostly empty.
//!
//! The crate `thin-vec` has the same layout, but cannot report a failed allocation; see
//! `tests/thin_vec.rs`.
//!
//! A change must ensure that it stays one word while it is empty, and that no insertion aborts.

use alloc::{boxed::Box, vec::Vec};
use core::mem::size_of;
use core::ops::{Deref, DerefMut};

use lowwater_base::fallible;

/// A vector behind one pointer, which is null until the vector is first filled.
#[doc(alias = "Thin")]
#[derive(Debug)]
#[expect(clippy::box_collection, reason = "one word instead of three, as the vector is usually empty")]
pub(crate) struct ThinVec<T>(Option<Box<Vec<T>>>);

impl<T> ThinVec<T> {
    /// Inserts a value. Returns false without memory.
    pub(crate) fn try_insert(&mut self, at: usize, value: T) -> bool {
        if self.0.is_none() {
            self.0 = fallible::try_box(Vec::new());
        }
        self.0.as_mut().is_some_and(|all| fallible::try_insert(all, at, value).is_ok())
    }

    /// Removes a value. The memory stays until [`retain`](Self::retain) leaves nothing: it is
    /// likely to be needed again.
    pub(crate) fn remove(&mut self, at: usize) -> Option<T> {
        self.0.as_mut().filter(|all| at < all.len()).map(|all| all.remove(at))
    }

    /// Keeps the values for which `stays` returns true; frees the memory if none is left.
    pub(crate) fn retain(&mut self, stays: impl FnMut(&T) -> bool) {
        if let Some(all) = &mut self.0 {
            all.retain(stays);
            if all.is_empty() {
                self.0 = None;
            }
        }
    }

    /// Returns the heap bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |all| size_of::<Vec<T>>() + all.capacity() * size_of::<T>())
    }
}

impl<T> Default for ThinVec<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Deref for ThinVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_ref().map_or(&[], |all| all)
    }
}

impl<T> DerefMut for ThinVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.0.as_mut().map_or(&mut [], |all| all)
    }
}
