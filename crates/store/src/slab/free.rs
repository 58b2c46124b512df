//! Free slots, joined through themselves.

use core::ptr::NonNull;

/// What a free slot holds.
pub(super) struct Free {
    next: Option<NonNull<Free>>,
}

/// See the module.
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
    /// The slot is one that nobody uses, at least as large as [`Free`].
    pub(super) unsafe fn push(&mut self, slot: NonNull<Free>) {
        // SAFETY: nobody uses it, says the caller.
        unsafe { slot.write(Free { next: self.first }) };
        self.first = Some(slot);
        self.len += 1;
    }

    pub(super) fn pop(&mut self) -> Option<NonNull<Free>> {
        let slot = self.first?;
        // SAFETY: what is on the list was written by `push`.
        self.first = unsafe { slot.as_ref() }.next;
        self.len -= 1;
        Some(slot)
    }
}
