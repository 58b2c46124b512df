//! The cursor of a walk: links that belong to no object.
//!
//! A walk that releases the list's lock leaves this link behind to find its position again. It must
//! be unlinked before it is dropped, and every loop over a list must skip it (`Hook::is_mark`).

use super::compressed_links::CompressedLinks;
use super::hook::Hook;
use super::link_layout::LinkLayout;
use super::link_ref::LinkNode;
use super::links::Links;
use core::ptr::NonNull;

/// Links of both layouts, of which the one is used that matches the list.
pub(crate) struct CursorLink {
    links: Links,
    compressed_links: CompressedLinks,
}

impl CursorLink {
    pub(crate) fn new() -> Self {
        Self { links: Links::with(Hook::new_mark()), compressed_links: CompressedLinks::with(Hook::new_mark()) }
    }

    fn of(&self, shape: &LinkLayout) -> NonNull<Hook> {
        if shape.is_in_slots() {
            NonNull::from(&self.compressed_links).cast()
        } else {
            NonNull::from(&self.links).cast()
        }
    }

    /// Returns the cursor's link node for lists of this layout, registered until
    /// `unregister_external`. `None`: there is no number left, or no memory.
    pub(crate) fn name(&self, shape: &LinkLayout) -> Option<LinkNode> {
        shape.register_external(self.of(shape))
    }
}
