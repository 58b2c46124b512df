//! The cache's retired records, for the sweeps of its runtime (`runtime/retired.rs`).
//!
//! A change must ensure that a cache without retired records costs a sweep one load.

use lowwater_lru_core::ByteSize;

use super::core::Core;
use crate::runtime::{Known, Retires};

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: Send + Sync> Retires for Core<K, V, S> {
    fn start_grace_period(&self, known: Known) -> bool {
        let is_any = self.may_have_retired(known);
        if is_any {
            self.index.slab().seal();
        }
        is_any
    }

    fn drop_some(&self, entries: usize, known: Known) -> usize {
        match self.may_have_retired(known) {
            true => self.index.slab().drop_some(entries),
            false => 0,
        }
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Core<K, V, S> {
    /// Returns whether there may be retired records of which a sweep is to know.
    fn may_have_retired(&self, known: Known) -> bool {
        known == Known::All || self.index.slab().waiting() > ByteSize::ZERO
    }
}
