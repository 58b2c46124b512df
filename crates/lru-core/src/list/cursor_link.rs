//! The cursor of a walk: links that belong to no object.
//!
//! A walk that releases the list's lock leaves this link in the list to find its position again. In
//! compressed links, neighbours refer to each other by slot number; a cursor is in no slot, so it
//! registers a number of its own.
//!
//! A change must ensure that the link is unlinked before it is dropped, and that every loop over a
//! list skips it (`Hook::is_cursor`).

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
        Self { links: Links::with(Hook::new_cursor()), compressed_links: CompressedLinks::with(Hook::new_cursor()) }
    }

    /// Returns the hook of the links that this layout uses.
    fn hook(&self, layout: &LinkLayout) -> NonNull<Hook> {
        if layout.is_in_slots() {
            NonNull::from(&self.compressed_links).cast()
        } else {
            NonNull::from(&self.links).cast()
        }
    }

    /// Registers the cursor for lists of this layout, until `unregister_external`, and returns its
    /// link node. `None`: no number for compressed links is free, or there is no memory.
    pub(crate) fn register(&self, layout: &LinkLayout) -> Option<LinkNode> {
        layout.register_external(self.hook(layout))
    }
}
