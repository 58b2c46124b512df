//! The queue of a reclaimer thread: charging threads queue groups, the reclaimer takes all queued
//! groups or sleeps.
//!
//! A group near its limit is charged by many threads, and each charge requests reclaim. So an
//! atomic word in front of the lock holds the request that was queued last; a thread with the same
//! request returns without taking the lock.
//!
//! # Orderings
//!
//! Because of this word, both sides store and then load, so each needs a full fence between its two
//! steps:
//!
//! ```text
//!     charge, then WakeQueue::request        WakeQueue::take, then Job::step
//!       usage += n                        queued = none
//!       fence(SeqCst)                     fence(SeqCst)
//!       queued == mine? done              usage above target? reclaim
//! ```
//!
//! - If the reclaimer's fence comes first, the charge reads `none`, and queues.
//! - If the charge's fence comes first, the reclaimer reads the new usage, and reclaims.
//!
//! Checked by `reclaimer/loom.rs`: `no_wake_up_is_lost`, and its mutants without a fence, which
//! must fail.
//!
//! A change must keep both fences, and must ensure that equal requests have equal targets, or that
//! their jobs read the target again: the target of a merged request is not stored.

use alloc::vec::Vec;

use hashbrown::HashMap;
use lowwater_base::fallible::try_push;
use lowwater_base::mutated;
use lowwater_base::sync::atomic::{fence, AtomicU64, Ordering};
use lowwater_base::sync::{Condvar, Mutex, MutexGuard};
use lowwater_lru_core::{ByteSize, Memcg};

use super::reason::ReclaimReason;
use crate::hash::IdHasher;

#[cfg(all(test, lowwater_loom))]
#[path = "loom.rs"]
mod loom;

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests;

/// The value of `WakeQueue::queued` while no later request can be merged without the lock.
const NONE: u64 = 0;

/// How long a request without urgency waits, so that others can join it.
#[cfg(all(feature = "std", not(lowwater_loom)))]
const SOON: core::time::Duration = core::time::Duration::from_millis(20);

/// One node's queue.
#[derive(Default)]
pub(super) struct WakeQueue {
    state: Mutex<WakeState>,
    changed: Condvar,
    /// The [`key`] of the request that was queued last and has not been taken.
    queued: AtomicU64,
}

#[derive(Default)]
struct WakeState {
    requests: Vec<WakeRequest>,
    /// Groups with debts that may wait for `SOON`. Always empty without `std`.
    soon: Vec<Memcg>,
    /// For each queued request and debt, its [`merge_key`] and its position in `requests` or
    /// `soon`: with many groups near their limits, no charge searches the queue.
    positions: HashMap<u64, usize, IdHasher>,
    /// True while the thread waits for requests and has not been notified. While the thread works
    /// or rests, no notification is needed: it checks the queue before it waits.
    waits: bool,
    stop: bool,
}

/// A group that should use less, or whose debts should be paid.
#[derive(Debug)]
pub(super) struct WakeRequest {
    pub(super) memcg: Memcg,
    pub(super) reason: ReclaimReason,
    /// The usage to come down to; [`ByteSize::MAX`] for debts.
    pub(super) target: ByteSize,
}

impl WakeQueue {
    /// Queues a request and wakes the thread. Costs a fence and a load if the same request is
    /// queued already. Without memory the request is dropped: a group that is still short of memory
    /// is requested again, but a manual request is lost.
    pub(super) fn request(&self, memcg: &Memcg, reason: ReclaimReason, target: ByteSize) {
        let key = key(memcg, reason);
        if !mutated!("wake_without_fence") {
            // SeqCst: between the caller's charge and this thread's load; pairs with the fence in
            // `drain`.
            fence(Ordering::SeqCst);
        }
        // Relaxed: ordered by the fence.
        if key != NONE && self.queued.load(Ordering::Relaxed) == key {
            return;
        }
        self.request_slow(memcg, reason, target, key);
    }

    #[cold]
    fn request_slow(&self, memcg: &Memcg, reason: ReclaimReason, target: ByteSize, key: u64) {
        let mut state = self.state.lock();
        if state.stop {
            return;
        }
        match (state.find(memcg, reason), reason) {
            // Two manual requests add up.
            (Some(old), ReclaimReason::Manual(bytes)) => {
                old.target = old.target.saturating_sub(bytes);
                if let ReclaimReason::Manual(sum) = &mut old.reason {
                    *sum = sum.saturating_add(bytes);
                }
            }
            (Some(old), _) => old.target = target,
            (None, _) => {
                if !state.push(WakeRequest { memcg: memcg.clone(), reason, target }) {
                    // Not recorded in `queued`: the next charge requests again.
                    return;
                }
            }
        }
        // Relaxed: written only under the lock; a thread that reads it without the lock has
        // executed a fence.
        self.queued.store(key, Ordering::Relaxed);
        self.rouse(state);
    }

    /// Wakes the thread if it waits and has not been woken yet; otherwise the caller makes no
    /// system call.
    fn rouse(&self, mut state: MutexGuard<'_, WakeState>) {
        let waits = core::mem::take(&mut state.waits);
        drop(state);
        if waits && !mutated!("rouse_nobody") {
            self.changed.notify_one();
        }
    }

    /// Waits for requests and returns them: none if there was no memory to return debts. `None`
    /// when it is time to stop. A fence precedes whatever the caller does with the requests.
    pub(super) fn take(&self) -> Option<Vec<WakeRequest>> {
        let mut state = self.state.lock();
        while !state.stop && state.requests.is_empty() {
            #[cfg(all(feature = "std", not(lowwater_loom)))]
            if !state.soon.is_empty() {
                self.wait_soon(&mut state, None);
                break;
            }
            state.waits = true;
            self.changed.wait(&mut state);
        }
        state.waits = false;
        if state.stop {
            return None;
        }
        Some(self.drain(&mut state))
    }

    fn drain(&self, state: &mut WakeState) -> Vec<WakeRequest> {
        let mut requests = core::mem::take(&mut state.requests);
        // Without memory the debts stay queued for the next call.
        if requests.try_reserve(state.soon.len()).is_ok() {
            let soon = core::mem::take(&mut state.soon).into_iter();
            requests.extend(soon.map(|memcg| WakeRequest {
                memcg,
                reason: ReclaimReason::Debt,
                target: ByteSize::MAX,
            }));
            state.positions = HashMap::default();
        } else {
            state.positions.retain(|key, _| key >> 32 == u64::from(SOON_KIND));
        }
        // Relaxed: ordered by the fence that follows.
        self.queued.store(NONE, Ordering::Relaxed);
        if !mutated!("take_without_fence") {
            // SeqCst: between the store and the taker's load of the usage; pairs with the fence in
            // `request`.
            fence(Ordering::SeqCst);
        }
        requests
    }

    /// Stops the queue: from here on [`take`](Self::take) returns `None`, and no request is kept.
    pub(super) fn stop(&self) {
        let mut state = self.state.lock();
        state.stop = true;
        // The queue may be kept for longer: by the tree's list of hooks, which the groups keep.
        let queued = (core::mem::take(&mut state.requests), core::mem::take(&mut state.soon));
        drop(state);
        drop(queued);
        self.changed.notify_all();
    }
}

#[cfg(all(feature = "std", not(lowwater_loom)))]
impl WakeQueue {
    /// Queues a debt without urgency, to be taken after [`SOON`] at the latest, unless the thread
    /// works or rests longer. A waiting thread is woken for the first such debt, to set its
    /// timeout.
    pub(super) fn request_soon(&self, memcg: &Memcg) {
        let mut state = self.state.lock();
        // Without memory: the next debt that is left is reported again.
        if !state.stop && state.push_soon(memcg) && state.soon.len() == 1 {
            self.rouse(state);
        }
    }

    /// Waits until requests without urgency are due, `until`, or a notification.
    fn wait_soon(&self, state: &mut MutexGuard<'_, WakeState>, until: Option<std::time::Instant>) {
        let soon = std::time::Instant::now() + SOON;
        state.waits = true;
        self.changed.wait_until(state, until.map_or(soon, |until| until.min(soon)));
    }

    /// Takes the requests that have been queued meanwhile, without waiting.
    pub(super) fn take_now(&self) -> Vec<WakeRequest> {
        self.drain(&mut self.state.lock())
    }

    /// As [`take`](Self::take), but returns no requests after `time` without any. A time whose end
    /// the clock cannot represent never ends.
    pub(super) fn take_within(&self, time: core::time::Duration) -> Option<Vec<WakeRequest>> {
        let Some(until) = std::time::Instant::now().checked_add(time) else { return self.take() };
        let mut state = self.state.lock();
        while !state.stop && state.requests.is_empty() {
            if !state.soon.is_empty() {
                self.wait_soon(&mut state, Some(until));
                break;
            }
            state.waits = true;
            if self.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.waits = false;
        if state.stop {
            return None;
        }
        Some(self.drain(&mut state))
    }

    /// Returns true if it is time to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.state.lock().stop
    }

    /// Sleeps for `time`, whatever is queued, unless it is time to stop.
    pub(super) fn rest(&self, time: core::time::Duration) {
        let until = std::time::Instant::now() + time;
        let mut state = self.state.lock();
        while !state.stop && !self.changed.wait_until(&mut state, until).timed_out() {}
    }
}

impl WakeState {
    /// Returns the queued request of this group and kind.
    fn find(&mut self, memcg: &Memcg, reason: ReclaimReason) -> Option<&mut WakeRequest> {
        let position = *self.positions.get(&merge_key(memcg, kind(reason)))?;
        self.requests.get_mut(position).filter(|old| old.memcg == *memcg)
    }

    /// Queues a request of a group and kind of which none is queued. Returns false if there is no
    /// memory.
    fn push(&mut self, request: WakeRequest) -> bool {
        let (key, position) = (merge_key(&request.memcg, kind(request.reason)), self.requests.len());
        self.positions.try_reserve(1).is_ok() && try_push(&mut self.requests, request).is_ok() && {
            self.positions.insert(key, position);
            true
        }
    }

    /// Queues a debt that may wait, if there is memory. Returns false if it is queued already, or
    /// there is none.
    #[cfg(all(feature = "std", not(lowwater_loom)))]
    fn push_soon(&mut self, memcg: &Memcg) -> bool {
        let (key, position) = (merge_key(memcg, SOON_KIND), self.soon.len());
        let is_queued =
            self.positions.get(&key).and_then(|at| self.soon.get(*at)).is_some_and(|queued| queued == memcg);
        !is_queued && self.positions.try_reserve(1).is_ok() && try_push(&mut self.soon, memcg.clone()).is_ok() && {
            self.positions.insert(key, position);
            true
        }
    }
}

/// Returns a number that is equal for requests that can be merged without the lock; [`NONE`] for
/// requests that add up or replace each other.
fn key(memcg: &Memcg, reason: ReclaimReason) -> u64 {
    match reason {
        ReclaimReason::Manual(_) | ReclaimReason::Pressure(_) => NONE,
        _ => merge_key(memcg, kind(reason)),
    }
}

/// Returns the number of a group and the kind of a request; not 0. The queue holds the group, so
/// its id is not used again meanwhile.
fn merge_key(memcg: &Memcg, kind: u8) -> u64 {
    u64::from(kind) << 32 | u64::from(memcg.id().get())
}

/// In place of a [`kind`], for a debt that may wait.
const SOON_KIND: u8 = 7;

/// Returns the kind of a reason, without its amount; not 0.
fn kind(reason: ReclaimReason) -> u8 {
    match reason {
        ReclaimReason::Watermark => 1,
        ReclaimReason::High => 2,
        ReclaimReason::Limit => 3,
        ReclaimReason::Manual(_) => 4,
        ReclaimReason::Pressure(_) => 5,
        ReclaimReason::Debt => 6,
    }
}
