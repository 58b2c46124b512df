//! Reclaim by hand: somebody wants a group to use less, now, and waits for it.

use lowwater_lru_core::{Bytes, Memcg, NodeId};

use super::{Reason, Watermarks};
use crate::reclaimer::{Job, Step};
use crate::registry::Registry;

/// Objects scanned on one node before the next has its turn.
const SCAN_MAX: u64 = 1024;
/// Steps of one call on each node, so that it ends beside a thread that charges as fast.
const STEPS_MAX: u32 = 1 << 16;

impl Registry {
    /// Reclaims `bytes` from `memcg`'s subtree on the calling thread, as a write to cgroup v2's `memory.reclaim`: on all
    /// nodes, with rising pressure, until its usage has fallen by that or nothing more can be freed. Says by how much it fell.
    ///
    /// Only objects whose bytes are charged to groups count.
    #[doc(alias = "memory.reclaim")]
    pub fn reclaim(&self, memcg: &Memcg, bytes: Bytes) -> Bytes {
        let before = memcg.usage();
        // No limit is looked at, so the marks do not matter.
        let marks = Watermarks { low_gap: Bytes::ZERO, high_gap: Bytes::ZERO };
        let target = Reason::Manual(bytes).target(memcg, &marks);
        let mut jobs: alloc::vec::Vec<_> =
            (0..self.nodes()).map(|node| (NodeId::new(node as u16), Job::new(memcg.clone(), target))).collect();
        for _ in 0..STEPS_MAX {
            jobs.retain_mut(|(node, job)| job.step(self, *node, SCAN_MAX) == Step::Again);
            if jobs.is_empty() {
                break;
            }
        }
        before.saturating_sub(memcg.usage())
    }
}
