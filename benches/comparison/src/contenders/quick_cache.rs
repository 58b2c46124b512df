//! quick_cache's synchronous cache, bounded by its number of entries and built as its documentation
//! recommends.
//!
//! Change it only in ways that the library's documentation recommends, so that the comparison stays
//! fair.

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::UnitWeighter;

use crate::contender::{hasher, Contender, Hash};

/// quick_cache's synchronous cache, bounded by its number of entries.
pub struct QuickCache(Cache<u64, u64, UnitWeighter, Hash>);

impl Contender for QuickCache {
    const NAME: &'static str = "quick_cache";
    const SHRINK: Option<&'static str> = Some("set_capacity");

    fn new(entries: usize) -> Self {
        Self(Cache::with(entries, entries as u64, UnitWeighter, hasher(), DefaultLifecycle::default()))
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn shrink(&self, entries: usize) {
        self.0.set_capacity(entries as u64);
    }
}
