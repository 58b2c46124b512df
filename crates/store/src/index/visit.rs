//! Visits of all objects of an index.

use super::cursor::Cursor;
use super::ExtendibleIndex;
use crate::slab::{SharedSlab, Slotted};
use lowwater_base::NodeId;
use lowwater_rcu::Guard;

impl<T: Slotted> ExtendibleIndex<T> {
    /// Shows the objects of the next segment, without a lock: at most some 1,200, but for bad hashers.
    ///
    /// Over a whole walk, each object that is in the index throughout is shown once; one that comes, goes or is replaced meanwhile
    /// may be or not. `f` may use the index.
    pub fn visit<'g>(&'g self, cursor: &mut Cursor, guard: &'g Guard, mut f: impl FnMut(&'g T)) {
        self.visit_numbers(cursor, guard, |number| f(self.object(number)));
    }

    /// As [`visit`](Self::visit), of the objects alone that are in chunks which a [compaction](crate::Slab::begin_compaction) is to empty,
    /// with the node whose memory that is.
    pub fn visit_evacuating<'g>(&'g self, cursor: &mut Cursor, guard: &'g Guard, mut f: impl FnMut(&'g T, NodeId)) {
        self.visit_numbers(cursor, guard, |number| {
            // SAFETY: what is in the index is in its slab, and its slot not free while the guard is there.
            let object = unsafe { SharedSlab::<T>::at(number) };
            // SAFETY: as above.
            if let Some(node) = unsafe { SharedSlab::leaves(object) } {
                f(self.object(number), node);
            }
        });
    }

    fn visit_numbers(&self, cursor: &mut Cursor, guard: &Guard, f: impl FnMut(u32)) {
        let Some(from) = cursor.0 else { return };
        let Some(view) = self.view(from, guard) else { return cursor.0 = None };
        let header = view.header();
        view.each(f);
        // Segments are split, and never joined: the next one begins where this one ends.
        let end = header
            .prefix
            .checked_add((1 << 63) >> header.depth)
            .and_then(|mid| mid.checked_add((1 << 63) >> header.depth));
        cursor.0 = end;
    }
}
