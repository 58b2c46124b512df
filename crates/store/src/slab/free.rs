//! Lists of free slots, linked through the slots themselves.
//!
//! A free slot holds the pointer to the next one, so a free list costs no memory. A change must
//! ensure that a slot is at least as large as [`Free`], which
//! [`ChunkLayout`](lowwater_base::slots::ChunkLayout) ensures.

use core::ptr::NonNull;
use lowwater_base::prefetch::prefetch_at;

/// The contents of a free slot.
pub(super) struct Free {
    next: Option<NonNull<Free>>,
}

/// A list of free slots.
pub(super) struct FreeList {
    first: Option<NonNull<Free>>,
    len: u32,
}

impl FreeList {
    pub(super) const fn new() -> Self {
        Self { first: None, len: 0 }
    }

    /// Takes all slots.
    pub(super) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// # Safety
    ///
    /// No other code uses the slot, and it is at least as large as [`Free`].
    pub(super) unsafe fn push(&mut self, slot: NonNull<Free>) {
        // SAFETY: the caller's clause: no other code uses the slot, and it is large enough.
        unsafe { slot.write(Free { next: self.first }) };
        self.first = Some(slot);
        self.len += 1;
    }

    /// Takes the slot that was pushed last. Prefetches the next one: after the slots were freed by
    /// another thread, each would be a cache miss.
    pub(super) fn pop(&mut self) -> Option<NonNull<Free>> {
        let slot = self.first?;
        // SAFETY: slots on the list were written by `push`.
        self.first = unsafe { slot.as_ref() }.next;
        self.len -= 1;
        if let Some(next) = self.first {
            prefetch_at(next.as_ptr().cast());
        }
        Some(slot)
    }
}
