//! Emptying and ending dropped groups.
//!
//! The end of a group moves its records to the parent. So a dropped group, whose records are to be
//! removed (`evicts`), ends only when no cache has a record of it. Only the lease holder works on
//! the first group of the queue.
//!
//! A change must keep both conditions.

use std::time::{Duration, Instant};

use lowwater_base::unwind::caught;
use lowwater_lru_core::{ByteSize, Memcg, MemcgError, NodeId};

use super::lease::{Lease, LeaseLost};
use super::shared::{DroppedGroup, HousekeeperShared};
use super::visit::WORK;
use crate::runtime::maintenance::Maintenance;

/// The interval and the total time of waiting until charges of a dropped group that belong to no
/// record are returned.
const CHARGES_POLL: Duration = Duration::from_millis(5);
const CHARGES_WAIT_MAX: Duration = Duration::from_millis(100);
/// The time until the next try to end a group that has children, or that has records in a cache
/// where a thread is held up.
const RETRY: Duration = Duration::from_millis(100);

/// The result of evicting a group's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emptied {
    /// There may be more records.
    More,
    /// Records are left only in caches where a thread is held up.
    HeldUp,
    All,
}

impl HousekeeperShared {
    /// Empties and ends dropped groups, in turn, while there is time. Returns how long until the
    /// next try; none if no group needs one.
    pub(super) fn empty_groups(&self, lease: Lease, start: Instant) -> Result<Option<Duration>, LeaseLost> {
        let mut wait: Option<Duration> = None;
        let nr = self.state.lock().dropped.len();
        for _ in 0..nr {
            if start.elapsed() >= WORK {
                return Ok(Some(WORK));
            }
            let Some(DroppedGroup { group, evicts, empty }) = self.state.lock().dropped.front().cloned() else { break };
            let emptied = if evicts { self.empty(lease, &group, start)? } else { Emptied::All };
            if emptied == Emptied::More {
                self.rotate(None);
                return Ok(Some(WORK));
            }
            // A charge that belongs to no record is either that of an insert in progress, which
            // soon has a record, or one of the program's own, for which the group waits
            // `CHARGES_WAIT_MAX` at most.
            let since = empty.unwrap_or(start);
            let next = if emptied == Emptied::HeldUp {
                self.rotate(None);
                RETRY
            } else if evicts && group.usage().get() > 0 && since.elapsed() < CHARGES_WAIT_MAX {
                self.rotate(Some(since));
                CHARGES_POLL
            } else if self.end_group(lease, &group)? == Some(Err(MemcgError::HasChildren)) {
                self.rotate(empty);
                RETRY
            } else {
                // This may be the last handle on the group: it is dropped without the lock.
                let ended = self.state.lock().dropped.pop_front();
                // A `drop_group` may have set the 0 since this group was looked at.
                let is_dropped = ended.as_ref().is_some_and(|ended| ended.evicts);
                drop(ended);
                if is_dropped {
                    // An ended group may be charged, within its ancestors' limits. Not before the
                    // group has left the queue: a `drop_group` that sets the 0 later queues it
                    // again. Who reads this `max` finds the group offline.
                    group.set_max(ByteSize::MAX);
                }
                self.visit_each(lease, |maintenance| maintenance.release_memory())?;
                continue;
            };
            wait = Some(wait.map_or(next, |wait| wait.min(next)));
        }
        Ok(wait)
    }

    /// Ends a group. `None` if a hook of the tree panicked; the group is offline then, too.
    fn end_group(&self, lease: Lease, group: &Memcg) -> Result<Option<Result<(), MemcgError>>, LeaseLost> {
        self.before_callback(&mut self.state.lock());
        // A hook of the tree may be user code.
        let ended = caught(|| group.offline());
        self.after_callback(&mut self.state.lock(), lease)?;
        Ok(ended)
    }

    /// Moves the first dropped group behind the others, and stores since when no cache has a record
    /// of it.
    fn rotate(&self, empty: Option<Instant>) {
        let dropped = &mut self.state.lock().dropped;
        if let Some(mut first) = dropped.pop_front() {
            first.empty = empty;
            dropped.push_back(first);
        }
    }

    /// Evicts records of a group for a while.
    fn empty(&self, lease: Lease, group: &Memcg, start: Instant) -> Result<Emptied, LeaseLost> {
        // A `set_max` since the drop would let records in for as long as they are inserted.
        if group.max() > ByteSize::ZERO {
            group.set_max(ByteSize::ZERO);
        }
        let mut is_empty = true;
        let nodes = || (0..self.nodes).map(|node| NodeId::new(node as u16));
        let left_out = self.visit_each(lease, |maintenance| {
            for node in nodes() {
                // Beyond the time of `WORK`, only until a record is found: the group counts as
                // empty only if each cache has none on each node.
                while (is_empty || start.elapsed() < WORK) && maintenance.evict_group(group, node) > 0 {
                    is_empty = false;
                }
            }
        })?;
        let has_any = |maintenance: &dyn Maintenance| nodes().any(|node| maintenance.has_any(group, node));
        let is_held_up = || {
            let state = self.state.lock();
            left_out.iter().any(|id| state.caches.get(id.0).is_some_and(|maintenance| has_any(&**maintenance)))
        };
        Ok(match is_empty {
            false => Emptied::More,
            true if is_held_up() => Emptied::HeldUp,
            true => Emptied::All,
        })
    }
}
