//! Reclaim on request: the calling thread brings a group's usage down itself.
//!
//! The steps are those of a `Job`, without the thread; nodes take turns, so that no node is emptied
//! before the others. The calling thread must not be inside a callback.

use alloc::vec::Vec;

use lowwater_base::fallible::try_push;
use lowwater_lru_core::{ByteSize, Memcg};

use super::step::{Job, Step};
use crate::registry::{Registry, Select};

/// Objects that one step scans on one node before the next node has its turn.
const SCAN_MAX: u64 = 1024;
/// Steps of one call on each node, so that it ends even if another thread charges as fast.
const STEPS_MAX: u32 = 1 << 16;

impl Registry {
    /// Reclaims `bytes` from `memcg`'s subtree on the calling thread, like a write to cgroup v2's
    /// `memory.reclaim`: on all nodes, with rising pressure, until its usage has fallen by `bytes`
    /// or nothing more can be freed. Returns by how much it fell.
    ///
    /// Only objects with bytes charged to groups count.
    #[doc(alias = "memory.reclaim")]
    pub fn reclaim(&self, memcg: &Memcg, bytes: ByteSize) -> ByteSize {
        self.reclaim_selected(&Select::all().memcg(memcg), bytes)
    }

    /// As [`reclaim`](Self::reclaim), for a selection: until the group's usage has fallen by
    /// `bytes`, or nothing more can be freed in the selection. If there is no memory for the job of
    /// a node, that node and those after it are skipped.
    #[doc(hidden)]
    pub fn reclaim_selected(&self, select: &Select<'_>, bytes: ByteSize) -> ByteSize {
        let memcg = select.memcg.unwrap_or(&self.core.root);
        let before = memcg.usage();
        let target = before.saturating_sub(bytes);
        let mut jobs = Vec::new();
        for node in select.nodes(self.nodes()) {
            let mut job = Job::new(memcg.clone(), target).filter(select.filter).without_wait();
            if select.node.is_some() {
                job = job.for_one_node();
            }
            if try_push(&mut jobs, (node, job)).is_err() {
                break;
            }
        }
        for _ in 0..STEPS_MAX {
            jobs.retain_mut(|(node, job)| matches!(job.step(self, *node, SCAN_MAX), Step::Again | Step::BackOff));
            if jobs.is_empty() {
                break;
            }
        }
        before.saturating_sub(memcg.usage())
    }
}
