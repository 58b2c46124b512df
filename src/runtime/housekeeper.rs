//! The housekeeper: a background thread that maintains all caches of a runtime. It reaps expired
//! records, empties dropped groups, compacts sparse caches, and drops the records of large caches
//! that have ended. Its hook in the tree tells the
//! caches about groups that end, on the thread that ends the group.
//!
//! The thread sleeps while there is nothing to do. It works for half a millisecond at a time in
//! each cache, for 50 ms at a time in all of them, and rests in between. Each kind of work has its
//! own rest, which only a dropped cache interrupts, for itself alone. The rest is a multiple of the
//! processor time used in all caches:
//!
//! | work | rest | processor time |
//! |---|---|---|
//! | empties groups; removes cleared records; compacts | 1 time | a half |
//! | sweeps for expired records, of which it finds many | 3 times | a quarter |
//! | sweeps for expired records, of which it finds few or none | 19 times | a twentieth |
//!
//! A removed record's listener and `Drop` are the user's code; where they block, only that cache's
//! maintenance is delayed. One thread has the [lease](lease::Lease) and works; a standby thread
//! sleeps. When the lease holder has been in one cache for a quarter of a second, the standby takes
//! the lease over, works for all caches but that one, and spawns the next standby. A thread that
//! comes back and has lost the lease becomes the standby, or ends. So there are two threads, and
//! one more for each cache whose code blocks.
//!
//! # Ends
//!
//! [`Housekeeper::remove`] and the housekeeper's own drop wait for the threads, except inside a
//! callback ([`CallbackScope`]). A call inside a callback may run on one of the threads, or on a
//! thread for which one of them waits in user code, so that it would wait for ever. The cache is
//! closed all the same, and the thread that works on it drops the last handle. The threads
//! themselves are inside a scope for as long as they run. No panic ends them: neither one of a
//! cache's callbacks or of the values that these have captured, nor one of the tree's hooks.
//!
//! A change must ensure that no lock of the housekeeper is held while a cache runs user code.

mod dropped_groups;
mod lease;
mod leftovers;
#[cfg(feature = "metrics")]
mod read;
mod schedule;
mod shared;
mod threads;
mod visit;
mod work_time;

use std::sync::Arc;
use std::thread;

use lowwater_lru_core::{ByteSize, Memcg, OfflineHook};
use lowwater_shrinker::CallbackScope;

use super::ghosts::Ghosts;
use super::maintenance::{Maintenance, MaintenanceId};
use super::mean_cost::MeanCost;
use super::retired::Retired;
use lease::Lease;
use schedule::Work;
use shared::{DroppedGroup, HousekeeperShared};
use threads::spawn;
#[cfg(test)]
pub(crate) use work_time::WorkTime;

/// The threads that maintain a runtime's caches. Its drop stops them, and joins them unless it is
/// inside a callback.
#[doc(alias = "maintenance")]
pub(crate) struct Housekeeper {
    shared: Arc<HousekeeperShared>,
}

/// A cache's handle on its housekeeper, and on the state that the caches of a runtime share.
#[derive(Clone)]
pub(crate) struct Notifier(Arc<HousekeeperShared>);

impl Housekeeper {
    /// Starts the two threads; `nodes` is the number of NUMA nodes.
    pub(crate) fn start(nodes: usize, retired: Arc<Retired>) -> std::io::Result<Self> {
        let housekeeper = Self { shared: Arc::new(HousekeeperShared::new(nodes, retired)) };
        // Locked until both threads' join handles are stored; the threads' first step takes the
        // lock.
        let mut state = housekeeper.shared.state.lock();
        let shared = Arc::clone(&housekeeper.shared);
        let first = spawn("lowwater/maint", move || shared.run(Some(Lease::default())))?;
        state.threads.push(first);
        let has_standby = housekeeper.shared.spawn_standby(&mut state);
        // Without the lock, which the drop of the housekeeper takes if there is no standby.
        drop(state);
        has_standby.map(|()| housekeeper)
    }

    /// Begins the maintenance of a cache, until [`remove`](Self::remove).
    pub(crate) fn add(&self, id: MaintenanceId, maintenance: Arc<dyn Maintenance>) {
        self.shared.state.lock().caches.insert(id.0, maintenance);
    }

    /// Ends the maintenance of a cache. Waits until no thread works on the cache, unless the caller
    /// is inside a callback: then a thread that works on it finishes this visit, and may drop the
    /// last handle.
    pub(crate) fn remove(&self, id: MaintenanceId) {
        let mut state = self.shared.state.lock();
        let removed = state.caches.remove(id.0);
        while state.is_in_use(id) && !CallbackScope::is_inside() {
            self.shared.callback_done.wait(&mut state);
        }
        drop(state);
        // Without the lock: it may be the last handle, whose drop is the user's code.
        drop(removed);
    }

    /// Returns the hook that makes the caches forget groups that end.
    pub(crate) fn hook(&self) -> Arc<dyn OfflineHook> {
        Arc::clone(&self.shared) as _
    }

    /// Returns a notifier, for a cache.
    pub(crate) fn notifier(&self) -> Notifier {
        Notifier(Arc::clone(&self.shared))
    }

    /// Empties and ends a group in the background. Returns false if the group is being dropped
    /// already.
    pub(crate) fn drop_group(&self, group: &Memcg) -> bool {
        self.end_in_background(group, true)
    }

    /// Ends a group in the background, after the last of its children. Its records become the
    /// parent's, unless the group is being dropped.
    pub(crate) fn end_after_children(&self, group: &Memcg) {
        let _is_new = self.end_in_background(group, false);
    }

    /// Queues a group to be ended; if `evicts`, its records are evicted first. Returns false if the
    /// group is queued already and the call changes nothing, and if it is too late: the group has
    /// ended, or is going offline.
    fn end_in_background(&self, group: &Memcg, evicts: bool) -> bool {
        let mut state = self.shared.state.lock();
        // The housekeeper has ended a group before it removes the group from the queue.
        let mut is_in_time = group.is_online();
        // Queued also if it is too late: the end of the queue's entry resets the `max` of 0 that
        // `Runtime::drop_group` has set.
        match state.dropped.iter_mut().find(|dropped| dropped.group == *group) {
            Some(there) if there.evicts || !evicts => return false,
            Some(there) => {
                there.evicts = true;
                is_in_time &= !there.is_ending;
            }
            None => state.dropped.push_back(DroppedGroup::new(group.clone(), evicts)),
        }
        self.shared.notify_locked(state, Work::EndGroups);
        is_in_time
    }

    /// Returns whether the group itself is to be ended in the background.
    pub(crate) fn is_queued(&self, group: &Memcg) -> bool {
        self.shared.state.lock().dropped.iter().any(|dropped| *group == dropped.group)
    }

    /// Returns whether the group itself is being emptied in order to end.
    pub(crate) fn is_dropping_itself(&self, group: &Memcg) -> bool {
        let state = self.shared.state.lock();
        state.dropped.iter().any(|dropped| dropped.evicts && *group == dropped.group)
    }

    /// Returns whether the group, or a group above it, is being emptied in order to end.
    pub(crate) fn is_dropping(&self, group: &Memcg) -> bool {
        let state = self.shared.state.lock();
        state.dropped.iter().any(|dropped| dropped.evicts && group.is_descendant_of(&dropped.group))
    }

    /// Returns whether the group itself is being emptied in order to end, or has ended: then it
    /// must get no records any more. Takes no lock for a group with a `max`; so a group that was
    /// made below one that is being emptied still takes records.
    pub(crate) fn takes_no_records(&self, group: &Memcg) -> bool {
        // `Runtime::drop_group` has set a `max` of 0.
        let is_dropping = group.max() == ByteSize::ZERO && self.is_dropping(group);
        // A drop ends with the group offline, so tested last: where the `max` was raised after the
        // group's end, the end is seen.
        is_dropping || !group.is_online()
    }
}

impl Drop for Housekeeper {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.stop = true;
        // Complete: a thread spawns a standby only under the lock, after it has found `stop` unset.
        let threads = std::mem::take(&mut state.threads);
        // The standby waits on `callback_begun`, the lease holder on `notified`; a thread that is
        // blocked in user code checks `stop` afterwards.
        self.shared.callback_begun.notify_one();
        self.shared.notified.notify_one();
        drop(state);
        // The caller may be one of these threads, or inside a callback for which one of them waits:
        // then the threads end by themselves.
        let panicked = match CallbackScope::is_inside() {
            true => 0,
            false => threads.into_iter().filter_map(|thread| thread.join().err()).count(),
        };
        while self.drop_leftover() {}
        if panicked > 0 && !thread::panicking() {
            panic!("the housekeeper thread panicked outside of any cache's code: this is a bug in lowwater");
        }
    }
}

impl Housekeeper {
    /// Returns the keys that the runtime's caches have evicted.
    pub(crate) fn ghosts(&self) -> &Ghosts {
        &self.shared.ghosts
    }
}

impl Notifier {
    /// Notifies the housekeeper of an earlier deadline, or of memory that readers hold back.
    pub(crate) fn notify_reaper(&self) {
        self.0.notify(Work::Reap);
    }

    /// Notifies the housekeeper of a clear.
    pub(crate) fn notify_clear(&self) {
        self.0.notify(Work::Clear);
    }

    /// Notifies the housekeeper of a request for a compaction.
    pub(crate) fn notify_compaction(&self) {
        self.0.notify(Work::Compact);
    }

    /// Hands a leftover over to the housekeeper, which drops it. The caller's runtime must exist:
    /// its drop is the last that drops leftovers.
    pub(crate) fn drop_later(&self, leftover: Box<dyn Send>) {
        let mut state = self.0.state.lock();
        state.leftovers.push_back(leftover);
        self.0.notified.notify_one();
    }

    /// Returns the keys that the runtime's caches have evicted.
    pub(crate) fn ghosts(&self) -> &Ghosts {
        &self.0.ghosts
    }

    /// Returns the mean cost of the values of the runtime's caches.
    pub(crate) fn mean_cost(&self) -> &MeanCost {
        &self.0.mean_cost
    }

    /// Returns the retired records of the runtime's caches. Reached through the notifier, so that
    /// an empty cache is small.
    pub(crate) fn retired(&self) -> &Retired {
        &self.0.retired
    }
}

impl std::fmt::Debug for Housekeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("Housekeeper")
            .field("caches", &state.caches.len())
            .field("dropped", &state.dropped.len())
            .finish()
    }
}

/// Returns the retired records of a runtime that is dropped at once, for tests that need any.
#[cfg(test)]
fn any_retired() -> Arc<Retired> {
    Arc::clone(&crate::Runtime::builder().unlimited().build().unwrap().housekeeper().shared.retired)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::maintenance::no_records::NoRecords;
    use crate::runtime::maintenance::NextRun;
    use crate::Runtime;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    fn a_busy_dropped_group_delays_no_other_group() {
        let runtime = Runtime::builder().unlimited().build().unwrap();
        let [endless, a, b] = ["endless", "a", "b"].map(|name| runtime.group(name).unwrap());
        let is_endless = endless.clone();
        let cache = NoRecords::evicting(move |group| u64::from(*group == is_endless));
        let id = MaintenanceId::new();
        runtime.housekeeper().add(id, Arc::new(cache));
        for group in [&endless, &a, &b] {
            runtime.drop_group(group).unwrap();
        }
        let start = Instant::now();
        while a.is_online() || b.is_online() {
            assert!(start.elapsed() < Duration::from_secs(60), "they wait for one that is not emptied");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(endless.is_online());
        runtime.housekeeper().remove(id);
    }

    #[test]
    fn the_sweeps_of_many_caches_do_not_hold_up_the_end_of_a_group() {
        let runtime = Runtime::builder().unlimited().build().unwrap();
        let group = runtime.group("group").unwrap();
        let ids: Vec<_> = (0..100).map(|_| MaintenanceId::new()).collect();
        let [calls_of_first, calls_meanwhile] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        for id in &ids {
            let calls = if *id == ids[0] { Arc::clone(&calls_of_first) } else { Arc::default() };
            let (dropped, meanwhile) = (group.clone(), Arc::clone(&calls_meanwhile));
            // Relaxed, all accesses: only the numbers matter.
            let cache = NoRecords::reaping(move || {
                std::thread::sleep(Duration::from_millis(1));
                // From its drop until it has ended.
                if dropped.max() == ByteSize::ZERO {
                    meanwhile.fetch_add(1, Ordering::Relaxed);
                }
                let is_done = calls.fetch_add(1, Ordering::Relaxed) % 11 == 10;
                if is_done {
                    NextRun::In(Duration::from_millis(1))
                } else {
                    NextRun::Now { rest: 0 }
                }
            });
            runtime.housekeeper().add(*id, Arc::new(cache));
        }
        runtime.housekeeper().notifier().notify_reaper();
        let start = Instant::now();
        // In the second sweep of each.
        while calls_of_first.load(Ordering::Relaxed) < 13 {
            assert!(start.elapsed() < Duration::from_secs(60), "no second sweep");
            std::thread::sleep(Duration::from_millis(1));
        }
        runtime.drop_group(&group).unwrap();
        let start = Instant::now();
        while group.is_online() {
            assert!(start.elapsed() < Duration::from_secs(60), "the group does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Counted, not timed: this thread may wait for a processor. A sweep of all caches is 1,100
        // calls.
        let calls = calls_meanwhile.load(Ordering::Relaxed);
        assert!(calls < 1_100 / 2, "it waits for the sweeps of all caches, {calls} calls");
        ids.iter().for_each(|id| runtime.housekeeper().remove(*id));
    }

    /// Drops the group that ends, as a call that found it online before.
    struct DropsEndingGroup(Runtime);

    impl OfflineHook for DropsEndingGroup {
        fn offline(&self, dying: &Memcg, _parent: &Memcg) {
            dying.set_max(ByteSize::ZERO);
            assert!(!self.0.housekeeper().drop_group(dying), "its records are the parent's already");
        }
    }

    #[test]
    fn a_group_that_is_dropped_while_it_ends_may_be_charged() {
        let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
        let group = runtime.group("group").unwrap();
        let hook = runtime.tree().add_hook(Arc::new(DropsEndingGroup(runtime.clone())));
        runtime.housekeeper().end_after_children(&group);
        let start = Instant::now();
        while runtime.housekeeper().is_queued(&group) || group.max() == ByteSize::ZERO {
            assert!(start.elapsed() < Duration::from_secs(60), "the max stays {}", group.max());
            std::thread::sleep(Duration::from_millis(1));
        }
        runtime.tree().remove_hook(hook);
        assert_eq!((group.is_online(), group.max()), (false, ByteSize::MAX));
    }

    #[test]
    fn a_dropped_housekeeper_leaves_no_thread() {
        let housekeeper = Housekeeper::start(1, any_retired()).unwrap();
        let shared = Arc::clone(&housekeeper.shared);
        // The test, the housekeeper, the lease holder and the standby.
        assert_eq!(Arc::strong_count(&shared), 4);
        drop(housekeeper);
        assert_eq!(Arc::strong_count(&shared), 1, "both threads were joined");
    }
}
