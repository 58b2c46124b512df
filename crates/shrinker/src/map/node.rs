//! One NUMA node's part of the map.
//!
//! One part for each node, so that reclaim of a node takes no lock of another. The caller drops
//! removed values after the locks: the last handle on a group locks the tree.
//!
//! A change must ensure that no handle is dropped under a lock of the map.

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
    /// True if a bit could not be set for want of memory.
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

    /// See [`Map::retire_pair`](super::Map::retire_pair). The caller drops the result after
    /// releasing its locks.
    pub(super) fn retire_pair(&self, memcg: MemcgId, id: u32, last: bool) -> Option<ShrinkerInfo> {
        let shard = self.shard(memcg);
        if !last {
            let infos = shard.read();
            let info = infos.get(memcg)?;
            if !info.words.contains(id) {
                if let Some(visit_state) = info.visit_state() {
                    visit_state.nr_deferred.lock().take(id, true);
                }
            }
            return None;
        }
        self.tidy(&mut shard.write(), memcg)
    }

    /// Clears the bit and the deferred objects of an id that is closed.
    pub(super) fn remove_bit(&self, memcg: MemcgId, id: u32) -> Option<ShrinkerInfo> {
        let mut infos = self.shard(memcg).write();
        if let Some(bit) = infos.get(memcg).and_then(|info| info.words.find(id)) {
            // Relaxed: under the write lock.
            bit.word.fetch_and(!bit.mask, Ordering::Relaxed);
        }
        self.tidy(&mut infos, memcg)
    }

    /// Removes a `ShrinkerInfo` that is empty. INVARIANT 2: the write lock excludes `set`, so a
    /// `ShrinkerInfo` that is found empty here is empty, and is removed together with its summary
    /// node.
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
