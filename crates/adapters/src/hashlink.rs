//! `hashlink::LruCache` in a [`Weighed`](crate::Weighed).
//!
//! The crate counts entries and is for one thread. `Weighed` adds weights and a lock; here are only
//! the two operations that it needs.
//!
//! A change must ensure that `push` makes the entry the youngest, and returns the entry that left
//! for it.

use std::hash::{BuildHasher, Hash};

use hashlink::LruCache;

use crate::OldestFirst;

impl<K, V, S> OldestFirst for LruCache<K, V, S>
where
    K: Hash + Eq + Clone + Send + 'static,
    V: Send + 'static,
    S: BuildHasher + Send + 'static,
{
    type Key = K;
    type Value = V;

    /// Clones the key: `hashlink` returns a replaced value without its key. If the cache is full by
    /// its own capacity, evicts the oldest entry first: `LruCache::insert` would drop it, and its
    /// weight would stay.
    fn push(&mut self, key: K, value: V) -> Option<(K, V)> {
        if self.len() >= self.capacity() && !self.contains_key(&key) {
            let oldest = self.remove_lru();
            if self.capacity() == 0 {
                return Some((key, value));
            }
            self.insert(key, value);
            return oldest;
        }
        let old = self.insert(key.clone(), value)?;
        Some((key, old))
    }

    fn pop_oldest(&mut self) -> Option<(K, V)> {
        self.remove_lru()
    }
}
