//! [`IndexCursors`]: a search through a whole index, for a record that its hash does not find.
//!
//! A step of the search locks one part of the index at a time, so a part may be split meanwhile. A
//! change must ensure that a caller which finds nothing, though the record is still indexed,
//! searches again.

use lowwater_rcu::Guard;
use lowwater_store::index::Cursor;
use lowwater_store::ExtendibleIndex;

use super::record::Record;

/// An iterator over the cursors of an index, one for each part.
pub(super) struct IndexCursors<'g, K: Send + Sync + 'static, V: Send + Sync + 'static> {
    index: &'g ExtendibleIndex<Record<K, V>>,
    guard: &'g Guard,
    at: Cursor,
}

impl<'g, K: Send + Sync + 'static, V: Send + Sync + 'static> IndexCursors<'g, K, V> {
    pub(super) fn of(index: &'g ExtendibleIndex<Record<K, V>>, guard: &'g Guard) -> Self {
        Self { index, guard, at: Cursor::new() }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Iterator for IndexCursors<'_, K, V> {
    type Item = Cursor;

    fn next(&mut self) -> Option<Cursor> {
        let at = (!self.at.is_done()).then(|| self.at.clone())?;
        self.index.visit(&mut self.at, self.guard, |_| ());
        Some(at)
    }
}
