//! Where a walk goes on: links that are no object's.

use super::{Hook, Links, Node, Shape, SlotLinks};
use core::ptr::NonNull;

/// Links of the shape of those among which they are left.
pub(crate) struct Mark {
    links: Links,
    slot_links: SlotLinks,
}

impl Mark {
    pub(crate) fn new() -> Self {
        Self { links: Links::with(Hook::new_mark()), slot_links: SlotLinks::with(Hook::new_mark()) }
    }

    fn of(&self, shape: &Shape) -> NonNull<Hook> {
        if shape.is_in_slots() {
            NonNull::from(&self.slot_links).cast()
        } else {
            NonNull::from(&self.links).cast()
        }
    }

    /// A name for it on lists of this shape, until it is given back. `None`: there is none, nor memory for one.
    pub(crate) fn name(&self, shape: &Shape) -> Option<Node> {
        shape.lend(self.of(shape))
    }
}
