//! The state that the housekeeper's threads share.
//!
//! One lock for all of it, held for a few instructions and never while user code runs.
//!
//! A change must ensure that the lock is never held while user code runs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use lowwater_lru_core::{Memcg, OfflineHook};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::lease::{Lease, LeaseLost};
use crate::runtime::ghosts::Ghosts;
use crate::runtime::maintenance::{Maintenance, MaintenanceId};
use crate::runtime::mean_cost::MeanCost;
use crate::runtime::retired::Retired;

/// The state under its lock, and the condition variables.
pub(super) struct HousekeeperShared {
    pub(super) state: Mutex<HousekeeperState>,
    /// There is something to do.
    pub(super) notified: Condvar,
    /// A thread has left a cache.
    pub(super) callback_done: Condvar,
    /// A thread has entered a cache, while the standby was asleep.
    pub(super) callback_begun: Condvar,
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
    /// When the lease holder entered a user callback; none outside of callbacks.
    pub(super) callback_since: Option<Instant>,
    /// There is a standby thread, and it sleeps until a callback begins.
    pub(super) has_standby: bool,
    pub(super) standby_sleeps: bool,
    /// In the order of their numbers.
    pub(super) caches: Vec<(MaintenanceId, Arc<dyn Maintenance>)>,
    pub(super) last_id: u64,
    /// The caches that threads are in; more than one only where user code has blocked a thread.
    pub(super) in_callback: Vec<MaintenanceId>,
    /// The caches whose figures are being read, each as often as threads read them.
    #[cfg(feature = "metrics")]
    pub(super) being_read: Vec<MaintenanceId>,
    /// Groups to be ended. Only the lease holder removes some, or changes their order: the last
    /// tried is last.
    pub(super) dropped: VecDeque<DroppedGroup>,
    pub(super) is_notified: bool,
    pub(super) stop: bool,
}

/// A group to be ended.
#[derive(Clone)]
pub(super) struct DroppedGroup {
    pub(super) group: Memcg,
    /// Its records are evicted first. Otherwise they become the parent's.
    pub(super) evicts: bool,
    /// Since when no cache has a record of the group.
    pub(super) empty: Option<Instant>,
}

impl HousekeeperState {
    /// Returns whether a thread works on a cache, or reads its figures.
    pub(super) fn is_in_use(&self, id: MaintenanceId) -> bool {
        #[cfg(feature = "metrics")]
        if self.being_read.contains(&id) {
            return true;
        }
        self.in_callback.contains(&id)
    }
}

impl HousekeeperShared {
    /// Notifies the threads of something to do.
    pub(super) fn notify(&self) {
        self.notify_locked(self.state.lock());
    }

    /// As [`notify`](Self::notify), with the lock held.
    pub(super) fn notify_locked(&self, mut state: MutexGuard<'_, HousekeeperState>) {
        state.is_notified = true;
        self.notified.notify_one();
    }

    /// Notes that user code may run from now on.
    pub(super) fn before_callback(&self, state: &mut HousekeeperState) {
        state.callback_since = Some(Instant::now());
        if state.standby_sleeps {
            self.callback_begun.notify_one();
        }
    }

    /// Notes that user code has returned. If another thread has taken the lease over, notifies that
    /// thread, which has left this cache out.
    pub(super) fn after_callback(&self, state: &mut HousekeeperState, lease: Lease) -> Result<(), LeaseLost> {
        if state.lease != lease {
            state.is_notified = true;
            self.notified.notify_one();
            return Err(LeaseLost);
        }
        state.callback_since = None;
        Ok(())
    }
}

impl OfflineHook for HousekeeperShared {
    fn offline(&self, dying: &Memcg, _parent: &Memcg) {
        self.state.lock().caches.iter().for_each(|(_, maintenance)| maintenance.forget_group(dying));
    }
}
