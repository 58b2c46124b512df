//! The part of a `ListLru` to which each of its lists points.

use crate::list::LinkLayout;
use crate::sync::atomic::{fence, AtomicU32, Ordering};

/// The first part of a [`RawListLru`](super::raw::RawListLru), to which its lists point.
pub(crate) struct ListsHead {
    /// How the items of all lists are linked.
    pub(super) layout: &'static LinkLayout,
    /// How often items moved from one list to another, all at once: for `count_node`.
    pub(super) moves: AtomicU32,
}

impl ListsHead {
    /// Between the counts of a list that gets items and of the one they come from, whose lock is
    /// held.
    pub(super) fn note_move(&self) {
        let without = crate::mutated!("move_without_fence");
        // Release: meets the Acquire in `count_node`.
        self.moves.fetch_add(1, if without { Ordering::Relaxed } else { Ordering::Release });
        if !without {
            // Release: between `moves` and the count that falls; meets the Acquire fence in
            // `count_node`.
            fence(Ordering::Release);
        }
    }
}
