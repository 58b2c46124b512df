//! The kinds of events that `watch` shows.
//!
//! The names are the arguments of memcached's `watch`. A set is one byte, so that a thread can ask
//! by one load whether an event is watched.
//!
//! A change must ensure that a set stays one byte, which an atomic can hold.

/// A kind of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// `fetchers`: reads.
    Fetch,
    /// `mutations`: stores.
    Mutation,
    /// `evictions`
    Eviction,
    /// `deletions`: values that `delete` or `md` has removed.
    Deletion,
    /// `connevents`: connections that begin or end.
    Connection,
}

/// A set of kinds of events.
#[doc(alias = "log_entry_subtype")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSet(u8);

impl EventSet {
    /// Adds `event`.
    pub fn with(self, event: Event) -> Self {
        Self(self.0 | 1 << event as u8)
    }

    /// Returns all events of both sets.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn has(self, event: Event) -> bool {
        self.0 & 1 << event as u8 != 0
    }

    /// Returns the set as a number, for an atomic.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Returns the set that [`bits`](Self::bits) was called on.
    pub fn of_bits(bits: u8) -> Self {
        Self(bits)
    }
}
