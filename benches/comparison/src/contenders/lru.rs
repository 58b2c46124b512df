//! The contender lru behind a mutex: the simplest cache that a service would write.
//!
//! It must stay the code that a service would write: one lock, no tuning.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use crate::contender::{hasher, Contender, Hash};

/// lru's cache, which is single-threaded, behind one lock.
pub struct Lru(Mutex<LruCache<u64, u64, Hash>>);

impl Contender for Lru {
    const NAME: &'static str = "lru";
    const SHRINK: Option<&'static str> = Some("resize");

    fn new(entries: usize) -> Self {
        Self(Mutex::new(LruCache::with_hasher(capacity(entries), hasher())))
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.lock().get(&key).copied()
    }

    fn insert(&self, key: u64, value: u64) {
        self.0.lock().put(key, value);
    }

    fn len(&self) -> usize {
        self.0.lock().len()
    }

    fn shrink(&self, entries: usize) {
        self.0.lock().resize(capacity(entries));
    }
}

fn capacity(entries: usize) -> NonZeroUsize {
    NonZeroUsize::new(entries).unwrap_or(NonZeroUsize::MIN)
}
