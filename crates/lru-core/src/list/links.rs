//! What an object carries to be on a list, wherever in memory it is.

use super::hook::Hook;
use super::link_ref::LinkRef;
use crate::sync::UnsafeCell;
use core::fmt;

/// The links inside an object: which list it is on, next and previous. 24 bytes.
///
/// Objects in a `Slab` of `lowwater-store` do with less: [`CompressedLinks`](super::CompressedLinks).
// The hook comes first in all links.
#[repr(C)]
pub struct Links {
    pub(crate) hook: Hook,
    pub(super) next: UnsafeCell<LinkRef>,
    pub(super) prev: UnsafeCell<LinkRef>,
}

// SAFETY: `next` and `prev` are only touched by whoever the hook's invariants 1 to 3 name, one at a time; the hook is atomic.
unsafe impl Send for Links {}
// SAFETY: as for Send.
unsafe impl Sync for Links {}

impl Links {
    /// Links that are on no list.
    pub fn new() -> Self {
        Self::with(Hook::new())
    }

    pub(super) fn with(hook: Hook) -> Self {
        Self { hook, next: UnsafeCell::new(LinkRef::NONE), prev: UnsafeCell::new(LinkRef::NONE) }
    }

    /// Is the object on a list (a private one counts)? True for no longer than it takes to ask.
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
