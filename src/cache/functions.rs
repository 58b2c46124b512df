//! The user's functions that a cache has captured, besides its weigher.
//!
//! Few caches have one, so they are in a box of their own: an empty cache is small. They are the
//! user's code. A change must ensure that none is called, or dropped, under a lock.

use super::expiry::lifetime::Expiry;
use super::policy::cost::MissCost;
use super::removal::RemovalCause;

/// The callback for removed records.
pub(super) type Listener<K, V> = Box<dyn Fn(&K, &V, RemovalCause) + Send + Sync>;

/// The functions for single values.
pub(super) struct ValueFunctions<K, V> {
    pub(super) listener: Option<Listener<K, V>>,
    pub(super) miss_cost: Option<MissCost<K, V>>,
    /// For the times of single records.
    pub(super) expiry: Option<Expiry<K, V>>,
}

impl<K, V> ValueFunctions<K, V> {
    /// Returns whether there is any function.
    pub(super) fn is_any(&self) -> bool {
        self.listener.is_some() || self.miss_cost.is_some() || self.expiry.is_some()
    }
}
