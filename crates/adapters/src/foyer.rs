//! `foyer::Cache`, the cache in memory, which can evict only by a lower capacity.
//!
//! A change must ensure that the capacity is set back after each eviction, also after a panic.

use std::hash::{BuildHasher, Hash};
use std::panic::{catch_unwind, AssertUnwindSafe};

use foyer_memory::{Cache, CacheProperties};
use lowwater::ByteSize;

use crate::Evict;

/// The weighter must return bytes. Build the cache with a capacity above the budget (1 << 40), so
/// that the runtime alone decides; a lower capacity stays in effect.
///
/// An eviction resizes the cache and sets the capacity with which it was built again: a program's
/// own `resize` lasts until then. Inserts of other threads meanwhile meet the lower capacity. foyer
/// resizes on a new thread for each shard, so few shards are better: eight by default. If a thread
/// cannot be started or an event listener panics, the rest is not evicted.
impl<K, V, S> Evict for Cache<K, V, S, CacheProperties>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    fn weight(&self) -> ByteSize {
        ByteSize::from(self.usage())
    }

    fn shrink_to(&self, target: ByteSize) {
        // An error or a panic (no thread, a listener) leaves shards as they are: the runtime asks
        // again. The second call must follow, or the cache would stay small.
        let resize = |capacity| drop(catch_unwind(AssertUnwindSafe(|| self.resize(capacity))));
        let capacity = self.capacity();
        resize(usize::try_from(target.get()).unwrap_or(usize::MAX));
        resize(capacity);
    }
}
