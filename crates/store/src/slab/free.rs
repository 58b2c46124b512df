//! Lists of free slots, linked through the slots themselves.
//!
//! A free slot holds the pointer to the next one, so a free list costs no memory. A change must
//! ensure that a slot is at least as large as [`Free`], which
//! [`ChunkLayout`](lowwater_base::slots::ChunkLayout) ensures.

use core::ptr::NonNull;

/// The contents of a free slot.
pub(super) struct Free {
    next: Option<NonNull<Free>>,
}

/// A list of free slots.
#[derive(Clone, Copy)]
pub(super) struct FreeList {
    first: Option<NonNull<Free>>,
    len: u32,
}

impl FreeList {
    pub(super) const fn new() -> Self {
        Self { first: None, len: 0 }
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

    pub(super) fn pop(&mut self) -> Option<NonNull<Free>> {
        let slot = self.first?;
        // SAFETY: slots on the list were written by `push`.
        self.first = unsafe { slot.as_ref() }.next;
        self.len -= 1;
        Some(slot)
    }
}
