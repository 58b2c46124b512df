//! Errors of building a cache and of inserting.
//!
//! A change must ensure that each message names what the caller can change, such as a setting, a
//! limit or a group, with its value; and that an insert that fails returns the value, since it may
//! exist nowhere else.
//! A message that adds words to another error contains that error's message; `source` then returns
//! none, so that a report of the whole chain states each fact once (`lib.rs`, errors).

use std::time::Duration;

use lowwater_lru_core::{ByteSize, MemcgError};
use lowwater_shrinker::ShrinkerAllocError;

/// The error of a [`CacheBuilder`](super::CacheBuilder): the cache cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheBuildError {
    /// The registry has no id left for another shrinker.
    #[error("the cache cannot be registered: {0}")]
    Register(ShrinkerAllocError),
    /// The group given is not one of the runtime's.
    #[error("the group {0} does not belong to the runtime's tree")]
    ForeignGroup(String),
    /// The part of an entry's time to live in which it is reloaded would be all of that time.
    #[error(
        "refresh_ahead ({refresh_ahead:?}) must be shorter than time_to_live ({time_to_live:?}): an entry would be \
         reloaded again as soon as it was reloaded"
    )]
    RefreshTooEarly {
        /// The value given to [`CacheBuilder::refresh_ahead`](super::CacheBuilder::refresh_ahead).
        refresh_ahead: Duration,
        /// The value given to [`CacheBuilder::time_to_live`](super::CacheBuilder::time_to_live).
        time_to_live: Duration,
    },
    /// A limit of the cache itself is 0.
    #[error("the cache's {limit} is 0 bytes; omit it for no limit")]
    ZeroLimit {
        /// The limit's name: `min`, `low`, `high` or `max`.
        limit: &'static str,
    },
    /// A lower limit of the cache is above a higher one.
    #[error(
        "the cache's {lower} of {lower_bytes} bytes is more than its {upper} of {upper_bytes} bytes; min, low, high and \
         max are to be in this order"
    )]
    LimitsOutOfOrder {
        /// The name of the lower limit: `min`, `low` or `high`.
        lower: &'static str,
        /// The value given to the builder for the lower limit.
        lower_bytes: ByteSize,
        /// The name of the limit that the lower one must not exceed: `low`, `high` or `max`.
        upper: &'static str,
        /// The value given to the builder for the upper limit.
        upper_bytes: ByteSize,
    },
    /// A limit of the cache is above the budget, or above the `max` of an ancestor group.
    #[error("the cache's {limit} of {bytes} bytes is more than the {max} bytes that group {group} may use")]
    LimitTooLarge {
        /// The limit's name: `min`, `low`, `high` or `max`.
        limit: &'static str,
        /// The value given to the builder for this limit.
        bytes: ByteSize,
        /// The group with the smaller `max`; `/` for the budget.
        group: String,
        /// The `max` of that group, or the configured budget; see
        /// [`CacheBuilder::low`](super::CacheBuilder::low).
        max: ByteSize,
    },
    /// The own group of a cache with limits cannot be made.
    #[error("the cache's own group cannot be made below group {parent}: {error}")]
    OwnGroup {
        /// The path of the group below which the new group was to be created.
        parent: String,
        /// The reason for which the group cannot be created, such as [`MemcgError::TooDeep`].
        error: MemcgError,
    },
}

impl From<ShrinkerAllocError> for CacheBuildError {
    fn from(error: ShrinkerAllocError) -> Self {
        Self::Register(error)
    }
}

/// The reason for which an insert was rejected. The path of a group is empty if there is no memory
/// for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RejectReason {
    /// The entry is larger than its group's limit, or than an ancestor's. The limit is 0 while the
    /// group is being dropped. A budget that pressure has lowered is [`NoRoom`](Self::NoRoom).
    #[error("an entry of {bytes} bytes does not fit in group {group}, which may use {max}")]
    TooLarge {
        /// The bytes that the entry would be charged.
        bytes: ByteSize,
        /// The path of the group with the limit: the group to be charged, or an ancestor.
        group: String,
        /// The `max` of that group.
        max: ByteSize,
    },
    /// No memory can be freed for the entry now: the present entries are protected, in use, or not
    /// freed fast enough; or they cannot be found, as their keys' `Hash` or `Eq` panic or are
    /// inconsistent. The reclaimer is at work.
    #[error("no room for {bytes} bytes in group {group} now; try again in a while")]
    NoRoom {
        /// The bytes that the entry would be charged.
        bytes: ByteSize,
        /// The path of the group that is full: the group to be charged, or an ancestor.
        group: String,
    },
    /// Readers hold back so much memory of removed entries that nothing can be added: see
    /// [`Runtime`](crate::Runtime) for the bound. Inserts succeed again when the readers leave.
    /// Look for a thread that keeps a [`Pinned`](super::Pinned), an [`Iter`](super::Iter), or the
    /// closure of a compute or a visit, for long; or for one that has leaked a guard by
    /// `mem::forget`, which from then on holds back all entries that leave any cache of the
    /// process.
    #[error(
        "no room for {bytes} bytes: readers hold back {retired} bytes of entries that have left the caches, and may hold back \
         {allowed}; does a thread keep a Pinned or an Iter for long, or has it leaked one?"
    )]
    HeldByReaders {
        /// The bytes that the entry would be charged.
        bytes: ByteSize,
        /// The bytes of entries that have left the runtime's caches and are not dropped yet.
        retired: ByteSize,
        /// The maximum of `retired` while the budget is used up; see [`Runtime`](crate::Runtime).
        allowed: ByteSize,
    },
    /// The group belongs to another runtime.
    #[error("the group {group} is not of the cache's runtime: take one from there, with Runtime::group")]
    ForeignGroup {
        /// The path of the group that was to be charged.
        group: String,
    },
    /// The system has no memory for the entry, its list, or its index slot.
    #[error("no memory for an entry of group {group}")]
    NoMemory {
        /// The path of the group that was to be charged.
        group: String,
    },
}

/// The error of an insert, with the value that was rejected.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct InsertError<V> {
    /// The reason for which the insert was rejected, with the group and the bytes.
    pub reason: RejectReason,
    /// The rejected value, for the caller to use or to drop. The key was dropped.
    pub value: V,
}

impl<V> std::fmt::Debug for InsertError<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InsertError").field("reason", &self.reason).finish_non_exhaustive()
    }
}
