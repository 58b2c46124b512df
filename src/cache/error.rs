//! Errors of building a cache and of inserting; an insert's error returns the value.

use std::time::Duration;

use lowwater_lru_core::{ByteSize, MemcgError};

/// The error of a [`CacheBuilder`](super::CacheBuilder): the cache cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheBuildError {
    /// The registry has no id left for another shrinker.
    #[error("the cache cannot be registered: {0}")]
    Register(#[from] lowwater_shrinker::ShrinkerAllocError),
    /// The group given is not one of the runtime's.
    #[error("the group {0} does not belong to the runtime's tree")]
    ForeignGroup(String),
    /// An entry has room for one time, and both were asked for.
    #[error(
        "an entry has one time: time_to_live ({time_to_live:?}) and time_to_idle ({time_to_idle:?}) cannot both be the \
         cache's; leave one out, and give entries that are to live for a fixed time theirs with Entry::time_to_live"
    )]
    TwoTimes {
        /// The time to live that was asked for.
        time_to_live: Duration,
        /// The idle time that was asked for.
        time_to_idle: Duration,
    },
    /// A limit of the cache's own is 0.
    #[error("the cache's {limit} is 0 bytes; leave it out where there is to be no such limit")]
    ZeroLimit {
        /// Which: `min`, `low`, `high` or `max`.
        limit: &'static str,
    },
    /// A limit of the cache's own is above one that should not be less.
    #[error(
        "the cache's {lower} of {lower_bytes} bytes is more than its {upper} of {upper_bytes} bytes; min, low, high and \
         max are to be in this order"
    )]
    LimitsOutOfOrder {
        /// Which limit is too large, or the other too small: `min`, `low` or `high`.
        lower: &'static str,
        /// That limit.
        lower_bytes: ByteSize,
        /// The limit that it should not exceed: `low`, `high` or `max`.
        upper: &'static str,
        /// That limit.
        upper_bytes: ByteSize,
    },
    /// A limit of the cache's own is above the budget, or above the `max` of a group above it.
    #[error("the cache's {limit} of {bytes} bytes is more than the {max} bytes that group {group} may use")]
    LimitTooLarge {
        /// Which: `min`, `low`, `high` or `max`.
        limit: &'static str,
        /// That limit.
        bytes: ByteSize,
        /// The group whose `max` is less; `/` for the budget.
        group: String,
        /// That `max`.
        max: ByteSize,
    },
    /// The group of a cache with limits of its own cannot be made.
    #[error("the cache's own group cannot be made below group {parent}: {error}")]
    OwnGroup {
        /// The group below which it should be.
        parent: String,
        /// Why.
        #[source]
        error: MemcgError,
    },
}

/// Why an insert was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RejectReason {
    /// It does not fit in its group's limit, or one above, even if that were empty.
    #[error("an entry of {bytes} bytes does not fit in group {group}, which may use {max}")]
    TooLarge {
        /// What the entry would cost.
        bytes: ByteSize,
        /// The group in whose limit it does not fit.
        group: String,
        /// That limit.
        max: ByteSize,
    },
    /// There is no room now: what is there is protected, in use, or not freed fast enough; or it
    /// cannot be found, as its keys' `Hash` or `Eq` panic, or say something else than before. The
    /// reclaimer is at work.
    #[error("no room for {bytes} bytes in group {group} now; try again in a while")]
    NoRoom {
        /// What the entry would cost.
        bytes: ByteSize,
        /// The group that is full.
        group: String,
    },
    /// Readers hold back so much of what has left the runtime's caches that nothing can be added:
    /// see [`Runtime`](crate::Runtime) for what a budget promises. It goes on when they leave; so
    /// look for a thread that keeps a [`Pinned`](super::Pinned), an [`Iter`](super::Iter), or the
    /// closure of a compute or a visit, for long; or that has leaked one, by `mem::forget`, which
    /// holds back all that leaves any cache of the process from then on.
    #[error(
        "no room for {bytes} bytes: readers hold back {retired} bytes of entries that have left the caches, and may hold back \
         {allowed}; does a thread keep a Pinned or an Iter for long, or has it leaked one?"
    )]
    HeldByReaders {
        /// What the entry would cost.
        bytes: ByteSize,
        /// What has left the runtime's caches, and is not dropped yet.
        retired: ByteSize,
        /// What may be held back when all of the budget is used.
        allowed: ByteSize,
    },
    /// The group is one of another runtime.
    #[error("the group {group} is not of the cache's runtime: take one from there, with Runtime::group")]
    ForeignGroup {
        /// The group.
        group: String,
    },
    /// The system gives no memory for the entry, its list, or its place in the index.
    #[error("no memory for an entry of group {group}")]
    NoMemory {
        /// The group.
        group: String,
    },
}

/// The error of an insert, with the value that was rejected.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct InsertError<V> {
    /// Why.
    pub reason: RejectReason,
    /// The value.
    pub value: V,
}

impl<V> std::fmt::Debug for InsertError<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InsertError").field("reason", &self.reason).finish_non_exhaustive()
    }
}
