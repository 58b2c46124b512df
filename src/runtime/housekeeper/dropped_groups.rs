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
use super::schedule::WORK;
use super::shared::{DroppedGroup, HousekeeperShared, RETRY};
use crate::runtime::maintenance::Maintenance;

/// The interval and the total time of waiting until charges of a dropped group that belong to no
/// record are returned.
const CHARGES_POLL: Duration = Duration::from_millis(5);
const CHARGES_WAIT_MAX: Duration = Duration::from_millis(100);
/// For a group with children the time is doubled after each try, up to this. The end of a child
/// begins again with `RETRY`. The group counts that child until the hooks have returned, and each
/// try until then doubles the time again.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// The result of evicting a group's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Emptied {
    /// There may be more records.
    More,
    /// Records are left only in caches where a thread is held up.
    HeldUp,
    All,
}

/// The result of ending a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupEnd {
    /// The group was dropped meanwhile: its records are to be evicted first.
    MustEvict,
    HasChildren,
    /// The group is offline.
    Ended,
}

impl HousekeeperShared {
    /// Empties and ends dropped groups, in turn, while there is time. Returns how long until the
    /// next try; none if no group needs one.
    pub(super) fn empty_groups(&self, lease: Lease, start: Instant) -> Result<Option<Duration>, LeaseLost> {
        let wait = self.empty_some_groups(lease, start)?;
        if !self.state.lock().release_due {
            return Ok(wait);
        }
        // Once for all groups that have ended.
        let left_out = self.visit_each(lease, |maintenance| maintenance.release_memory())?;
        if left_out.is_empty() {
            self.state.lock().release_due = false;
            return Ok(wait);
        }
        Ok(Some(wait.map_or(RETRY, |wait| wait.min(RETRY))))
    }

    /// As [`empty_groups`](Self::empty_groups), without the release of memory.
    fn empty_some_groups(&self, lease: Lease, start: Instant) -> Result<Option<Duration>, LeaseLost> {
        let mut wait: Option<Duration> = None;
        let nr = self.state.lock().dropped.len();
        for _ in 0..nr {
            if start.elapsed() >= WORK {
                return Ok(Some(WORK));
            }
            let Some(DroppedGroup { group, evicts, empty, .. }) = self.state.lock().dropped.front().cloned() else {
                break;
            };
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
            } else {
                match self.end_group(lease, &group, evicts)? {
                    // The drop has notified this thread, so it works on if this was the last turn.
                    GroupEnd::MustEvict => continue,
                    GroupEnd::HasChildren => self.postpone(empty),
                    GroupEnd::Ended => {
                        self.remove_ended(&group);
                        continue;
                    }
                }
            };
            wait = Some(wait.map_or(next, |wait| wait.min(next)));
        }
        Ok(wait)
    }

    /// Ends the first group of the queue, unless `evicts` has changed since the caller read it.
    fn end_group(&self, lease: Lease, group: &Memcg, evicts: bool) -> Result<GroupEnd, LeaseLost> {
        let mut state = self.state.lock();
        if let Some(first) = state.dropped.front_mut() {
            if first.evicts != evicts {
                return Ok(GroupEnd::MustEvict);
            }
            // From now on a `drop_group` is refused.
            first.is_ending = true;
        }
        self.before_callback(&mut state);
        drop(state);
        // A hook of the tree may be user code. If it panics, the group is offline, too.
        let ended = caught(|| group.offline());
        self.after_callback(&mut self.state.lock(), lease)?;
        Ok(match ended {
            Some(Err(MemcgError::HasChildren)) => GroupEnd::HasChildren,
            _ => GroupEnd::Ended,
        })
    }

    /// Removes the first group, which has ended, from the queue.
    fn remove_ended(&self, group: &Memcg) {
        let mut state = self.state.lock();
        state.release_due = true;
        let ended = state.dropped.pop_front();
        // This may be the last handle on the group: it is dropped without the lock.
        drop(state);
        // A refused `drop_group` may have set the 0 while the group went offline.
        let is_dropped = ended.as_ref().is_some_and(|ended| ended.evicts);
        drop(ended);
        if is_dropped {
            // An ended group may be charged, within its ancestors' limits. Not before the group has
            // left the queue: a `drop_group` that sets the 0 later queues it again. A thread that
            // reads this `max` finds the group offline.
            group.set_max(ByteSize::MAX);
        }
    }

    /// Moves the first dropped group behind the others, and stores since when no cache has a record
    /// of it.
    fn rotate(&self, empty: Option<Instant>) {
        let dropped = &mut self.state.lock().dropped;
        if let Some(mut first) = dropped.pop_front() {
            first.empty = empty;
            first.is_ending = false;
            dropped.push_back(first);
        }
    }

    /// As [`rotate`](Self::rotate), for a group that has children. Returns how long until the next
    /// try.
    fn postpone(&self, empty: Option<Instant>) -> Duration {
        // Read under the lock, as the end of a child during this try has changed it.
        let retry = self.state.lock().dropped.front_mut().map_or(RETRY, |first| {
            let doubled = (first.retry * 2).min(RETRY_MAX);
            std::mem::replace(&mut first.retry, doubled)
        });
        self.rotate(empty);
        retry
    }

    /// Evicts records of a group for a while.
    fn empty(&self, lease: Lease, group: &Memcg, start: Instant) -> Result<Emptied, LeaseLost> {
        // A `set_max` since the drop would let records in for as long as they are inserted.
        if group.max() > ByteSize::ZERO {
            group.set_max_unreported(ByteSize::ZERO);
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
            // Pinned before the lock, so that the lock is released first: the end of the thread's
            // last guard may run destructors of retired values.
            let _inside = lowwater_rcu::pin();
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

#[cfg(test)]
mod tests {
    use super::super::schedule::Work;
    use super::super::{any_retired, Housekeeper};
    use super::*;
    use crate::runtime::maintenance::no_records::NoRecords;
    use crate::runtime::maintenance::MaintenanceId;
    use crate::Runtime;
    use lowwater_lru_core::MemcgTree;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;

    /// A housekeeper without threads: the test does the lease holder's steps. One group is queued
    /// to be ended, with its records.
    fn with_one_queued() -> (Housekeeper, MemcgTree, Memcg) {
        let housekeeper = Housekeeper { shared: Arc::new(HousekeeperShared::new(1, any_retired())) };
        let tree = MemcgTree::new(0);
        let group = tree.root().create("group").unwrap();
        housekeeper.end_after_children(&group);
        (housekeeper, tree, group)
    }

    #[test]
    fn a_group_that_is_dropped_before_it_ends_is_emptied_first() {
        let (housekeeper, _tree, group) = with_one_queued();
        let evicts = housekeeper.shared.state.lock().dropped[0].evicts;
        assert!(housekeeper.drop_group(&group));
        let end = |evicts| housekeeper.shared.end_group(Lease::default(), &group, evicts);
        assert!(end(evicts).is_ok_and(|end| end == GroupEnd::MustEvict) && group.is_online());
        assert!(end(true).is_ok_and(|end| end == GroupEnd::Ended) && !group.is_online());
    }

    #[test]
    fn a_drop_of_a_group_that_is_going_offline_is_refused() {
        let (housekeeper, _tree, group) = with_one_queued();
        // The steps of the lease holder up to the end, which fails.
        let child = group.create("child").unwrap();
        let end = housekeeper.shared.end_group(Lease::default(), &group, false);
        assert!(end.is_ok_and(|end| end == GroupEnd::HasChildren));
        assert!(!housekeeper.drop_group(&group), "its records would be the parent's");
        assert!(housekeeper.is_dropping_itself(&group), "it is emptied at the next try");
        housekeeper.shared.rotate(None);
        assert!(!housekeeper.shared.state.lock().dropped[0].is_ending);
        child.offline().unwrap();
    }

    /// The housekeeper must not wake ten times a second for as long as a program keeps the child.
    #[test]
    fn a_group_with_children_is_tried_less_often_until_a_child_ends() {
        let (housekeeper, tree, group) = with_one_queued();
        let _hook = tree.add_hook(housekeeper.hook());
        let [a, b] = ["a", "b"].map(|name| group.create(name).unwrap());
        // This work never takes too long.
        let start = Instant::now() + Duration::from_secs(3_600);
        let wait =
            || housekeeper.shared.empty_groups(Lease::default(), start).ok().unwrap().map(|wait| wait.as_millis());
        let waits: Vec<_> = (0..8).map_while(|_| wait()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000]);
        let is_due = || housekeeper.shared.state.lock().schedule(Work::EndGroups).begin(Instant::now(), WORK).is_some();
        assert!(is_due() && !is_due(), "the drop of the group has notified");
        a.offline().unwrap();
        assert!(is_due());
        assert_eq!([wait(), wait()], [Some(100), Some(200)]);
        b.offline().unwrap();
        assert_eq!((wait(), group.is_online()), (None, false));
    }

    #[test]
    fn memory_is_released_once_for_all_groups_that_end_in_a_run() {
        let (housekeeper, tree, _group) = with_one_queued();
        let groups: Vec<_> = (0..64).map(|i| tree.root().create(&i.to_string()).unwrap()).collect();
        groups.iter().for_each(|group| assert!(housekeeper.drop_group(group)));
        let releases = Arc::new(AtomicUsize::new(0));
        // Relaxed, both accesses: one thread.
        let count = Arc::clone(&releases);
        let cache = NoRecords::releasing(move || _ = count.fetch_add(1, Ordering::Relaxed));
        housekeeper.add(MaintenanceId(1), Arc::new(cache));
        let start = Instant::now() + Duration::from_secs(3_600);
        assert!(housekeeper.shared.empty_groups(Lease::default(), start).is_ok_and(|wait| wait.is_none()));
        assert!(groups.iter().all(|group| !group.is_online()));
        assert_eq!(releases.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn memory_is_released_later_by_caches_that_another_thread_visits() {
        let (housekeeper, _tree, group) = with_one_queued();
        let shared = &housekeeper.shared;
        let releases: [Arc<AtomicUsize>; 2] = Default::default();
        for (id, count) in (1..).zip(&releases) {
            let (count, of_first) = (Arc::clone(count), Arc::downgrade(shared));
            let release = move || {
                // Relaxed, both accesses: one thread.
                if count.fetch_add(1, Ordering::Relaxed) == 0 && id == 1 {
                    // The standby takes the lease over meanwhile.
                    of_first.upgrade().unwrap().state.lock().lease.generation = 1;
                }
            };
            housekeeper.add(MaintenanceId(id), Arc::new(NoRecords::releasing(release)));
        }
        let start = Instant::now() + Duration::from_secs(3_600);
        let released = || releases.each_ref().map(|count| count.load(Ordering::Relaxed));
        assert!(shared.empty_groups(Lease::default(), start).is_err(), "the lease is lost");
        assert_eq!((group.is_online(), released()), (false, [1, 0]));
        let lease = Lease { generation: 1 };
        shared.state.lock().in_callback.push(MaintenanceId(1));
        assert!(shared.empty_groups(lease, start).is_ok_and(|wait| wait == Some(RETRY)));
        assert_eq!(released(), [1, 1]);
        shared.state.lock().in_callback.clear();
        for _ in 0..2 {
            assert!(shared.empty_groups(lease, start).is_ok_and(|wait| wait.is_none()));
            assert_eq!(released(), [2, 2]);
        }
    }

    #[test]
    fn records_are_counted_inside_the_read_side() {
        let (housekeeper, _tree, group) = with_one_queued();
        let (counted, is_inside) = std::sync::mpsc::channel();
        let has_any = move || {
            // The grace period of a thread that is inside does not end. Other tests' readers may
            // delay it.
            let (grace_period, start) = (lowwater_rcu::start_poll(), Instant::now());
            while !grace_period.poll() && start.elapsed() < Duration::from_millis(200) {
                std::thread::sleep(Duration::from_millis(1));
            }
            counted.send(!grace_period.poll()).unwrap();
            false
        };
        housekeeper.add(MaintenanceId(1), Arc::new(NoRecords::counting(has_any)));
        // Another thread visits the cache.
        housekeeper.shared.state.lock().in_callback.push(MaintenanceId(1));
        assert!(housekeeper.drop_group(&group));
        let start = Instant::now() + Duration::from_secs(3_600);
        assert!(housekeeper.shared.empty_groups(Lease::default(), start).is_ok());
        assert_eq!(is_inside.try_recv(), Ok(true));
    }

    #[test]
    fn a_drop_of_a_group_that_has_ended_is_refused_and_its_max_reset() {
        let runtime = Runtime::builder().unlimited().build().unwrap();
        let group = runtime.group("group").unwrap();
        // As a call that found the group online before.
        runtime.end_group(&group).unwrap();
        group.set_max(ByteSize::ZERO);
        assert!(!runtime.housekeeper().drop_group(&group));
        let begun = Instant::now();
        while group.max() == ByteSize::ZERO {
            assert!(begun.elapsed() < Duration::from_secs(60), "the max stays 0");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
