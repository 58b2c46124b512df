//! Reclaim by hand: somebody wants a group to use less, now, and waits for it.

use lowwater_lru_core::{Bytes, Memcg};

use crate::registry::{Registry, Select};

impl Registry {
    /// Reclaims `bytes` from `memcg`'s subtree on the calling thread, as a write to cgroup v2's `memory.reclaim`: on all
    /// nodes, with rising pressure, until its usage has fallen by that or nothing more can be freed. Says by how much it fell.
    ///
    /// Only objects whose bytes are charged to groups count.
    #[doc(alias = "memory.reclaim")]
    pub fn reclaim(&self, memcg: &Memcg, bytes: Bytes) -> Bytes {
        self.reclaim_selected(&Select::all().memcg(memcg), bytes)
    }
}
