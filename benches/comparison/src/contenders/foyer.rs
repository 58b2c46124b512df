//! The contender foyer, memory tier only, with S3-FIFO, the eviction order with which its hit ratio
//! is best; its default is LRU. All other settings are its defaults.
//!
//! A change may follow the recommendations of the library's documentation, or select an eviction
//! order with a better hit ratio, and nothing else.

use foyer_memory::{Cache, CacheBuilder, CacheProperties, S3FifoConfig};

use crate::contender::{hasher, Contender, Hash};

/// foyer's memory tier with S3-FIFO, its eviction order with the best hit ratio.
pub struct Foyer(Cache<u64, u64, Hash, CacheProperties>);

impl Contender for Foyer {
    const NAME: &'static str = "foyer";
    const SHRINK: Option<&'static str> = Some("resize");

    fn new(entries: usize) -> Self {
        // Eight shards is its default; fewer for a tiny cache, so that no shard has a capacity of
        // 0.
        let shards = entries.clamp(1, 8);
        let builder = CacheBuilder::new(entries).with_shards(shards).with_hash_builder(hasher());
        Self(builder.with_eviction_config(S3FifoConfig::default()).build())
    }

    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&key).map(|entry| *entry.value())
    }

    fn insert(&self, key: u64, value: u64) {
        self.0.insert(key, value);
    }

    fn len(&self) -> usize {
        self.0.entries()
    }

    fn shrink(&self, entries: usize) {
        self.0.resize(entries).expect("foyer's resize fails only with a new eviction order");
    }
}
