//! The reaper: a background sweep that removes expired records and the records of dropped groups.
//!
//! A record has no space for the links of a timer wheel, and a wheel outside of the records would
//! also hold timers of records that were replaced long ago. So the sweep visits all records, a part
//! of the index at a time, on the runtime's housekeeper thread. A sweep begins when the earliest
//! known deadline has passed: the earliest that the last sweep has seen, or that was registered
//! since. Without deadlines there is no sweep.
//!
//! # Delay
//!
//! A sweep begins [`PERIOD`] after the start of the last one, at the earliest. It rests between
//! parts, so that it takes up to 20 times as long as visiting all records without rest (with many
//! expired records 4 times). So an expired record is removed within one period plus two sweeps;
//! README.md and docs/GUIDE.md state it in these numbers. Beside other caches a sweep takes longer:
//! all share that processor time.
//!
//! # The floor of the clock
//!
//! A sweep that ends raises the clock's floor (`deadline.rs`) to the time when it began, or to the
//! earliest deadline registered since. The sweep announces the time when it begins. So a thread
//! that was held up between storing a deadline and registering it sees that the stored count may be
//! too far from the new floor, and stores the deadline in seconds (`Clock::lasting`). If the floor
//! lags by `LAG` (`deadline.rs`) and there is a deadline, a sweep begins although no deadline has
//! passed.
//!
//! A change must ensure that the floor rises only to a time before which no record in the index has
//! a deadline.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lowwater_lru_core::{ByteSize, Memcg, NodeId};
use lowwater_rcu::pin;
use lowwater_shrinker::CallbackScope;
use lowwater_store::index::Cursor;
use parking_lot::Mutex;

use super::deadline::{Deadline, Expires, Floor, Now};
use super::sweep::Sweep;
use crate::cache::core::Core;
use crate::cache::policy::queue::Queue;
use crate::cache::record::Record;
use crate::cache::removal::RemovalCause;
use crate::cache::shrink::{Evicted, EvictionSource};
use crate::runtime::{FollowsClock, Maintenance, NextRun};

/// Minimum time between the starts of two sweeps.
const PERIOD: Duration = Duration::from_millis(250);
/// Records of a group that ends that are taken off a list at once, under the list's lock.
const BATCH: u64 = 64;
/// The sweep rests less if at least one in this many visited records has expired.
const MANY_ONE_IN: usize = 4;
/// Rest as a multiple of the time worked, after a part with many expired records and after one with
/// few.
const REST_MANY: u32 = 3;
const REST_FEW: u32 = 19;

/// A thread that finishes the removals of a part of the sweep; [`Sweep::finishing`] counts it.
struct Finishing<'a>(&'a Mutex<Sweep>);

impl Drop for Finishing<'_> {
    fn drop(&mut self) {
        self.0.lock().finishing -= 1;
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Core<K, V, S> {
    /// Drops the removed records that no reader holds back, and returns their memory to the system.
    /// Returns the bytes that readers hold back; a later [`reap_part`](Self::reap_part) tries
    /// again.
    pub(crate) fn collect(&self) -> ByteSize {
        let retained = self.index.collect();
        if retained > ByteSize::ZERO {
            // Relaxed: stored by the housekeeper, or before its notification, under its lock.
            self.sweeps.has_retained.store(true, Ordering::Relaxed);
        }
        retained
    }

    /// Has the housekeeper [`collect`](Self::collect) removed records that readers hold back, at
    /// its next run but one after the last call, mostly [`PERIOD`] later: a cache that shrinks
    /// all the time collects by itself.
    pub(crate) fn collect_later(&self) {
        // Relaxed, both: the notifier's lock orders the stores before the housekeeper's loads. Not
        // notified twice: the housekeeper is notified already, or is about to look again.
        self.sweeps.is_recent.store(true, Ordering::Relaxed);
        if !self.sweeps.has_retained.swap(true, Ordering::Relaxed) {
            self.notifier.notify_reaper();
        }
    }

    /// Registers the deadline of a record that is in the index under `hash`, and notifies the
    /// housekeeper if it is the earliest.
    #[inline]
    pub(crate) fn register_deadline(&self, expires: Expires, hash: u64) {
        if !expires.at.is_never() {
            self.register_some(expires.at, expires.floor, hash);
        }
    }

    #[cold]
    fn register_some(&self, at: Deadline, floor: Floor, hash: u64) {
        let expires = Expires { at, live_end: Deadline::NEVER, floor };
        if self.sweeps.lower(expires.at, self.clock.floor()) {
            self.notifier.notify_reaper();
        }
        if let Some(lasting) = self.clock.lasting(expires) {
            // The record is found by its hash and deadline, without its key. So another record of
            // the same hash bits and deadline may be changed in its place, and expire early.
            let is_it = |there: &Record<K, V>| there.deadline() == expires.at;
            self.index.with(hash, &pin(), is_it, |there| there.set_deadline(lasting));
            if self.sweeps.lower(lasting, self.clock.floor()) {
                self.notifier.notify_reaper();
            }
        }
    }
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher,
{
    /// Evicts the records of a group by visiting the whole index, for records that a lookup by hash
    /// does not find, as their keys hash differently now. Returns the number of evicted records.
    fn evict_unfindable(&self, group: &Memcg) -> u64 {
        let (mut freed, mut at) = (0, Cursor::new());
        while !at.is_done() {
            let mut gone = Vec::new();
            let (guard, here) = (pin(), at.clone());
            let mut there = Vec::new();
            self.index.visit(&mut at, &guard, |record| there.push(record));
            for record in there.into_iter().filter(|record| self.queues.is_owner(group, record, &guard)) {
                let taken = self.unlink_at(&here, &guard, record, |_| true, RemovalCause::Explicit);
                gone.extend(taken.map(|(_, removal)| removal));
            }
            drop(guard);
            freed += gone.len() as u64;
        }
        freed
    }
}

impl<K, V, S> Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync,
{
    /// If readers held back removed records, who may have left by now: tries again to return the
    /// records' memory. Returns when to look again.
    fn retry_retained(&self) -> Option<NextRun> {
        // Relaxed: as in `collect_later`.
        if self.sweeps.is_recent.swap(false, Ordering::Relaxed) {
            return Some(NextRun::In(PERIOD));
        }
        // Relaxed: as in `collect`.
        self.sweeps.has_retained.swap(false, Ordering::Relaxed).then(|| {
            // While readers hold back records, a compaction would begin again and again: its own
            // copies leave such records, which keep the cache sparse.
            if self.release_removed() == ByteSize::ZERO {
                self.request_compaction();
            }
            NextRun::In(PERIOD)
        })
    }

    /// Visits the next part of the index, removes the expired records in it, and returns when to
    /// run next: after a rest, at the next deadline, or when notified. `is_forced`: a sweep begins
    /// even if none is due.
    fn reap_part(&self, is_forced: bool) -> NextRun {
        let Some(shared) = self.sweeps.sweep() else {
            return self.retry_retained().unwrap_or(NextRun::WhenNotified);
        };
        // Declared before the lock, and so dropped after its release, also if the key's own code
        // panics: the drop of the guard may run destructors of retired values, which may advance
        // the clock. The removals are finished last.
        let mut gone = Vec::new();
        let guard;
        let mut sweep = shared.lock();
        let now = self.clock.now();
        if sweep.at.is_none() {
            let next = Deadline::earlier(sweep.earliest_seen, self.sweeps.earliest_registered(), now.floor);
            let rest = sweep.began.map_or(Duration::ZERO, |began| PERIOD.saturating_sub(began.elapsed()));
            let is_due = next.is_past(now) || !next.is_never() && now.lags();
            if !is_forced && (!is_due || !rest.is_zero()) {
                drop(sweep);
                let retry = self.retry_retained().unwrap_or(NextRun::WhenNotified);
                let until = if is_due { Some(Duration::ZERO) } else { next.until(now) };
                // A manual clock may stand still meanwhile: `until` is no real time then.
                let rest = if self.clock.is_manual() { PERIOD } else { rest };
                return until.map_or(retry, |until| NextRun::In(rest.max(until)).min(retry));
            }
            self.clock.announce_floor(Floor::of(now));
            self.sweeps.earliest.reset();
            self.clock.begin_live_ends();
            let (at, began) = (Some(Cursor::new()), Some(Instant::now()));
            let Sweep { swept_to, finishing, .. } = *sweep;
            *sweep = Sweep { at, began, began_at: now.at, swept_to, finishing, ..Sweep::default() };
        }
        let Sweep { at: Some(at), earliest_seen, freed, .. } = &mut *sweep else { unreachable!("a sweep was begun") };
        guard = pin();
        let (mut expired, mut looked, here) = (Vec::new(), 0, at.clone());
        self.index.visit(at, &guard, |record| {
            looked += 1;
            match record.deadline() {
                at if at.is_past(now) => expired.push(record),
                at => {
                    *earliest_seen = Deadline::earlier(*earliest_seen, at, now.floor);
                    if at.is_idle() {
                        self.clock.keep_live_end(record);
                    }
                }
            }
        });
        let many = !expired.is_empty() && expired.len() >= looked / MANY_ONE_IN;
        for record in expired {
            let is_gone = |there: &Record<K, V>| self.is_gone(there);
            let taken = self.unlink_at(&here, &guard, record, is_gone, self.cause_of_expired(record));
            if taken.is_none() && record.is_indexed() {
                // A use that began before the deadline has extended it meanwhile.
                *earliest_seen = Deadline::earlier(*earliest_seen, record.deadline(), now.floor);
            }
            if taken.is_none() && record.was_moved() {
                // Compaction has put a copy in its place: this part is visited once more.
                *at = here.clone();
            }
            *freed |= taken.is_some();
            gone.extend(taken.and_then(|(_, removal)| removal));
        }
        let (is_done, freed) = (at.is_done(), *freed);
        if is_done {
            sweep.at = None;
            sweep.swept_to = Some(sweep.began_at);
            self.clock.free_live_ends();
            // A record that the sweep has not visited, because it was inserted, touched or copied
            // meanwhile, has registered its deadline.
            let began = Floor::of(Now { at: sweep.began_at, floor: now.floor });
            self.clock.raise_floor(began.min(self.sweeps.earliest_registered().floor(now.floor)));
        }
        sweep.finishing += 1;
        let finishing = Finishing(shared);
        drop(sweep);
        // User code that is dropped here may advance the clock: it must not wait for this thread.
        let scope = CallbackScope::enter();
        drop(guard);
        drop(gone);
        drop(scope);
        drop(finishing);
        if is_done && freed {
            self.return_memory();
        }
        NextRun::Now { rest: if many { REST_MANY } else { REST_FEW } }
    }
}

impl<K, V, S> FollowsClock for Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync,
{
    /// Completes a sweep that has begun after the clock was advanced, so that the floor follows
    /// whatever the step was.
    fn catch_up(&self, waits: bool) {
        let sweep = self.sweeps.sweep.get_or_init(Box::default);
        let to = self.clock.now().at;
        while sweep.lock().swept_to.is_none_or(|swept_to| swept_to < to) {
            self.reap_part(true);
        }
        while waits && sweep.lock().finishing > 0 {
            std::thread::yield_now();
        }
        // Relaxed: as in `collect`.
        if self.sweeps.has_retained.load(Ordering::Relaxed) {
            self.notifier.notify_reaper();
        }
    }
}

impl<K, V, S> Maintenance for Core<K, V, S>
where
    K: Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync,
{
    fn remove_cleared(&self) -> NextRun {
        self.remove_cleared_part()
    }

    fn reap_expired(&self) -> NextRun {
        self.reap_part(false)
    }

    fn forget_group(&self, dying: &Memcg) {
        self.queues.forget_tenant(dying);
    }

    fn compact(&self) -> NextRun {
        Core::compact(self)
    }

    fn evict_group(&self, group: &Memcg, node: NodeId) -> u64 {
        let mut gone = Evicted::default();
        // Zero is returned only after all records were scanned: batches whose records are all put
        // back are followed by others.
        let mut batches = self.queues.count(group, node) / BATCH + 1;
        while gone.freed == 0 && batches > 0 {
            batches -= 1;
            for queue in [Queue::Probation, Queue::Main] {
                let old = self.queues.take(queue, group, node, BATCH);
                // No ghosts are recorded for a dropped group, so the number of records does not
                // matter.
                let source = EvictionSource { memcg: group, queue, entries: 0, ghost_recorder: None };
                self.evict_batch(old, source, |_| RemovalCause::Explicit, &mut gone);
            }
        }
        group.uncharge(gone.bytes);
        if gone.freed == 0 && self.has_any(group, node) {
            gone.freed = self.evict_unfindable(group);
        }
        if gone.freed > 0 {
            // Relaxed: stored and loaded by the housekeeper, whose lock orders its threads.
            self.has_emptied_group.store(true, Ordering::Relaxed);
        }
        gone.freed
    }

    fn has_any(&self, group: &Memcg, node: NodeId) -> bool {
        self.queues.count(group, node) > 0
    }

    fn release_memory(&self) {
        // Relaxed: as in `evict_group`.
        if self.has_emptied_group.swap(false, Ordering::Relaxed) {
            self.return_memory();
        }
    }

    #[cfg(feature = "metrics")]
    fn figures(&self) -> crate::runtime::CacheFigures {
        Core::figures(self)
    }

    #[cfg(feature = "metrics")]
    fn count_of(&self, group: &Memcg, node: NodeId) -> u64 {
        self.queues.count(group, node)
    }
}
