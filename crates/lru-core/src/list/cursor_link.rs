//! Where a walk goes on: links that are no object's.

use super::compressed_links::CompressedLinks;
use super::hook::Hook;
use super::link_layout::LinkLayout;
use super::link_ref::LinkNode;
use super::links::Links;
use core::ptr::NonNull;

/// Links of the shape of those among which they are left.
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

    /// A name for it on lists of this shape, until it is given back. `None`: there is none, nor memory for one.
    pub(crate) fn name(&self, shape: &LinkLayout) -> Option<LinkNode> {
        shape.register_external(self.of(shape))
    }
}
