//! The state that the housekeeper's threads share, under one lock.
//!
//! A *visit* is the work of one thread on one cache, or on the end of one group; it may run user
//! code.
//!
//! A change must ensure that the lock is never held while user code runs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lowwater_lru_core::{Memcg, OfflineHook};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::lease::{Lease, LeaseLost};
use super::schedule::{Schedule, Work};
use crate::runtime::ghosts::Ghosts;
use crate::runtime::key_order::KeyOrder;
use crate::runtime::maintenance::{Maintenance, MaintenanceId};
use crate::runtime::mean_cost::MeanCost;
use crate::runtime::retired::Retired;

/// The time until the next try to end a group that has children, or that has records in a cache
/// where a thread is held up; and to release the memory of such a cache.
pub(super) const RETRY: Duration = Duration::from_millis(100);

/// How long the lease holder may be in one cache, or in the end of one group, until the standby
/// takes the lease over. A visit mostly takes less than a millisecond, unless user code blocks.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// The state under its lock, and the condition variables.
pub(super) struct HousekeeperShared {
    pub(super) state: Mutex<HousekeeperState>,
    /// The lease holder waits here for something to do.
    pub(super) notified: Condvar,
    /// The drop of a cache waits here until no thread visits the cache or reads its figures.
    pub(super) callback_done: Condvar,
    /// The standby waits here for the begin of a visit.
    pub(super) callback_begun: Condvar,
    /// The number of NUMA nodes.
    pub(super) nodes: usize,
    /// The retired records of the caches.
    pub(super) retired: Arc<Retired>,
    /// The keys that the caches have evicted.
    pub(super) ghosts: Ghosts,
    /// The mean cost of the caches' values.
    pub(super) mean_cost: MeanCost,
}

/// The state under the housekeeper's lock.
#[derive(Default)]
pub(super) struct HousekeeperState {
    pub(super) threads: Vec<JoinHandle<()>>,
    pub(super) lease: Lease,
    /// When the lease holder began its present visit; none between visits.
    pub(super) callback_since: Option<Instant>,
    /// There is a standby thread.
    pub(super) has_standby: bool,
    /// The standby sleeps until the next visit begins.
    pub(super) standby_sleeps: bool,
    /// By id.
    pub(super) caches: KeyOrder<Arc<dyn Maintenance>>,
    /// The caches that threads visit; more than one only where user code has blocked a thread.
    pub(super) in_callback: Vec<MaintenanceId>,
    /// The caches whose figures are being read, each as often as threads read them.
    #[cfg(feature = "metrics")]
    pub(super) being_read: Vec<MaintenanceId>,
    /// Groups to be ended. Only the lease holder removes some, or changes their order: the last
    /// tried is last.
    pub(super) dropped: VecDeque<DroppedGroup>,
    /// A group has ended since all caches have last released the memory of such groups' records.
    /// Only the lease holder changes it.
    pub(super) release_due: bool,
    /// The records of large caches that have ended, to be dropped.
    pub(super) leftovers: VecDeque<Box<dyn Send>>,
    /// When each kind of work runs next, in the order of [`Work::ALL`].
    pub(super) schedules: [Schedule; Work::ALL.len()],
    /// The housekeeper is being dropped: the threads end.
    pub(super) stop: bool,
}

/// A group to be ended.
#[derive(Clone)]
pub(super) struct DroppedGroup {
    pub(super) group: Memcg,
    /// The group's records are evicted first. Otherwise they become the parent's.
    pub(super) evicts: bool,
    /// The group is going offline: it is too late to evict its records.
    pub(super) is_ending: bool,
    /// Since when no cache has a record of the group; none if that is not known.
    pub(super) empty: Option<Instant>,
    /// The time from a try that finds children to the next one.
    pub(super) retry: Duration,
}

impl DroppedGroup {
    /// Creates the entry of a group that the caches may have records of.
    pub(super) fn new(group: Memcg, evicts: bool) -> Self {
        Self { group, evicts, is_ending: false, empty: None, retry: RETRY }
    }
}

impl HousekeeperState {
    /// Returns the cache with the least id above this one. O(log caches).
    pub(super) fn next_cache(&self, after: MaintenanceId) -> Option<(MaintenanceId, &Arc<dyn Maintenance>)> {
        self.caches.from(after.0 + 1).next().map(|(id, maintenance)| (MaintenanceId(id), maintenance))
    }

    /// Returns when a kind of work runs next.
    pub(super) fn schedule(&mut self, work: Work) -> &mut Schedule {
        &mut self.schedules[work as usize]
    }

    /// Makes all kinds of work run when they have rested.
    pub(super) fn notify_all(&mut self) {
        for schedule in &mut self.schedules {
            schedule.notify();
        }
    }

    /// Returns the time of the next work; none: when notified.
    pub(super) fn next_work(&self) -> Option<Instant> {
        match self.leftovers.is_empty() {
            true => self.schedules.iter().filter_map(Schedule::next).min(),
            false => Some(Instant::now()),
        }
    }

    /// Returns whether a thread visits a cache, or reads its figures.
    pub(super) fn is_in_use(&self, id: MaintenanceId) -> bool {
        #[cfg(feature = "metrics")]
        if self.being_read.contains(&id) {
            return true;
        }
        self.in_callback.contains(&id)
    }
}

impl HousekeeperShared {
    /// Creates the state without caches, threads and groups.
    pub(super) fn new(nodes: usize, retired: Arc<Retired>) -> Self {
        Self {
            state: Mutex::default(),
            notified: Condvar::new(),
            callback_done: Condvar::new(),
            callback_begun: Condvar::new(),
            nodes,
            retired,
            ghosts: Ghosts::default(),
            mean_cost: MeanCost::default(),
        }
    }

    /// Notifies the lease holder of something to do, which it does when it has rested.
    pub(super) fn notify(&self, work: Work) {
        self.notify_locked(self.state.lock(), work);
    }

    /// As [`notify`](Self::notify), with the lock held.
    pub(super) fn notify_locked(&self, mut state: MutexGuard<'_, HousekeeperState>, work: Work) {
        if state.schedule(work).notify() {
            self.notified.notify_one();
        }
    }

    /// Notes the begin of a visit: user code may run from now on.
    pub(super) fn before_callback(&self, state: &mut HousekeeperState) {
        state.callback_since = Some(Instant::now());
        if state.standby_sleeps {
            self.callback_begun.notify_one();
        }
    }

    /// Notes the end of a visit. If another thread has taken the lease over, notifies that thread,
    /// which has left the visited cache out.
    pub(super) fn after_callback(&self, state: &mut HousekeeperState, lease: Lease) -> Result<(), LeaseLost> {
        if state.lease != lease {
            state.notify_all();
            self.notified.notify_one();
            return Err(LeaseLost);
        }
        state.callback_since = None;
        Ok(())
    }
}

impl OfflineHook for HousekeeperShared {
    fn offline(&self, dying: &Memcg, parent: &Memcg) {
        let mut state = self.state.lock();
        // With the lock: `forget_group` neither waits nor runs user code.
        state.caches.from(0).for_each(|(_, maintenance)| maintenance.forget_group(dying));
        // The parent may be waiting for the end of its children.
        if let Some(waiting) = state.dropped.iter_mut().find(|dropped| dropped.group == *parent) {
            waiting.retry = RETRY;
            self.notify_locked(state, Work::EndGroups);
        }
    }
}
