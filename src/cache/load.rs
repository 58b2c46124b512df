//! One load for many who wait (single flight).
//!
//! A flight is found by its key's hash. Two keys of one hash share a flight at worst: whoever waited for the other's key finds that out
//! and starts again. So no key needs to be cloned.

use std::sync::Arc;

use dashmap::{DashMap, Entry as Slot};
use parking_lot::{Condvar, Mutex};

use super::entry::Entry;

/// The loads that are under way.
pub(super) struct Flights<K, V>(DashMap<u64, Arc<Flight<K, V>>>);

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self(DashMap::new())
    }
}

/// One load.
struct Flight<K, V> {
    state: Mutex<State<K, V>>,
    landed: Condvar,
}

enum State<K, V> {
    InAir,
    /// The loaded entry, kept in the cache or not.
    Landed(Arc<Entry<K, V>>),
    /// The loader panicked.
    Lost,
}

/// What whoever asks is to do.
pub(super) enum Boarded<'a, K, V> {
    /// Load, and [`land`](Pilot::land) it.
    Pilot(Pilot<'a, K, V>),
    /// This was loaded, perhaps for another key of the same hash.
    Passenger(Arc<Entry<K, V>>),
    /// The one who loaded gave up; ask again.
    Lost,
}

/// The duty to load. Dropped without landing, it lets another try.
pub(super) struct Pilot<'a, K, V> {
    flights: &'a Flights<K, V>,
    hash: u64,
    flight: Arc<Flight<K, V>>,
}

impl<K, V> Flights<K, V> {
    /// Joins the flight of `hash`: waits for it, or starts it.
    pub(super) fn board(&self, hash: u64) -> Boarded<'_, K, V> {
        let flight = match self.0.entry(hash) {
            Slot::Occupied(slot) => Arc::clone(slot.get()),
            Slot::Vacant(slot) => {
                let flight = Arc::new(Flight { state: Mutex::new(State::InAir), landed: Condvar::new() });
                slot.insert(Arc::clone(&flight));
                return Boarded::Pilot(Pilot { flights: self, hash, flight });
            }
        };
        let mut state = flight.state.lock();
        loop {
            match &*state {
                State::InAir => flight.landed.wait(&mut state),
                State::Landed(entry) => return Boarded::Passenger(Arc::clone(entry)),
                State::Lost => return Boarded::Lost,
            }
        }
    }
}

impl<K, V> Pilot<'_, K, V> {
    /// Tells those who wait.
    pub(super) fn land(self, entry: Arc<Entry<K, V>>) {
        *self.flight.state.lock() = State::Landed(entry);
    }
}

impl<K, V> Drop for Pilot<'_, K, V> {
    fn drop(&mut self) {
        // Out of the map first: whoever comes from here on finds the entry in the cache, or starts a flight of its own.
        self.flights.0.remove(&self.hash);
        let mut state = self.flight.state.lock();
        if matches!(*state, State::InAir) {
            *state = State::Lost;
        }
        drop(state);
        self.flight.landed.notify_all();
    }
}
