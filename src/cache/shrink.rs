//! The cache as a shrinker: how much it holds for a group on a node, and letting the oldest of it go.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use lowwater_lru_core::{Memcg, NodeId};
use lowwater_shrinker::{Count, Scan, ShrinkControl, Shrinker};

use super::entry::Entry;
use super::queues::{Queue, Turn};
use super::stats::RemovalCause;
use super::Core;

impl<K: Send + Sync, V: Send + Sync> Shrinker for Core<K, V> {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        match self.queues.count(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    /// Turn by turn, as the queues have it, until as many were looked at as was asked.
    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let now = self.now();
        let (mut scanned, mut freed) = (0, 0);
        while scanned < sc.nr_to_scan() {
            let turn = self.queues.turn(sc.memcg(), sc.node(), sc.nr_to_scan() - scanned, now);
            if turn.scanned == 0 {
                break;
            }
            scanned += turn.scanned;
            freed += self.finish(turn, sc.memcg(), sc.node(), now);
        }
        sc.set_nr_scanned(scanned);
        Scan::Freed(freed)
    }
}

impl<K: Send + Sync, V: Send + Sync> Core<K, V> {
    /// Puts what a turn promoted in main, and lets go of what is old. Says how many that were.
    pub(super) fn finish(&self, turn: Turn<K, V>, memcg: &Memcg, node: NodeId, now: u64) -> u64 {
        if !turn.promoted.is_empty() {
            self.queues.prepare(Queue::Main, memcg, node);
        }
        for entry in turn.promoted {
            self.index.promote(&entry, &self.queues, node);
            self.let_go(entry);
        }
        let freed = turn.old.len() as u64;
        for entry in turn.old {
            self.evict(entry, memcg, node, now);
        }
        freed
    }

    /// Takes an isolated entry out of the index, unless somebody was faster, and frees it.
    fn evict(&self, entry: Arc<Entry<K, V>>, memcg: &Memcg, node: NodeId, now: u64) {
        let cause = if entry.has_expired(now) { RemovalCause::Expired } else { RemovalCause::Size };
        if self.index.remove_same(&entry, &self.queues) {
            if cause == RemovalCause::Size {
                self.queues.remember(&entry, memcg, node, self.index.len());
            }
            self.removed(&entry, cause);
        }
        self.let_go(entry);
    }

    /// Drops a handle, perhaps the last. The value's own drop is the user's code; a panic in it is not the reclaimer's.
    fn let_go(&self, entry: Arc<Entry<K, V>>) {
        if catch_unwind(AssertUnwindSafe(|| drop(entry))).is_err() {
            self.counters.drop_panicked();
        }
    }
}
