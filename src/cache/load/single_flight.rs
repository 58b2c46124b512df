//! Single flight: one leader loads a key, the followers wait for the leader's value.
//!
//! The first caller for a missing key becomes the leader of a load; callers that request the key
//! meanwhile become followers. A load in flight is found by its key's hash, and holds its key while
//! the leader loads. A caller with another key of the same hash loads alone: it neither leads nor
//! follows. A follower thread sleeps, a follower task leaves its waker; both may follow the same
//! load.
//!
//! # Callers that do not wait
//!
//! A load that requests its own key, or a key whose load waits for this one, would wait for itself:
//! such a caller loads alone ([`wait_graph`](super::wait_graph)). A loaded value is published when
//! the leader inserts it in the cache. A listener, or any other code that runs meanwhile on the
//! leader's thread, also loads alone, for any key in flight: two such callers on two threads could
//! wait for each other.
//!
//! # Reloads
//!
//! A reload of a present entry ([`refresh`](super::refresh)) is a load that may begin late, on
//! another thread. No caller follows a reload that has not begun: a load of the same hash takes its
//! place.
//!
//! # Stopped loads
//!
//! A call that removes a key stops the load in flight of the key's hash, whether the key has a
//! record or not; so does an insert of a key without a live record, as its record may have left
//! again when the load ends. A call that replaces a record stops the record's reload. The value of
//! a stopped load goes to the followers that the load has, and is not inserted. No further caller
//! follows a stopped load: the next one takes its place. A caller that loads alone cannot be
//! stopped.
//!
//! # User code
//!
//! A key's `Eq` runs under the lock of a load. No other user code does: wakers are cloned, woken
//! and dropped without the lock, and a waker that panics does not keep other wakers from being
//! called. The code of a load runs inside a [`CallbackScope`]: a drop inside of the load does not
//! wait for threads that may wait for the load.
//!
//! A change must ensure that no caller waits for a load that waits for it, and that a leader that
//! panics or is dropped leaves the load to a follower.

#[cfg(feature = "async")]
use std::collections::BTreeMap;
#[cfg(feature = "async")]
use std::future::poll_fn;
use std::sync::atomic::{fence, AtomicBool, Ordering};
use std::sync::Arc;
#[cfg(feature = "async")]
use std::task::{Context, Poll, Waker};

use dashmap::mapref::multiple::RefMulti;
use dashmap::{DashMap, Entry as MapEntry};
use hashbrown::DefaultHashBuilder;
#[cfg(feature = "async")]
use lowwater_base::unwind::caught;
use once_cell::race::OnceBox;
use parking_lot::{Condvar, Mutex};

use super::publish_scope::PublishScope;
use super::retry_times::RetryTimes;
use super::wait_graph::{Cycle, LoadId, LoadScope, WaitEdge};

/// The loads in flight, by the hash of their keys. A null pointer before the first load.
#[doc(alias = "singleflight")]
pub(crate) struct InflightLoads<K, V>(OnceBox<Arc<LoadMap<K, V>>>);

struct LoadMap<K, V> {
    // Not the standard library's hasher, which is slow: the key is a hash already, and is hashed
    // twice for each load.
    by_hash: DashMap<u64, Arc<InflightLoad<K, V>>, DefaultHashBuilder>,
    /// The times from which keys may be reloaded again. Here, and not in the cache, so that a cache
    /// without loads stays small.
    retries: RetryTimes,
}

impl<K, V> Default for LoadMap<K, V> {
    fn default() -> Self {
        Self { by_hash: DashMap::default(), retries: RetryTimes::default() }
    }
}

impl<K, V> Default for InflightLoads<K, V> {
    fn default() -> Self {
        Self(OnceBox::new())
    }
}

/// One load in flight.
pub(crate) struct InflightLoad<K, V> {
    id: LoadId,
    shared: Mutex<InflightState<K, V>>,
    done: Condvar,
    /// Whether the leader runs the load's code, or has run it. Until then no caller follows the
    /// load.
    has_begun: AtomicBool,
    /// Whether a call has removed the key or replaced the record that this load reloads, or another
    /// load has taken this load's place.
    is_stopped: AtomicBool,
}

impl<K, V> InflightLoad<K, V> {
    fn new(key: K, has_begun: bool) -> Arc<Self> {
        let shared = InflightState {
            state: LoadState::Loading(key),
            #[cfg(feature = "async")]
            wakers: BTreeMap::new(),
            #[cfg(feature = "async")]
            last_waker: 0,
        };
        Arc::new(Self {
            id: LoadId::next(),
            shared: Mutex::new(shared),
            done: Condvar::new(),
            has_begun: AtomicBool::new(has_begun),
            is_stopped: AtomicBool::new(false),
        })
    }

    fn has_begun(&self) -> bool {
        // Relaxed: orders nothing. A caller that misses the store takes the load's place, and loads
        // beside the leader.
        self.has_begun.load(Ordering::Relaxed)
    }

    fn stop(&self) {
        // AcqRel, as in `allows`: if `allows` is the first of both exchanges, the caller's search
        // for the record, which follows, finds the segment whose lock the insert holds.
        self.is_stopped.swap(true, Ordering::AcqRel);
    }

    fn is_stopped(&self) -> bool {
        // Relaxed: a caller that the removal happens before gets the stored value.
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Returns whether the loaded value may be inserted. `is_expected`: the key has no record, or
    /// one that the value may replace. Called under the lock of the key's segment.
    #[cold]
    pub(crate) fn allows(&self, is_expected: bool) -> bool {
        // AcqRel: see `stop`.
        is_expected && !self.is_stopped.fetch_or(false, Ordering::AcqRel)
    }
}

/// The state under the lock of a load.
struct InflightState<K, V> {
    state: LoadState<K, V>,
    /// Wakers of follower tasks, by waker number.
    #[cfg(feature = "async")]
    wakers: BTreeMap<u64, Waker>,
    /// The last waker number that was given to a task.
    #[cfg(feature = "async")]
    last_waker: u64,
}

/// The progress of a load.
enum LoadState<K, V> {
    /// The leader loads the value of this key.
    Loading(K),
    /// The leader inserts the value in the cache.
    Publishing,
    /// The loaded value, whether the cache has accepted it or not.
    Done(Arc<V>),
    /// The leader panicked, or gave up.
    Failed,
}

/// The result of joining a load.
pub(crate) enum Join<K, V> {
    /// The caller is to load, and to [`complete`](Leader::complete) the load.
    Leader(Leader<K, V>),
    /// The leader's value.
    Loaded(Arc<V>),
    /// The caller is to try again: the leader gave up, or completed the load before its key was
    /// compared with the caller's.
    Retry(K),
    /// The caller is to load alone: the load is another key's, or must not be waited for.
    Alone(K),
}

/// The leader of a load. Its drop ends the load and wakes the followers: with the value if the load
/// was completed, else to try again themselves.
pub(crate) struct Leader<K, V> {
    loads: Arc<LoadMap<K, V>>,
    hash: u64,
    load: Arc<InflightLoad<K, V>>,
    /// Present if another load's code runs this one, or was the last to poll it.
    waits: Option<WaitEdge>,
}

/// A caller that follows another caller's load, with its own key.
struct Follower<K, V> {
    load: Arc<InflightLoad<K, V>>,
    /// `None` once a result has taken the key.
    key: Option<K>,
    /// Whether the load's key was compared with this one and is equal. A published value comes
    /// without its key, so only then is it this follower's.
    is_ours: bool,
}

impl<K, V> InflightLoads<K, V> {
    /// Returns whether a load of this hash is in flight.
    pub(crate) fn has(&self, hash: u64) -> bool {
        self.0.get().is_some_and(|loads| loads.by_hash.contains_key(&hash))
    }

    /// Returns the times from which keys may be reloaded again.
    pub(crate) fn retries(&self) -> &RetryTimes {
        &self.0.get_or_init(Box::default).retries
    }

    /// Stops the load in flight of this hash, if there is one: called under the lock of the key's
    /// segment, or before the caller takes that lock to remove the key's record. Takes a lock of
    /// the map, under which no other lock is taken; without a load in flight no lock.
    #[inline]
    pub(crate) fn stop(&self, hash: u64) {
        if let Some(loads) = self.if_any() {
            loads.stop(hash);
        }
    }

    /// As [`stop`](Self::stop), for an insert of a key without a live record. In a cache without
    /// loads it costs no fence: an insert that runs while the cache starts its first load may miss
    /// that load, if nothing else orders what the two do with the source.
    #[inline]
    pub(crate) fn stop_older(&self, hash: u64) {
        if self.0.get().is_some() {
            self.stop(hash);
        }
    }

    /// Stops all loads in flight, and returns their hashes. An insert that has checked
    /// [`allows`](InflightLoad::allows) before still holds the lock of its segment.
    pub(crate) fn stop_all(&self) -> Vec<u64> {
        let stop = |load: RefMulti<'_, u64, Arc<InflightLoad<K, V>>>| {
            load.stop();
            *load.key()
        };
        self.if_any().map_or_else(Vec::new, |loads| loads.by_hash.iter().map(stop).collect())
    }

    /// Returns whether any load is in flight.
    pub(crate) fn has_any(&self) -> bool {
        self.if_any().is_some()
    }

    /// Returns the map, unless no load is in flight.
    #[inline]
    fn if_any(&self) -> Option<&LoadMap<K, V>> {
        // Each leader has a handle on the map while its load is in flight. SeqCst: with the fence
        // in `Leader::new`, either this finds the handle, or the load reads what the caller has
        // written to the source before.
        fence(Ordering::SeqCst);
        let loads = self.0.get()?;
        if Arc::strong_count(loads) > 1 {
            return Some(loads);
        }
        // With the end of a leader's handle: the caller finds the value that the leader inserted.
        fence(Ordering::Acquire);
        None
    }
}

impl<K, V> LoadMap<K, V> {
    #[cold]
    #[inline(never)]
    fn stop(&self, hash: u64) {
        if let Some(load) = self.by_hash.get(&hash) {
            load.stop();
        }
    }
}

impl<K: Eq, V> InflightLoads<K, V> {
    /// Joins the load of `key`: waits for it, or starts one.
    pub(crate) fn join(&self, hash: u64, key: K) -> Join<K, V> {
        let mut follower = match self.find_or_start(hash, key) {
            Ok(leader) => return Join::Leader(leader),
            Err(follower) => follower,
        };
        let load = Arc::clone(&follower.load);
        let mut waits = None;
        let mut shared = load.shared.lock();
        loop {
            if let Some(join) = outcome(&mut follower.key, &mut follower.is_ours, &shared.state) {
                return join;
            }
            if waits.is_none() {
                match WaitEdge::add(load.id) {
                    Ok(begun) => waits = Some(begun),
                    Err(Cycle) => return load_alone(&mut follower.key),
                }
            }
            load.done.wait(&mut shared);
        }
    }

    /// The async form of [`join`](Self::join).
    #[cfg(feature = "async")]
    pub(crate) async fn join_async(&self, hash: u64, key: K) -> Join<K, V> {
        let follower = match self.find_or_start(hash, key) {
            Ok(leader) => return Join::Leader(leader),
            Err(follower) => follower,
        };
        let mut task = FollowerTask { follower, number: None, waits: None };
        poll_fn(|context| task.poll(context)).await
    }

    /// Starts a load for `key`, or finds the one in flight of this hash. A new load takes the place
    /// of a stopped load, and of a reload that has not begun, whose leader may wait in a queue
    /// behind this caller.
    fn find_or_start(&self, hash: u64, key: K) -> Result<Leader<K, V>, Follower<K, V>> {
        let loads = self.0.get_or_init(Box::default);
        match loads.by_hash.entry(hash) {
            MapEntry::Occupied(slot) if slot.get().has_begun() && !slot.get().is_stopped() => {
                Err(Follower { load: Arc::clone(slot.get()), key: Some(key), is_ours: false })
            }
            MapEntry::Occupied(mut slot) => {
                let load = InflightLoad::new(key, true);
                slot.insert(Arc::clone(&load)).stop();
                Ok(Leader::new(loads, hash, load))
            }
            MapEntry::Vacant(slot) => {
                let load = InflightLoad::new(key, true);
                slot.insert(Arc::clone(&load));
                Ok(Leader::new(loads, hash, load))
            }
        }
    }

    /// Starts a reload of the record of `key`, which has not [begun](Leader::begin); none if a load
    /// of this hash is in flight, even a stopped one: a source has one reload of a key at a time.
    pub(crate) fn start_reload(&self, hash: u64, key: K) -> Option<Leader<K, V>> {
        let loads = self.0.get_or_init(Box::default);
        let MapEntry::Vacant(slot) = loads.by_hash.entry(hash) else { return None };
        let load = InflightLoad::new(key, false);
        slot.insert(Arc::clone(&load));
        Some(Leader::new(loads, hash, load))
    }
}

/// A task that follows a load. Its drop removes its waker.
#[cfg(feature = "async")]
struct FollowerTask<K, V> {
    follower: Follower<K, V>,
    /// The number of the task's waker, once it has one.
    number: Option<u64>,
    /// Present if a load's code was the last to poll this task.
    waits: Option<WaitEdge>,
}

#[cfg(feature = "async")]
impl<K: Eq, V> FollowerTask<K, V> {
    /// Polls the load that this task follows: returns the result if the load is done, else leaves
    /// the task's waker.
    fn poll(&mut self, context: &Context<'_>) -> Poll<Join<K, V>> {
        // Cloned and dropped without the lock: a waker's clone and drop are user code.
        let mut waker = None;
        loop {
            let mut shared = self.follower.load.shared.lock();
            if let Some(join) = outcome(&mut self.follower.key, &mut self.follower.is_ours, &shared.state) {
                return Poll::Ready(join);
            }
            // At each poll: another load's code may poll this task now, or a load further out.
            match WaitEdge::add(self.follower.load.id) {
                Ok(waits) => self.waits = waits,
                Err(Cycle) => return Poll::Ready(load_alone(&mut self.follower.key)),
            }
            let there = self.number.and_then(|number| shared.wakers.get(&number));
            if there.is_some_and(|there| there.will_wake(context.waker())) {
                return Poll::Pending;
            }
            let Some(waker) = waker.take() else {
                drop(shared);
                waker = Some(context.waker().clone());
                continue;
            };
            // Inserted under the same lock as the check that the load is not done: so the leader
            // finds the waker.
            let number = *self.number.get_or_insert_with(|| {
                shared.last_waker += 1;
                shared.last_waker
            });
            let old = shared.wakers.insert(number, waker);
            drop(shared);
            drop(old);
            return Poll::Pending;
        }
    }
}

#[cfg(feature = "async")]
impl<K, V> Drop for FollowerTask<K, V> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.follower.load.shared.lock().wakers.remove(&number);
            drop(waker);
        }
    }
}

/// Returns the result for a follower; `None` while the follower must wait. A result takes the key,
/// so a follower that has got a result does not call again.
fn outcome<K: Eq, V>(key: &mut Option<K>, is_ours: &mut bool, state: &LoadState<K, V>) -> Option<Join<K, V>> {
    let answer: fn(K) -> Join<K, V> = match state {
        LoadState::Loading(theirs) if !*is_ours && Some(theirs) != key.as_ref() => Join::Alone,
        LoadState::Loading(_) | LoadState::Publishing if PublishScope::is_here() => Join::Alone,
        LoadState::Loading(_) => {
            *is_ours = true;
            return None;
        }
        LoadState::Publishing => return None,
        LoadState::Done(value) if *is_ours => return Some(Join::Loaded(Arc::clone(value))),
        LoadState::Done(_) | LoadState::Failed => Join::Retry,
    };
    key.take().map(answer)
}

/// The result for a follower that must not wait, as the load waits for the follower.
fn load_alone<K, V>(key: &mut Option<K>) -> Join<K, V> {
    Join::Alone(key.take().expect("the key is taken only with the result"))
}

impl<K, V> Leader<K, V> {
    fn new(loads: &Arc<LoadMap<K, V>>, hash: u64, load: Arc<InflightLoad<K, V>>) -> Self {
        let loads = Arc::clone(loads);
        // SeqCst: see `InflightLoads::if_any`.
        fence(Ordering::SeqCst);
        Self { loads, hash, load, waits: None }
    }

    /// Lets callers follow a reload from now on. Called before the reload's code runs.
    pub(crate) fn begin(&self) {
        // Relaxed: see `has_begun`.
        self.load.has_begun.store(true, Ordering::Relaxed);
    }

    /// Returns whether the load was stopped. A caller that finds under the segment's lock that a
    /// call has removed the key's record also finds the stop of that call, if the call has found
    /// this load. A call that stops before it takes the lock may miss a reload that starts in
    /// between: both calls overlap, so the reload may return the value of before the removal.
    pub(crate) fn is_stopped(&self) -> bool {
        self.load.is_stopped()
    }

    /// Calls `f` with the key, under the load's lock. Called before [`publish`](Self::publish).
    pub(crate) fn with_key<R>(&self, f: impl FnOnce(&K) -> R) -> R {
        match &self.load.shared.lock().state {
            LoadState::Loading(key) => f(key),
            LoadState::Publishing | LoadState::Done(_) | LoadState::Failed => {
                unreachable!("the leader has not completed the load")
            }
        }
    }

    /// Marks the thread as running the load's code until the guard is dropped. The load whose code
    /// the thread has run before waits for this one.
    pub(crate) fn run(&mut self) -> LoadScope {
        WaitEdge::renew(&mut self.waits, self.load.id);
        self.load.id.run()
    }

    /// Calls `keep`, which inserts the loaded value in the cache if the load
    /// [allows](InflightLoad::allows) it.
    pub(crate) fn publish(&self, keep: impl FnOnce(K, &InflightLoad<K, V>)) {
        let before = std::mem::replace(&mut self.load.shared.lock().state, LoadState::Publishing);
        let _here = PublishScope::begin();
        match before {
            LoadState::Loading(key) => keep(key, &self.load),
            LoadState::Publishing | LoadState::Done(_) | LoadState::Failed => {
                unreachable!("the leader has not completed the load")
            }
        }
    }

    /// Completes the load with the published value, and wakes the followers. After
    /// [`publish`](Self::publish), which has taken the key: its drop must not run under the lock.
    pub(crate) fn complete(self, value: V) {
        self.load.shared.lock().state = LoadState::Done(Arc::new(value));
    }
}

impl<K, V> Drop for Leader<K, V> {
    fn drop(&mut self) {
        // Removed from the map first: a later caller finds the record in the cache, or starts a
        // load of its own.
        self.loads.by_hash.remove_if(&self.hash, |_, load| Arc::ptr_eq(load, &self.load));
        let mut shared = self.load.shared.lock();
        let is_failed = !matches!(shared.state, LoadState::Done(_));
        let failed_key = is_failed.then(|| std::mem::replace(&mut shared.state, LoadState::Failed));
        #[cfg(feature = "async")]
        let wakers = std::mem::take(&mut shared.wakers);
        drop(shared);
        self.load.done.notify_all();
        // Called without the lock, as a waker may poll at once. A panic of one waker is caught, so
        // that the others are called, and discarded: the code that panicked belongs to a follower,
        // not to this caller.
        #[cfg(feature = "async")]
        for waker in wakers.into_values() {
            let _panicked = caught(|| waker.wake());
        }
        // The drop of the key is user code: last, so that no follower waits for it.
        drop(failed_key);
    }
}
