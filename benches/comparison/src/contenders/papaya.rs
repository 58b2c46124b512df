//! The contender papaya: a concurrent map without a bound, as the ceiling for loads in which
//! everything fits.
//!
//! It may be changed as the documentation of its library recommends, and in no other way.

use papaya::HashMap;

use crate::contender::{hasher, Contender, Hash, Kind};

/// papaya: lock-free reads; has no bound.
pub struct Papaya(HashMap<u64, u64, Hash>);

impl Contender for Papaya {
    const NAME: &'static str = "papaya";
    const KIND: Kind = Kind::Map;

    fn new(_entries: usize) -> Self {
        Self(HashMap::builder().hasher(hasher()).build())
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.pin().get(&key).copied()
    }

    fn insert(&self, key: u64, value: u64) {
        self.0.pin().insert(key, value);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}
