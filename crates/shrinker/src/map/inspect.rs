//! Counts of the map: visits of its pairs, objects as of the last visits, and its size.
//!
//! For statistics, and for the reclaimer's bound on scans that free nothing ([`held`](Map::held)).
//! So the results may be outdated when they are returned. A change must ensure that no function
//! here changes a bit.

use alloc::vec::Vec;

use lowwater_lru_core::{ByteSize, Memcg, MemcgId, NodeId};

use super::node::NodeMap;
use super::shrinker_info::ShrinkerInfo;
use super::Map;
use crate::stats::{PairStats, VisitCounts};
use crate::utility::Pairs;

impl Map {
    /// Records a visit that counted `counted` objects, unless the pair was found empty and is gone.
    pub(crate) fn note(&self, memcg: &Memcg, node: NodeId, id: u32, counted: u64, visited: &VisitCounts) {
        let infos = self.node(node).shard(memcg.id()).read();
        let Some(info) = infos.get(memcg.id()).filter(|info| info.words.contains(id)) else { return };
        // Without memory the visit is not recorded.
        let Some(visit_state) = info.visit_state_to_write() else { return };
        let mut pair_counts = visit_state.pair_counts.lock();
        // Checked again under the lock: another thread may have cleared the bit and called
        // `forget_visits`, and nothing would remove counts that are added after that.
        if info.words.contains(id) {
            pair_counts.add(id, counted, visited);
        }
    }

    /// Returns the live pairs. O(live pairs).
    pub(crate) fn pairs(&self) -> Vec<PairStats> {
        let mut pairs = Vec::new();
        let mut ids = Vec::new();
        for (n, on_node) in self.nodes.iter().enumerate() {
            for shard in &on_node.shards {
                for info in shard.read().iter() {
                    ids.clear();
                    info.words.collect(0..=u32::MAX, &mut ids);
                    let (node, visit_state) = (NodeId::new(n as u16), info.visit_state());
                    let visit_state =
                        visit_state.map(|visit_state| (visit_state.pair_counts.lock(), visit_state.nr_deferred.lock()));
                    let pair = |id: &u32| {
                        let (pair_counts, owed) = match &visit_state {
                            Some((pair_counts, nr_deferred)) => (pair_counts.get(*id), nr_deferred.owed(*id)),
                            None => Default::default(),
                        };
                        PairStats::of(*id, info.memcg.clone(), node, pair_counts, owed)
                    };
                    pairs.extend(ids.iter().map(pair));
                }
            }
        }
        pairs
    }

    /// Returns the number of objects of `root` and its descendants on a node, as of the last
    /// visits. O(live pairs on the node), no callback.
    pub(crate) fn held(&self, root: &Memcg, node: NodeId) -> u64 {
        let shards = self.node(node).shards.iter();
        shards.fold(0, |sum: u64, shard| {
            let infos = shard.read();
            let below = infos.iter().filter(|info| info.memcg.is_descendant_of(root));
            below
                .filter_map(ShrinkerInfo::visit_state)
                .fold(sum, |sum, visit_state| sum.saturating_add(visit_state.pair_counts.lock().counted()))
        })
    }

    /// Returns the groups and nodes for which `id` may hold objects. O(its own pairs).
    pub(crate) fn pairs_of(&self, id: u32) -> Vec<(Memcg, NodeId)> {
        let pairs = self.index.pairs(id);
        let memcg = |(node, memcg): (NodeId, MemcgId)| {
            Some((self.node(node).shard(memcg).read().get(memcg)?.memcg.clone(), node))
        };
        pairs.into_iter().filter_map(memcg).collect()
    }

    /// Returns the number of set bits, and of (group, node) pairs that have some, over all nodes.
    /// O(live pairs).
    pub(crate) fn live(&self) -> (usize, usize) {
        let shards = self.nodes.iter().flat_map(|node| &node.shards);
        shards.fold((0, 0), |(pairs, infos), shard| {
            let shard = shard.read();
            (pairs + shard.iter().map(|info| info.words.len()).sum::<usize>(), infos + shard.len())
        })
    }

    /// Returns the bytes of the map, the index and the table of utilities. O(live pairs).
    pub(crate) fn footprint(&self) -> ByteSize {
        let nodes: usize = self.nodes.iter().map(NodeMap::bytes).sum();
        let pairs = self.by_utility().map_or(0, |pairs| core::mem::size_of::<Pairs>() + pairs.bytes());
        ByteSize::new((nodes + self.index.bytes() + pairs + core::mem::size_of::<Self>()) as u64)
    }
}
