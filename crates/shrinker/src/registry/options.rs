//! The options of one shrinker, from its builder.
//!
//! They are fixed when the id is allocated: bits and debts are stored under the group and node that
//! the shrinker's awareness selects. An option that can change later belongs in `ShrinkerState`.

use lowwater_lru_core::{Memcg, NodeId};

use super::caches::Caches;
use crate::budget::{BATCH_DEFAULT, SEEKS_DEFAULT};

/// How a shrinker is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShrinkerOptions {
    pub(crate) seeks: u32,
    pub(crate) batch: u64,
    pub(crate) memcg_aware: bool,
    pub(crate) numa_aware: bool,
    pub(crate) caches: Caches,
    /// True if ghost hits are reported: see [`MissReporter`](crate::MissReporter).
    pub(crate) reports_misses: bool,
}

impl Default for ShrinkerOptions {
    fn default() -> Self {
        Self {
            seeks: SEEKS_DEFAULT,
            batch: BATCH_DEFAULT,
            memcg_aware: true,
            numa_aware: true,
            caches: Caches::OBJECTS,
            reports_misses: false,
        }
    }
}

impl ShrinkerOptions {
    /// Returns the group that has the bit for `memcg`: the root if the shrinker is not memcg-aware.
    pub(crate) fn memcg<'a>(&self, memcg: &'a Memcg) -> &'a Memcg {
        if self.memcg_aware {
            return memcg;
        }
        let mut at = memcg;
        while let Some(parent) = at.parent() {
            at = parent;
        }
        at
    }

    /// Returns the node that has the bit for `node`: the first if the shrinker is not NUMA-aware.
    pub(crate) fn node(&self, node: NodeId) -> NodeId {
        if self.numa_aware {
            node
        } else {
            NodeId::ZERO
        }
    }

    /// Returns true if the shrinker keeps objects under this group and node, so that they have the
    /// bit.
    pub(crate) fn keeps(&self, memcg: &Memcg, node: NodeId) -> bool {
        self.memcg(memcg) == memcg && self.node(node) == node
    }
}
