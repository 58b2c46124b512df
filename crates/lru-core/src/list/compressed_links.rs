//! Links of an object that lives in a slab.
//!
//! 16 bytes instead of the 24 of `Links`, at the price that the object must stay in its slot while
//! it is linked. `repr(C)` with the hook first: lists cast a pointer to links to one to a hook.

use super::hook::Hook;
use crate::sync::UnsafeCell;
use core::fmt;

/// The links inside an object that lives in a `Slab` of `lowwater-store`: the list it is on, and
/// the next and previous object by slot number. 16 bytes.
// `repr(C)`: a pointer to any kind of links is also one to its hook, the first field.
#[repr(C)]
pub struct CompressedLinks {
    hook: Hook,
    pub(super) next: UnsafeCell<u32>,
    pub(super) prev: UnsafeCell<u32>,
}

// SAFETY: `next` and `prev` are accessed only by the thread that the hook's invariants 1 to 3
// permit, one at a time; the hook is atomic.
unsafe impl Send for CompressedLinks {}
// SAFETY: the hook's invariants 1 to 3 also synchronize shared access to `next` and `prev`; the
// hook is atomic.
unsafe impl Sync for CompressedLinks {}

#[cfg(all(target_pointer_width = "64", not(lowwater_loom)))]
const _: () = assert!(size_of::<CompressedLinks>() == 16, "links of a slot cost 16 bytes (DESIGN: an entry)");

impl CompressedLinks {
    /// Creates links that are on no list.
    pub fn new() -> Self {
        Self::with(Hook::new())
    }

    pub(super) fn with(hook: Hook) -> Self {
        Self { hook, next: UnsafeCell::new(0), prev: UnsafeCell::new(0) }
    }

    /// Returns whether the object is on a list; an `Isolated` counts as one. The result may be
    /// outdated when it is returned.
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
