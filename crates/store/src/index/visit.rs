//! Walks over all objects of an index.
//!
//! A walk goes segment by segment in the order of the hashes; segments may be replaced between two
//! steps. A change must ensure that segments are only split, never merged: the next step begins
//! where the last segment's prefix ended.

use super::cursor::Cursor;
use super::ExtendibleIndex;
use crate::slab::{SharedSlab, Slotted};
use lowwater_base::NodeId;
use lowwater_rcu::Guard;

impl<T: Slotted> ExtendibleIndex<T> {
    /// Calls `f` with each object of the next segment, without a lock: at most about 1,200 objects,
    /// except with a bad hasher.
    ///
    /// Over a whole walk, an object that is in the index throughout is visited exactly once; an
    /// object that is inserted, removed or replaced meanwhile may be visited or not. `f` may use
    /// the index.
    pub fn visit<'g>(&'g self, cursor: &mut Cursor, guard: &'g Guard, mut f: impl FnMut(&'g T)) {
        self.visit_numbers(cursor, guard, |number| f(self.object(number)));
    }

    /// As [`visit`](Self::visit), but only for objects in chunks that a
    /// [compaction](crate::Slab::begin_compaction) evacuates; `f` also receives the node of the
    /// object's memory.
    pub fn visit_evacuating<'g>(&'g self, cursor: &mut Cursor, guard: &'g Guard, mut f: impl FnMut(&'g T, NodeId)) {
        self.visit_numbers(cursor, guard, |number| {
            // SAFETY: an object in the index is in its slab, and its slot is not freed while the
            // guard exists.
            let object = unsafe { SharedSlab::<T>::at(number) };
            // SAFETY: `object` is in the index's slab, and its slot is not freed while the guard
            // exists.
            if let Some(node) = unsafe { SharedSlab::evacuated_node(object) } {
                f(self.object(number), node);
            }
        });
    }

    fn visit_numbers(&self, cursor: &mut Cursor, guard: &Guard, mut f: impl FnMut(u32)) {
        let Some(from) = cursor.0 else { return };
        let Some(view) = self.view(from, guard) else { return cursor.0 = None };
        let header = view.header();
        view.each(|number, _| f(number));
        // Twice half of the segment's range: at depth 0 the whole is 2^64. On overflow the segment
        // was the last one.
        let end = header
            .prefix
            .checked_add((1 << 63) >> header.depth)
            .and_then(|mid| mid.checked_add((1 << 63) >> header.depth));
        cursor.0 = end;
    }
}
