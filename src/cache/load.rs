//! One load for many who wait (single flight).
//!
//! A flight is found by its key's hash, and holds its key while it loads: whoever comes for another key of that hash loads alone.

use std::sync::{Arc, OnceLock};

use dashmap::{DashMap, Entry as Slot};
use parking_lot::{Condvar, Mutex};

/// The loads that are under way. Costs nothing before the first.
pub(super) struct Flights<K, V>(OnceLock<DashMap<u64, Arc<Flight<K, V>>>>);

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

/// One load.
struct Flight<K, V> {
    state: Mutex<State<K, V>>,
    landed: Condvar,
}

enum State<K, V> {
    InAir(K),
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
    /// The flight is another key's.
    Alone(K),
}

/// The duty to load. Dropped without landing, it lets another try.
pub(super) struct Pilot<'a, K, V> {
    flights: &'a DashMap<u64, Arc<Flight<K, V>>>,
    hash: u64,
    flight: Arc<Flight<K, V>>,
}

impl<K: Eq, V> Flights<K, V> {
    /// Joins the flight of `key`: waits for it, or starts it.
    pub(super) fn board(&self, hash: u64, key: K) -> Boarded<'_, K, V> {
        let flights = self.0.get_or_init(DashMap::new);
        let flight = match flights.entry(hash) {
            Slot::Occupied(slot) => Arc::clone(slot.get()),
            Slot::Vacant(slot) => {
                let flight = Arc::new(Flight { state: Mutex::new(State::InAir(key)), landed: Condvar::new() });
                slot.insert(Arc::clone(&flight));
                return Boarded::Pilot(Pilot { flights, hash, flight });
            }
        };
        let mut state = flight.state.lock();
        let mut is_ours = false;
        loop {
            match &*state {
                State::InAir(theirs) if !is_ours && *theirs != key => return Boarded::Alone(key),
                State::InAir(_) => {
                    is_ours = true;
                    flight.landed.wait(&mut state);
                }
                State::Landing => flight.landed.wait(&mut state),
                State::Landed(value) if is_ours => return Boarded::Passenger(Arc::clone(value)),
                State::Landed(_) | State::Lost => return Boarded::Again(key),
            }
        }
    }
}

impl<K, V> Pilot<'_, K, V> {
    /// Shows the key.
    pub(super) fn with_key<R>(&self, f: impl FnOnce(&K) -> R) -> R {
        match &*self.flight.state.lock() {
            State::InAir(key) => f(key),
            State::Landing | State::Landed(_) | State::Lost => unreachable!("the pilot has not landed"),
        }
    }

    /// Takes the key; from here on the flight is about to land.
    pub(super) fn take_key(&self) -> K {
        match std::mem::replace(&mut *self.flight.state.lock(), State::Landing) {
            State::InAir(key) => key,
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
        if !matches!(*state, State::Landed(_)) {
            *state = State::Lost;
        }
        drop(state);
        self.flight.landed.notify_all();
    }
}
