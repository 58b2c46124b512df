//! A list that costs one word as long as there is nothing on it, which is nearly always: ten thousand groups have one each.

use alloc::{boxed::Box, vec::Vec};
use core::mem::size_of;
use core::ops::{Deref, DerefMut};

/// See the module.
#[derive(Debug)]
#[expect(clippy::box_collection, reason = "one word instead of three, for what hardly ever holds anything")]
pub(crate) struct Thin<T>(Option<Box<Vec<T>>>);

impl<T> Thin<T> {
    pub(crate) fn insert(&mut self, at: usize, value: T) {
        self.0.get_or_insert_default().insert(at, value);
    }

    /// Takes one out. The memory stays until [`retain`](Self::retain) finds nothing: it is likely needed again.
    pub(crate) fn remove(&mut self, at: usize) -> T {
        self.0.as_mut().expect("what is removed is there").remove(at)
    }

    /// Keeps those that `stays` names; gives the memory back when that is none.
    pub(crate) fn retain(&mut self, stays: impl FnMut(&T) -> bool) {
        if let Some(all) = &mut self.0 {
            all.retain(stays);
            if all.is_empty() {
                self.0 = None;
            }
        }
    }

    /// Heap bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |all| size_of::<Vec<T>>() + all.capacity() * size_of::<T>())
    }
}

impl<T> Default for Thin<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Deref for Thin<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_ref().map_or(&[], |all| all)
    }
}

impl<T> DerefMut for Thin<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.0.as_mut().map_or(&mut [], |all| all)
    }
}
