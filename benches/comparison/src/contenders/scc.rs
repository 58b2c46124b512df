//! The contender scc, its `HashCache`: a concurrent hash map with a bound, which evicts within a
//! full bucket.
//!
//! It may be changed as the documentation of its library recommends, and in no other way.

use scc::HashCache;

use crate::contender::{hasher, Contender, Hash};

/// scc's map with a bound: 32-way associative, LRU in each bucket. It rounds its capacity up to a
/// power of two.
pub struct Scc(HashCache<u64, u64, Hash>);

impl Contender for Scc {
    const NAME: &'static str = "scc";

    fn new(entries: usize) -> Self {
        Self(HashCache::with_capacity_and_hasher(0, entries, hasher()))
    }

    // `get_sync` counts as a use; `read_sync` would not.
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get_sync(&key).map(|entry| *entry.get())
    }

    // `put_sync` would not replace the value of an existing key, as all others do.
    fn insert(&self, key: u64, value: u64) {
        self.0.entry_sync(key).put_entry(value);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}
