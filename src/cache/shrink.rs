//! The cache as a shrinker: how much it holds for a group on a node, and letting the oldest of it go.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use lowwater_lru_core::Isolated;
use lowwater_shrinker::{Count, Scan, ShrinkControl, Shrinker};

use super::entry::Entry;
use super::stats::RemovalCause;
use super::Core;

impl<K: Send + Sync, V: Send + Sync> Shrinker for Core<K, V> {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        match self.lru.count_one(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    /// Second chance: an entry that was used since the last walk goes to the young end, once.
    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let now = self.now();
        let mut old = Isolated::new();
        let mut left = sc.nr_to_scan();
        self.lru.walk_one(sc.memcg(), sc.node(), &mut left, |it| {
            if !it.item().has_expired(now) && it.item().take_used() {
                it.rotate()
            } else {
                it.isolate(&mut old)
            }
        });
        sc.set_nr_scanned(sc.nr_to_scan() - left);
        let freed = old.len() as u64;
        for entry in old {
            self.evict(entry, now);
        }
        Scan::Freed(freed)
    }
}

impl<K: Send + Sync, V: Send + Sync> Core<K, V> {
    /// Takes an isolated entry out of the index, unless somebody was faster, and frees it.
    fn evict(&self, entry: Arc<Entry<K, V>>, now: u64) {
        let cause = if entry.has_expired(now) { RemovalCause::Expired } else { RemovalCause::Size };
        if self.index.remove_same(&entry, &self.lru) {
            self.removed(&entry, cause);
        }
        // The value's own drop is the user's code; a panic in it is not the reclaimer's.
        if catch_unwind(AssertUnwindSafe(|| drop(entry))).is_err() {
            self.counters.drop_panicked();
        }
    }
}
