//! The result of a read-through that also tells where the value came from.
//!
//! A caller that counts loads, or must know that its value was rejected, cannot tell from the value
//! alone.
//!
//! A change must ensure that `Origin` has a case for each way in which a value can be found or
//! made.

use crate::cache::error::RejectReason;

/// A value that was found or loaded, and whether the cache has kept it; from
/// [`Entry::or_try_fill_with`](crate::cache::Entry::or_try_fill_with),
/// [`Cache::get_or_fill_many`](crate::Cache::get_or_fill_many) and
/// [`Refresh::try_fill_with`](crate::cache::Refresh::try_fill_with).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filled<V> {
    /// The value that was found or loaded. It is returned even if the cache rejected it.
    pub value: V,
    /// The way in which the value was obtained, and whether the cache has kept it.
    pub origin: Origin,
}

/// The origin of a [`Filled`] value: the cache, a load by this caller, or a load by another caller.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The cache had it, not past its deadline.
    Cached,
    /// The cache had it past its deadline, as a stale value
    /// ([`CacheBuilder::stale_while_revalidate`](crate::cache::CacheBuilder::stale_while_revalidate)).
    Stale,
    /// This caller loaded it, and the cache has it now.
    Loaded,
    /// Another caller loaded or inserted it at the same time, and the cache has it or has rejected
    /// it.
    Shared,
    /// This caller loaded it, and the cache did not take it, because the entry was inserted,
    /// replaced or removed meanwhile, or another entry whose key has the same hash.
    Outrun,
    /// This caller loaded it, and the cache rejected it, for this reason. The next caller loads it
    /// again; after a reload the old value stays, if it is not past its last use.
    Rejected(RejectReason),
}
