//! One load for many who wait (single flight).
//!
//! A flight is found by its key's hash, and holds its key while it loads: whoever comes for another key of that hash loads alone. Threads
//! wait asleep, tasks by their wakers; both may wait for the same load.
//!
//! # Who does not wait
//!
//! A load that asks for its own key, or for a key whose load waits for it, would wait for itself: it loads alone ([`wait_graph`](super::wait_graph)). So does a
//! listener, or any other code that is called while a loaded value is put in the cache, whatever key in flight it asks for: two on two
//! threads could wait for each other.
//!
//! # User code
//!
//! A key's `Eq` runs under the lock of a flight. Nothing else of the user's does: wakers are cloned, woken and dropped without it, and one
//! that panics keeps no other from being woken. The code of a load runs inside a [`CallbackScope`]: what it ends does not wait for threads
//! that may wait for the load.

use std::cell::Cell;
#[cfg(feature = "async")]
use std::collections::BTreeMap;
#[cfg(feature = "async")]
use std::future::{poll_fn, Future};
#[cfg(feature = "async")]
use std::pin::{pin, Pin};
use std::sync::Arc;
#[cfg(feature = "async")]
use std::task::{Context, Poll, Waker};

use dashmap::{DashMap, Entry as MapEntry};
#[cfg(feature = "async")]
use lowwater_lru_core::unwind::caught;
use lowwater_shrinker::CallbackScope;
use once_cell::race::OnceBox;
use parking_lot::{Condvar, Mutex};

use super::wait_graph::{Cycle, LoadId, Running, Waits};

/// The loads that are under way. A pointer before the first.
pub(crate) struct Flights<K, V>(OnceBox<DashMap<u64, Arc<Flight<K, V>>>>);

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self(OnceBox::new())
    }
}

/// One load.
struct Flight<K, V> {
    id: LoadId,
    shared: Mutex<Shared<K, V>>,
    landed: Condvar,
}

struct Shared<K, V> {
    state: State<K, V>,
    /// Of tasks that wait, by the number of each.
    #[cfg(feature = "async")]
    wakers: BTreeMap<u64, Waker>,
    #[cfg(feature = "async")]
    last_waker: u64,
}

enum State<K, V> {
    /// Being loaded.
    InAir(K),
    /// The key is being put in the cache.
    Landing,
    /// What was loaded, kept in the cache or not.
    Landed(Arc<V>),
    /// The loader panicked.
    Lost,
}

/// What whoever asks is to do.
pub(crate) enum Boarded<'a, K, V> {
    /// Load, and [`land`](Pilot::land) it.
    Pilot(Pilot<'a, K, V>),
    /// This was loaded.
    Passenger(Arc<V>),
    /// Ask again: the one who loaded gave up, or was about to land.
    Again(K),
    /// The flight is another key's, or is not to be waited for.
    Alone(K),
}

/// The duty to load. Dropped without landing, it lets another try.
pub(crate) struct Pilot<'a, K, V> {
    flights: &'a DashMap<u64, Arc<Flight<K, V>>>,
    hash: u64,
    flight: Arc<Flight<K, V>>,
    /// There if another load's code has begun this one.
    _waits: Option<Waits>,
}

/// A flight of somebody else, and the key of who waits for it.
struct Waiting<K, V> {
    flight: Arc<Flight<K, V>>,
    key: Option<K>,
    /// The flight is known to be this key's.
    is_ours: bool,
}

impl<K: Eq, V> Flights<K, V> {
    /// Joins the flight of `key`: waits for it, or starts it.
    pub(crate) fn board(&self, hash: u64, key: K) -> Boarded<'_, K, V> {
        let mut waiting = match self.meet(hash, key) {
            Ok(pilot) => return Boarded::Pilot(pilot),
            Err(waiting) => waiting,
        };
        let flight = Arc::clone(&waiting.flight);
        let mut waits = None;
        let mut shared = flight.shared.lock();
        loop {
            if let Some(boarded) = answer(&mut waiting.key, &mut waiting.is_ours, &shared.state) {
                return boarded;
            }
            if waits.is_none() {
                match Waits::begin(flight.id) {
                    Ok(begun) => waits = Some(begun),
                    Err(Cycle) => return alone(&mut waiting.key),
                }
            }
            flight.landed.wait(&mut shared);
        }
    }

    /// As [`board`](Self::board), for a task.
    #[cfg(feature = "async")]
    pub(crate) async fn board_async(&self, hash: u64, key: K) -> Boarded<'_, K, V> {
        let waiting = match self.meet(hash, key) {
            Ok(pilot) => return Boarded::Pilot(pilot),
            Err(waiting) => waiting,
        };
        let mut parked = Parked { waiting, number: None, waits: None };
        poll_fn(|context| parked.poll(context)).await
    }

    /// Starts a flight for `key`, or finds the one that there is.
    fn meet(&self, hash: u64, key: K) -> Result<Pilot<'_, K, V>, Waiting<K, V>> {
        let flights = self.0.get_or_init(Box::default);
        match flights.entry(hash) {
            MapEntry::Occupied(slot) => Err(Waiting { flight: Arc::clone(slot.get()), key: Some(key), is_ours: false }),
            MapEntry::Vacant(slot) => {
                let id = LoadId::next();
                let shared = Shared {
                    state: State::InAir(key),
                    #[cfg(feature = "async")]
                    wakers: BTreeMap::new(),
                    #[cfg(feature = "async")]
                    last_waker: 0,
                };
                let flight = Arc::new(Flight { id, shared: Mutex::new(shared), landed: Condvar::new() });
                slot.insert(Arc::clone(&flight));
                Ok(Pilot { flights, hash, flight, _waits: Waits::for_new(id) })
            }
        }
    }
}

/// A task that waits. Dropped, it leaves no waker.
#[cfg(feature = "async")]
struct Parked<K, V> {
    waiting: Waiting<K, V>,
    /// Under which its waker is found.
    number: Option<u64>,
    /// None before it first waits.
    waits: Option<Option<Waits>>,
}

#[cfg(feature = "async")]
impl<K: Eq, V> Parked<K, V> {
    fn poll<'a>(&mut self, context: &Context<'_>) -> Poll<Boarded<'a, K, V>> {
        // Cloned and dropped without the lock: a waker is the user's code.
        let mut waker = None;
        loop {
            let mut shared = self.waiting.flight.shared.lock();
            if let Some(boarded) = answer(&mut self.waiting.key, &mut self.waiting.is_ours, &shared.state) {
                return Poll::Ready(boarded);
            }
            if self.waits.is_none() {
                match Waits::begin(self.waiting.flight.id) {
                    Ok(begun) => self.waits = Some(begun),
                    Err(Cycle) => return Poll::Ready(alone(&mut self.waiting.key)),
                }
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
            // Under the lock under which the flight was seen not to have landed: who lands finds it.
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
impl<K, V> Drop for Parked<K, V> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.waiting.flight.shared.lock().wakers.remove(&number);
            drop(waker);
        }
    }
}

/// What there is for the key of a thread or task that waits; none yet. Not to be asked again after an answer.
fn answer<'a, K: Eq, V>(key: &mut Option<K>, is_ours: &mut bool, state: &State<K, V>) -> Option<Boarded<'a, K, V>> {
    let answer: fn(K) -> Boarded<'a, K, V> = match state {
        State::InAir(theirs) if !*is_ours && Some(theirs) != key.as_ref() => Boarded::Alone,
        State::InAir(_) | State::Landing if Landing::is_here() => Boarded::Alone,
        State::InAir(_) => {
            *is_ours = true;
            return None;
        }
        State::Landing => return None,
        State::Landed(value) if *is_ours => return Some(Boarded::Passenger(Arc::clone(value))),
        State::Landed(_) | State::Lost => Boarded::Again,
    };
    key.take().map(answer)
}

/// For a key that is loaded by a load which waits for the one that asks.
fn alone<'a, K, V>(key: &mut Option<K>) -> Boarded<'a, K, V> {
    Boarded::Alone(key.take().expect("there was no answer before"))
}

impl<K, V> Pilot<'_, K, V> {
    /// Shows the key, under the flight's lock.
    pub(crate) fn with_key<R>(&self, f: impl FnOnce(&K) -> R) -> R {
        match &self.flight.shared.lock().state {
            State::InAir(key) => f(key),
            State::Landing | State::Landed(_) | State::Lost => unreachable!("the pilot has not landed"),
        }
    }

    /// The thread runs the load's code until the guard is dropped.
    pub(crate) fn run(&self) -> Running {
        self.flight.id.run()
    }

    /// The flight is about to land: `keep` is to put the key in the cache.
    pub(crate) fn keep(&self, keep: impl FnOnce(K)) {
        let before = std::mem::replace(&mut self.flight.shared.lock().state, State::Landing);
        let _here = Landing::begin();
        match before {
            State::InAir(key) => keep(key),
            State::Landing | State::Landed(_) | State::Lost => unreachable!("the pilot has not landed"),
        }
    }

    /// Tells those who wait.
    pub(crate) fn land(self, value: V) {
        self.flight.shared.lock().state = State::Landed(Arc::new(value));
    }
}

impl<K, V> Drop for Pilot<'_, K, V> {
    fn drop(&mut self) {
        // Out of the map first: whoever comes from here on finds the entry in the cache, or starts a flight of its own.
        self.flights.remove(&self.hash);
        let mut shared = self.flight.shared.lock();
        let is_lost = !matches!(shared.state, State::Landed(_));
        let lost = is_lost.then(|| std::mem::replace(&mut shared.state, State::Lost));
        #[cfg(feature = "async")]
        let wakers = std::mem::take(&mut shared.wakers);
        drop(shared);
        self.flight.landed.notify_all();
        // Without the lock, as a waker may poll at once. One that panics keeps no other from being woken; nobody here is to blame.
        #[cfg(feature = "async")]
        for waker in wakers.into_values() {
            let _panicked = caught(|| waker.wake());
        }
        // The key, whose drop is the user's code: last, so that nobody waits for it.
        drop(lost);
    }
}

/// Polls a task's load inside of [`Running`], and drops it there: others wait for it until the flight has landed.
#[cfg(feature = "async")]
pub(crate) async fn run_task<F: Future>(run: impl Fn() -> Option<Running>, load: F) -> F::Output {
    /// Empties the place inside of the scope, also when the task is dropped.
    struct Load<'a, F, R: Fn() -> Option<Running>>(Pin<&'a mut Option<F>>, R);

    impl<F, R: Fn() -> Option<Running>> Drop for Load<'_, F, R> {
        fn drop(&mut self) {
            let _running = self.1();
            self.0.set(None);
        }
    }

    let mut load = Load(pin!(Some(load)), run);
    poll_fn(|context| {
        let _running = load.1();
        load.0.as_mut().as_pin_mut().expect("it is polled until it is ready").poll(context)
    })
    .await
}

thread_local! {
    /// Flights that are landing on this thread, one inside the other.
    static LANDING: Cell<usize> = const { Cell::new(0) };
}

/// While this is there, a flight is landing on this thread, and others wait for it.
struct Landing {
    _scope: CallbackScope,
}

impl Landing {
    fn begin() -> Self {
        LANDING.set(LANDING.get() + 1);
        Self { _scope: CallbackScope::enter() }
    }

    fn is_here() -> bool {
        LANDING.get() > 0
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        LANDING.set(LANDING.get() - 1);
    }
}
