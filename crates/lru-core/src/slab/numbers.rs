//! From a chunk's number to the chunk, without a lock.

use crate::fallible::{try_box, try_slice};
use crate::rcu::{Queue, Queues, Retired};
use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::UnsafeCell;
use alloc::boxed::Box;
use core::ptr;

/// An array of chunks, replaced by a larger one when it is full.
pub(crate) struct Numbers {
    chunks: Box<[AtomicPtr<u8>]>,
    /// For who frees it.
    retired: UnsafeCell<*mut Numbers>,
}

// SAFETY: what the array holds is used as the slab says, from any thread; `retired` is used only by who frees it.
unsafe impl Send for Numbers {}
// SAFETY: as for Send.
unsafe impl Sync for Numbers {}

impl Retired for Numbers {
    fn link(&self) -> &UnsafeCell<*mut Self> {
        &self.retired
    }

    fn queue(queues: &mut Queues) -> &mut Queue<Self> {
        &mut queues.numbers
    }

    #[cfg(lowwater_loom)]
    unsafe fn assert_unread(this: *mut Self) {
        // SAFETY: it is live, says the caller, who alone has it.
        let this = unsafe { &mut *this };
        for chunk in &mut this.chunks {
            chunk.with_mut(|_| ());
        }
    }
}

impl Numbers {
    /// An array of so many, with those of `old`; none without memory.
    pub(super) fn try_new(len: usize, old: Option<&Self>) -> Option<Box<Self>> {
        let chunk = |at: usize| {
            let chunk = old.and_then(|old| old.chunks.get(at));
            // Relaxed: they change under the pool's lock.
            AtomicPtr::new(chunk.map_or(ptr::null_mut(), |chunk| chunk.load(Ordering::Relaxed)))
        };
        try_box(Self { chunks: try_slice(len, chunk)?, retired: UnsafeCell::new(ptr::null_mut()) })
    }

    pub(super) fn len(&self) -> usize {
        self.chunks.len()
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.chunks)
    }

    #[inline]
    pub(super) fn get(&self, number: usize) -> *mut u8 {
        // Relaxed: whoever has the number of an object got it after the object was made, in a chunk that was here before, and stays.
        self.chunks[number].load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, number: usize, chunk: *mut u8) {
        // Relaxed: as in `get`. It is taken away when none of its slots was in use, and so none of its numbers.
        self.chunks[number].store(chunk, Ordering::Relaxed);
    }
}
