//! The offline of a group, and the end of the map.
//!
//! When a group's lists have joined its parent's, the map removes the group's
//! [`ShrinkerInfo`](super::shrinker_info), so that late reports go to the parent, and after that
//! sets the group's bits and debts (deferred objects) at the parent. `ends.rs` counts the beginning
//! and the end of each offline.
//!
//! Numbers such as S18 are those of docs/INVARIANTS.md.
//!
//! A change must keep this order.

use lowwater_lru_core::{Memcg, MemcgId, NodeId};

use super::{Key, Map};
use crate::deferred::Debt;
use crate::utility::Pairs;

impl Map {
    /// Moves the bits and deferred objects of a dead group to `parent`, whose lists have the
    /// group's items by now (S18).
    #[doc(alias = "reparent_shrinker_deferred")]
    pub(crate) fn offline(&self, dying: &Memcg, parent: &Memcg) {
        self.ends.begin();
        for n in 0..self.nodes.len() {
            let node = NodeId::new(n as u16);
            let Some(info) = self.node(node).remove_info(dying) else { continue };
            let mut last = None;
            while let Some(id) = info.words.next_after(last) {
                last = Some(id);
                let Some(key) = self.end_pair(id, node, dying.id()) else { continue };
                // If the list was empty, the bit costs one call, and the debt is kept until then.
                self.set(parent, node, key);
                let debt = info
                    .visit_state()
                    .map_or(Debt::NONE, |visit_state| visit_state.nr_deferred.lock().take_all(key.id));
                self.add_deferred_of(key, parent, node, debt);
            }
        }
        self.ends.finish();
    }

    /// Removes a pair of a dying group from the index. Returns the key of its shrinker; `None` if
    /// that shrinker's id was closed since the bit was taken out of the map. The id may have a new
    /// owner by then, which has no pair with a dying group (invariant 5 of the map).
    fn end_pair(&self, id: u32, node: NodeId, dying: MemcgId) -> Option<Key> {
        let key = self.index.lock(id).remove(id, node, dying);
        self.remove_unset(id, dying);
        key
    }

    /// Drops every `ShrinkerInfo` and summary node, and closes every id, when the registry is
    /// dropped. Later reports of lists are ignored.
    pub(crate) fn shut(&self) {
        self.index.shut();
        self.by_utility().into_iter().for_each(Pairs::shut);
        let root = self.root.lock().take();
        drop(root);
        for node in &self.nodes {
            for shard in &node.shards {
                let infos = {
                    let mut infos = shard.write();
                    for info in infos.iter() {
                        node.summary.lock().unlink(&info.memcg);
                    }
                    core::mem::take(&mut *infos)
                };
                drop(infos);
            }
        }
    }
}
