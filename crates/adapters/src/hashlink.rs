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
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
    S: BuildHasher + Send + 'static,
{
    type Key = K;
    type Value = V;

    /// Removes an entry with this key first: `LruCache::insert` returns the replaced value without
    /// its key. A clone of the new key may weigh less than the key itself. If the cache is full by
    /// its own capacity, evicts the oldest entry: `insert` would drop it, and its weight would
    /// stay.
    fn push(&mut self, key: K, value: V) -> Option<(K, V)> {
        if self.capacity() == 0 {
            return Some((key, value));
        }
        let old = match self.remove_entry(&key) {
            None if self.len() >= self.capacity() => self.remove_lru(),
            replaced => replaced,
        };
        self.insert(key, value);
        old
    }

    fn pop_oldest(&mut self) -> Option<(K, V)> {
        self.remove_lru()
    }
}
