//! The queue of tenants by the time of their last use, and the groups of ended tenants whose
//! entries are still being removed.
//!
//! A use does not move the tenant in the queue, since uses are frequent. So the time of an entry is
//! only a lower bound of the tenant's last use. The caller removes the first tenant, reads its last
//! use, and pushes it again with that time if it was used since; that happens at most once for each
//! use.
//!
//! A change must ensure that the time of an entry is not later than the tenant's last use.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use lowwater_lru_core::Memcg;

/// The names of tenants by a lower bound of their last use. Times are in milliseconds since an
/// epoch.
#[derive(Default)]
pub(super) struct IdleQueue {
    by_use: BinaryHeap<Reverse<(u64, Arc<str>)>>,
    ending: Vec<Memcg>,
}

impl IdleQueue {
    /// Adds a tenant that was last used at this time, or later. O(log tenants).
    pub(super) fn push(&mut self, used: u64, name: Arc<str>) {
        self.by_use.push(Reverse((used, name)));
    }

    /// Removes and returns the first tenant, if its time in the queue is at most `limit`. The
    /// caller must check its last use, which may be later.
    pub(super) fn pop_until(&mut self, limit: u64) -> Option<Arc<str>> {
        if self.oldest_use()? > limit {
            return None;
        }
        self.by_use.pop().map(|Reverse((_, name))| name)
    }

    /// Returns the lowest time in the queue: the last use of each tenant is at this time or later.
    pub(super) fn oldest_use(&self) -> Option<u64> {
        self.by_use.peek().map(|Reverse((used, _))| *used)
    }

    /// Adds the group of an ended tenant.
    pub(super) fn add_ending(&mut self, group: Memcg) {
        self.ending.push(group);
    }

    /// Returns the number of added groups that are not offline yet.
    pub(super) fn ending_count(&mut self) -> usize {
        self.ending.retain(Memcg::is_online);
        self.ending.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_come_in_the_order_of_their_use() {
        let mut idle = IdleQueue::default();
        assert_eq!(idle.pop_until(u64::MAX), None);
        for (used, name) in [(5, "b"), (3, "a"), (9, "c")] {
            idle.push(used, name.into());
        }
        assert_eq!(idle.oldest_use(), Some(3));
        assert_eq!(idle.pop_until(2), None);
        assert_eq!(idle.pop_until(3).as_deref(), Some("a"));
        // It was used meanwhile.
        idle.push(7, "a".into());
        let order: Vec<_> = std::iter::from_fn(|| idle.pop_until(7)).collect();
        assert_eq!(order.iter().map(|name| &**name).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(idle.oldest_use(), Some(9));
    }
}
