//! A user's function computes the times of single entries (variable expiry).
//!
//! The function is called without a lock, as it may take any time, and pinned: on a use it reads
//! the value in the cache.
//!
//! A change must ensure both, and the meaning of [`Lifetime::Unchanged`]: a new or reloaded entry
//! gets the cache's own time, and an existing one keeps its deadline.

use std::time::Duration;

use super::clock::Ttl;

/// The event after which an entry's time is computed; see
/// [`CacheBuilder::expire_after`](crate::cache::CacheBuilder::expire_after).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpiryEvent {
    /// The entry is new, or its value was reloaded.
    Create,
    /// A call replaces the value.
    Update {
        /// The time that the replaced entry had left; none if it does not expire.
        time_left: Option<Duration>,
    },
    /// The entry was used.
    Read {
        /// The time that the entry has left; none if it does not expire.
        time_left: Option<Duration>,
    },
}

/// The time of an entry from now on; see
/// [`CacheBuilder::expire_after`](crate::cache::CacheBuilder::expire_after).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// The entry keeps its deadline. A new entry gets the cache's own time.
    Unchanged,
    /// The entry has no deadline.
    Forever,
    /// The entry expires after this time, used or not, with the precision of
    /// [`CacheBuilder::time_to_live`](crate::cache::CacheBuilder::time_to_live).
    Live(Duration),
    /// The entry expires when it was not used for this time, as by
    /// [`CacheBuilder::time_to_idle`](crate::cache::CacheBuilder::time_to_idle).
    Idle(Duration),
}

/// The function of a cache for the times of its entries.
pub(crate) struct Expiry<K, V> {
    pub(crate) function: Box<ExpiryFn<K, V>>,
    /// The cache's own time.
    pub(crate) default: Ttl,
}

pub(crate) type ExpiryFn<K, V> = dyn Fn(&K, &V, ExpiryEvent) -> Lifetime + Send + Sync;

impl Lifetime {
    /// Returns the time to live; none if the deadline is unchanged.
    pub(crate) fn ttl(self) -> Option<Ttl> {
        match self {
            Self::Unchanged => None,
            Self::Forever => Some(Ttl::Forever),
            Self::Live(time) => Some(Ttl::Fixed(time)),
            Self::Idle(time) => Some(Ttl::Idle(time)),
        }
    }
}
