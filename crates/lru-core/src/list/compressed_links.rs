//! What an object carries to be on a list if it lives in a slab.

use super::hook::Hook;
use crate::sync::UnsafeCell;
use core::fmt;

/// The links inside an object that lives in a `Slab` of `lowwater-store`: which list it is on, next and previous, these by the numbers of their
/// slots. 16 bytes.
// The hook comes first in all links.
#[repr(C)]
pub struct CompressedLinks {
    hook: Hook,
    pub(super) next: UnsafeCell<u32>,
    pub(super) prev: UnsafeCell<u32>,
}

// SAFETY: `next` and `prev` are only touched by whoever the hook's invariants 1 to 3 name, one at a time; the hook is atomic.
unsafe impl Send for CompressedLinks {}
// SAFETY: as for Send.
unsafe impl Sync for CompressedLinks {}

#[cfg(all(target_pointer_width = "64", not(lowwater_loom)))]
const _: () = assert!(size_of::<CompressedLinks>() == 16, "links of a slot cost 16 bytes (DESIGN: an entry)");

impl CompressedLinks {
    /// Links that are on no list.
    pub fn new() -> Self {
        Self::with(Hook::new())
    }

    pub(super) fn with(hook: Hook) -> Self {
        Self { hook, next: UnsafeCell::new(0), prev: UnsafeCell::new(0) }
    }

    /// Is the object on a list (a private one counts)? True for no longer than it takes to ask.
    pub fn is_linked(&self) -> bool {
        self.hook.is_linked()
    }
}

impl Default for CompressedLinks {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CompressedLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompressedLinks").field("linked", &self.is_linked()).finish_non_exhaustive()
    }
}
