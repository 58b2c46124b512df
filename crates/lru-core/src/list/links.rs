//! Links of an object anywhere in memory.
//!
//! `compressed_links.rs` has smaller ones, for objects in slots. `repr(C)` with the hook first:
//! lists cast a pointer to links to one to a hook.

use super::hook::Hook;
use super::link_ref::LinkRef;
use crate::sync::UnsafeCell;
use core::fmt;

/// The links inside an object: the list it is on, and the addresses of the next and previous
/// object. 24 bytes.
///
/// Objects in a `Slab` of `lowwater-store` can use the smaller
/// [`CompressedLinks`](super::CompressedLinks).
// `repr(C)`: a pointer to any kind of links is also one to its hook, the first field.
#[repr(C)]
pub struct Links {
    pub(crate) hook: Hook,
    pub(super) next: UnsafeCell<LinkRef>,
    pub(super) prev: UnsafeCell<LinkRef>,
}

// SAFETY: `next` and `prev` are accessed only by the thread that the hook's invariants 1 to 3
// permit, one at a time; the hook is atomic.
unsafe impl Send for Links {}
// SAFETY: the hook's invariants 1 to 3 also synchronize shared access to `next` and `prev`; the
// hook is atomic.
unsafe impl Sync for Links {}

impl Links {
    /// Creates links that are on no list.
    pub fn new() -> Self {
        Self::with(Hook::new())
    }

    pub(super) fn with(hook: Hook) -> Self {
        Self { hook, next: UnsafeCell::new(LinkRef::NONE), prev: UnsafeCell::new(LinkRef::NONE) }
    }

    /// Returns whether the object is on a list; an `Isolated` counts as one. The result may be
    /// outdated when it is returned.
    pub fn is_linked(&self) -> bool {
        self.hook.is_linked()
    }
}

impl Default for Links {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("linked", &self.is_linked()).finish_non_exhaustive()
    }
}
