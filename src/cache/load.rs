//! One load for many who wait (single flight).
//!
//! A flight is found by its key's hash, and holds its key while it loads: whoever comes for another key of that hash loads alone. Threads
//! wait asleep, tasks by their wakers; both may wait for the same load.
//!
//! # Who does not wait
//!
//! A thread that loads a key and asks for it again would wait for itself, and loads alone. So does a listener, or any other code that is
//! called while a loaded value is put in the cache, whatever key in flight it asks for: two on two threads could wait for each other.

use std::cell::Cell;
#[cfg(feature = "async")]
use std::future::poll_fn;
use std::sync::Arc;
#[cfg(feature = "async")]
use std::task::{Poll, Waker};
use std::thread::ThreadId;

use dashmap::{DashMap, Entry as Slot};
use once_cell::race::OnceBox;
use parking_lot::{Condvar, Mutex};

/// The loads that are under way. A pointer before the first.
pub(super) struct Flights<K, V>(OnceBox<DashMap<u64, Arc<Flight<K, V>>>>);

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self(OnceBox::new())
    }
}

/// One load.
struct Flight<K, V> {
    state: Mutex<State<K, V>>,
    landed: Condvar,
    /// Tasks that wait. Taken after the state's lock.
    #[cfg(feature = "async")]
    wakers: Mutex<Vec<Waker>>,
}

enum State<K, V> {
    /// Loaded by this thread; none if by a task, which may go on on any.
    InAir(K, Option<ThreadId>),
    /// The key is being put in the cache.
    Landing,
    /// What was loaded, kept in the cache or not.
    Landed(Arc<V>),
    /// The loader panicked.
    Lost,
}

/// What whoever asks is to do.
pub(super) enum Boarded<'a, K, V> {
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
pub(super) struct Pilot<'a, K, V> {
    flights: &'a DashMap<u64, Arc<Flight<K, V>>>,
    hash: u64,
    flight: Arc<Flight<K, V>>,
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
    pub(super) fn board(&self, hash: u64, key: K) -> Boarded<'_, K, V> {
        let mut waiting = match self.meet(hash, key) {
            Ok(pilot) => return Boarded::Pilot(pilot),
            Err(waiting) => waiting,
        };
        let flight = Arc::clone(&waiting.flight);
        let mut state = flight.state.lock();
        loop {
            match waiting.ask(&state) {
                Some(boarded) => return boarded,
                None => flight.landed.wait(&mut state),
            }
        }
    }

    /// As [`board`](Self::board), for a task.
    #[cfg(feature = "async")]
    pub(super) async fn board_async(&self, hash: u64, key: K) -> Boarded<'_, K, V> {
        let mut waiting = match self.meet(hash, key) {
            Ok(pilot) => return Boarded::Pilot(pilot),
            Err(waiting) => waiting,
        };
        let flight = Arc::clone(&waiting.flight);
        poll_fn(|context| {
            let state = flight.state.lock();
            if let Some(boarded) = waiting.ask(&state) {
                return Poll::Ready(boarded);
            }
            // Under the state's lock, so before whoever lands looks for wakers.
            let mut wakers = flight.wakers.lock();
            if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    /// Starts a flight for `key`, or finds the one that there is.
    fn meet(&self, hash: u64, key: K) -> Result<Pilot<'_, K, V>, Waiting<K, V>> {
        let flights = self.0.get_or_init(Box::default);
        match flights.entry(hash) {
            Slot::Occupied(slot) => Err(Waiting { flight: Arc::clone(slot.get()), key: Some(key), is_ours: false }),
            Slot::Vacant(slot) => {
                let flight = Arc::new(Flight {
                    state: Mutex::new(State::InAir(key, Some(std::thread::current().id()))),
                    landed: Condvar::new(),
                    #[cfg(feature = "async")]
                    wakers: Mutex::default(),
                });
                slot.insert(Arc::clone(&flight));
                Ok(Pilot { flights, hash, flight })
            }
        }
    }
}

impl<K: Eq, V> Waiting<K, V> {
    /// What there is for who waits; none yet. Not to be asked again after an answer.
    fn ask<'a>(&mut self, state: &State<K, V>) -> Option<Boarded<'a, K, V>> {
        let answer: fn(K) -> Boarded<'a, K, V> = match state {
            State::InAir(theirs, _) if !self.is_ours && Some(theirs) != self.key.as_ref() => Boarded::Alone,
            State::InAir(..) | State::Landing if Landing::is_here() => Boarded::Alone,
            State::InAir(_, Some(thread)) if *thread == std::thread::current().id() => Boarded::Alone,
            State::InAir(..) => {
                self.is_ours = true;
                return None;
            }
            State::Landing => return None,
            State::Landed(value) if self.is_ours => return Some(Boarded::Passenger(Arc::clone(value))),
            State::Landed(_) | State::Lost => Boarded::Again,
        };
        self.key.take().map(answer)
    }
}

impl<K, V> Pilot<'_, K, V> {
    /// Shows the key, under the flight's lock.
    pub(super) fn with_key<R>(&self, f: impl FnOnce(&K) -> R) -> R {
        match &*self.flight.state.lock() {
            State::InAir(key, _) => f(key),
            State::Landing | State::Landed(_) | State::Lost => unreachable!("the pilot has not landed"),
        }
    }

    /// From here on a task loads, which may go on on another thread.
    #[cfg(feature = "async")]
    pub(super) fn is_task(&self) {
        if let State::InAir(_, thread) = &mut *self.flight.state.lock() {
            *thread = None;
        }
    }

    /// The flight is about to land: `keep` is to put the key in the cache.
    pub(super) fn keep(&self, keep: impl FnOnce(K)) {
        let before = std::mem::replace(&mut *self.flight.state.lock(), State::Landing);
        let _here = Landing::begin();
        match before {
            State::InAir(key, _) => keep(key),
            State::Landing | State::Landed(_) | State::Lost => unreachable!("the pilot has not landed"),
        }
    }

    /// Tells those who wait.
    pub(super) fn land(self, value: V) {
        *self.flight.state.lock() = State::Landed(Arc::new(value));
    }
}

impl<K, V> Drop for Pilot<'_, K, V> {
    fn drop(&mut self) {
        // Out of the map first: whoever comes from here on finds the entry in the cache, or starts a flight of its own.
        self.flights.remove(&self.hash);
        let mut state = self.flight.state.lock();
        let lost = (!matches!(*state, State::Landed(_))).then(|| std::mem::replace(&mut *state, State::Lost));
        drop(state);
        // The key, whose drop is somebody's code.
        drop(lost);
        self.flight.landed.notify_all();
        #[cfg(feature = "async")]
        std::mem::take(&mut *self.flight.wakers.lock()).into_iter().for_each(Waker::wake);
    }
}

thread_local! {
    /// Flights that are landing on this thread, one inside the other.
    static LANDING: Cell<usize> = const { Cell::new(0) };
}

/// While this is there, a flight is landing on this thread.
struct Landing;

impl Landing {
    fn begin() -> Self {
        LANDING.set(LANDING.get() + 1);
        Self
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
