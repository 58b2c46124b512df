//! The part of a `ListLru` to which each of its lists points.
//!
//! It counts moves of items, by which a count of a whole node notices that items changed lists
//! meanwhile (R11 in docs/INVARIANTS.md). A change must keep the order of the three steps of a
//! move: raise the target's count, count the move, lower the source's count. `mutated!("name")`
//! leaves one step out in a model check (docs/ORDERINGS.md).

use crate::list::LinkLayout;
use crate::sync::atomic::{fence, AtomicU32, Ordering};

/// The first field of [`RawListLru`](super::raw::RawListLru), to which each of its lists points.
pub(crate) struct ListsHead {
    /// The layout of the items' links, the same for all lists.
    pub(super) layout: &'static LinkLayout,
    /// The number of times that items moved from one list to another; read by `count_node`.
    pub(super) moves: AtomicU32,
}

impl ListsHead {
    /// Counts a move of items from one list to another. Called after the receiving list's count was
    /// raised and before the source list's count falls, with the source list's lock held.
    pub(super) fn note_move(&self) {
        let without = crate::mutated!("move_without_fence");
        // Release: pairs with the Acquire in `count_node`.
        self.moves.fetch_add(1, if without { Ordering::Relaxed } else { Ordering::Release });
        if !without {
            // Release: orders `moves` before the source list's count, which falls after this; pairs
            // with the Acquire fence in `count_node`.
            fence(Ordering::Release);
        }
    }
}
