//! The contender moka, its synchronous cache bounded by entries, as its documentation recommends.
//!
//! It may be changed as the documentation of its library recommends, and in no other way.

use moka::sync::Cache;

use crate::contender::{hasher, Contender, Hash};

/// moka's synchronous cache: TinyLFU, by number of entries.
pub struct Moka(Cache<u64, u64, Hash>);

impl Contender for Moka {
    const NAME: &'static str = "moka";
    const SHRINK: Option<&'static str> = Some("invalidate_all, run_pending_tasks");

    fn new(entries: usize) -> Self {
        Self(Cache::builder().max_capacity(entries as u64).build_with_hasher(hasher()))
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key)
    }

    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn len(&self) -> usize {
        self.0.entry_count() as usize
    }

    fn run_pending_tasks(&self) {
        self.0.run_pending_tasks();
    }

    // moka has no public resize: this drops all entries.
    fn shrink(&self, _entries: usize) {
        self.0.invalidate_all();
        self.0.run_pending_tasks();
    }
}
