//! `lru::LruCache` in a [`Weighed`](crate::Weighed).
//!
//! The crate counts entries and is for one thread. `Weighed` adds weights and a lock; here are only
//! the two operations that it needs.
//!
//! A change must ensure that `push` makes the entry the youngest, and returns the entry that left
//! for it.

use std::hash::{BuildHasher, Hash};

use lru::LruCache;

use crate::OldestFirst;

impl<K, V, S> OldestFirst for LruCache<K, V, S>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
    S: BuildHasher + Send + 'static,
{
    type Key = K;
    type Value = V;

    /// Removes an entry with this key first: `LruCache::push` would keep its key, and return the
    /// new one with the replaced value.
    fn push(&mut self, key: K, value: V) -> Option<(K, V)> {
        let replaced = self.pop_entry(&key);
        let evicted = self.push(key, value);
        replaced.or(evicted)
    }

    fn pop_oldest(&mut self) -> Option<(K, V)> {
        self.pop_lru()
    }
}
