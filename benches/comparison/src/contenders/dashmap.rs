//! The contender dashmap: a concurrent map without a bound, as the ceiling for loads in which
//! everything fits.
//!
//! It may be changed as the documentation of its library recommends, and in no other way.

use crate::contender::{hasher, Contender, Hash, Kind};

/// dashmap: shards behind read-write locks; has no bound.
pub struct DashMap(dashmap::DashMap<u64, u64, Hash>);

impl Contender for DashMap {
    const NAME: &'static str = "dashmap";
    const KIND: Kind = Kind::Map;
    const SHRINK: Option<&'static str> = Some("retain, shrink_to_fit");

    fn new(_entries: usize) -> Self {
        Self(dashmap::DashMap::with_hasher(hasher()))
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|value| *value)
    }

    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn shrink(&self, entries: usize) {
        let mut left = entries;
        self.0.retain(|_, _| {
            let stays = left > 0;
            left = left.saturating_sub(1);
            stays
        });
        self.0.shrink_to_fit();
    }
}
