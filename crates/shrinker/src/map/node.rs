//! One NUMA node's part of the map: the node's `ShrinkerInfo`s in shards, and the summary of the
//! groups that have one.
//!
//! Each node has its own part, so that reclaim on one node does not wait for locks of another. The
//! functions here return a removed `ShrinkerInfo` instead of dropping it: it holds a group's
//! handle, and the drop of a group's last handle locks the tree.
//!
//! A change must ensure that no group's last handle is dropped under a lock of the map.
//!
//! INVARIANT 2 is that of [`map`](super).

use lowwater_base::sync::atomic::{AtomicBool, Ordering};
use lowwater_base::sync::{Mutex, RwLock};
use lowwater_lru_core::{Memcg, MemcgId};

use super::shards::SHARDS;
use super::shrinker_info::{self, ShrinkerInfo, ShrinkerInfos};
use super::summary::Summary;

/// One NUMA node's part of the map.
pub(super) struct NodeMap {
    pub(super) shards: [RwLock<ShrinkerInfos>; SHARDS],
    pub(super) summary: Mutex<Summary>,
    /// True if a bit, or its pair in the pairs by utility, may be missing since the last
    /// [`take_dirty`](super::Map::take_dirty). The next pass then resyncs (`resync.rs`).
    pub(super) dirty: AtomicBool,
}

impl NodeMap {
    pub(super) fn new() -> Self {
        Self {
            shards: core::array::from_fn(|_| RwLock::new(ShrinkerInfos::default())),
            summary: Mutex::new(Summary::default()),
            dirty: AtomicBool::new(false),
        }
    }

    pub(super) fn shard(&self, memcg: MemcgId) -> &RwLock<ShrinkerInfos> {
        &self.shards[memcg.index() % SHARDS]
    }

    /// Removes the deferred objects and the counts of a shrinker unless its bit is set again. If
    /// `last` (the cleared bit was the last one in its word), frees the word, too, and returns the
    /// `ShrinkerInfo` if no bit is left in it.
    pub(super) fn retire_pair(&self, memcg: MemcgId, id: u32, last: bool) -> Option<ShrinkerInfo> {
        let shard = self.shard(memcg);
        if !last {
            let infos = shard.read();
            infos.get(memcg)?.forget_visits(id);
            return None;
        }
        self.tidy(&mut shard.write(), memcg)
    }

    /// Clears the bit and the deferred objects of an id that is closed. Returns the `ShrinkerInfo`
    /// if no bit is left in it.
    pub(super) fn remove_bit(&self, memcg: MemcgId, id: u32) -> Option<ShrinkerInfo> {
        let mut infos = self.shard(memcg).write();
        if let Some(bit) = infos.get(memcg).and_then(|info| info.words.find(id)) {
            // Relaxed: under the write lock.
            bit.word.fetch_and(!bit.mask, Ordering::Relaxed);
        }
        self.tidy(&mut infos, memcg)
    }

    /// Frees the words without a bit, and the state of shrinkers without one. If no bit is left,
    /// removes the `ShrinkerInfo`, and returns it. INVARIANT 2: `infos` is write-locked, which
    /// excludes `set`, so no bit appears between the check and the removal; the group leaves the
    /// summary under the same lock.
    pub(super) fn tidy(&self, infos: &mut ShrinkerInfos, memcg: MemcgId) -> Option<ShrinkerInfo> {
        let info = infos.get_mut(memcg)?;
        info.words.tidy();
        if info.words.is_empty() {
            return self.remove(infos, memcg);
        }
        info.tidy_visit_state();
        None
    }

    /// Removes a dying group's `ShrinkerInfo`.
    pub(super) fn remove_info(&self, dying: &Memcg) -> Option<ShrinkerInfo> {
        self.remove(&mut self.shard(dying.id()).write(), dying.id())
    }

    fn remove(&self, infos: &mut ShrinkerInfos, memcg: MemcgId) -> Option<ShrinkerInfo> {
        let gone = infos.remove(memcg)?;
        self.summary.lock().unlink(&gone.memcg);
        Some(gone)
    }

    pub(super) fn bytes(&self) -> usize {
        let infos: usize = self.shards.iter().map(|shard| shrinker_info::bytes(&shard.read())).sum();
        core::mem::size_of::<Self>() + infos + self.summary.lock().bytes()
    }
}
