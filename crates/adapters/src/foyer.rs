//! `foyer::Cache`, the cache in memory, which can evict only by a lower capacity.
//!
//! A change must ensure that each eviction tries to set the capacity back, also after a panic. The
//! attempt may fail: after a panic foyer does not wait for its other threads, which may then set
//! the lower capacity last, and the second call can fail, too. Then shards stay small until the
//! next eviction.

use std::hash::{BuildHasher, Hash};
use std::panic::{catch_unwind, AssertUnwindSafe};

use foyer_memory::{Cache, CacheProperties};
use lowwater::ByteSize;

use crate::capacity_steps::capacity_steps;
use crate::Evict;

/// Each step of an eviction lowers the capacity by `1 / STEP_DIVISOR`: at most nine steps for eight
/// shards.
const STEP_DIVISOR: u64 = 4;
/// With fewer entries per shard than this number, the capacity is lowered in steps. With more, the
/// shards are about equally heavy, and steps would only make evictions longer: each starts a thread
/// for each shard. Steps for any number of entries raised the share of a cache of eight shards in
/// equal use beside a lowwater `Cache` from 0.60 to 0.74, where 0.5 is fair.
const FEW_ENTRIES: usize = 16;

/// The weighter must return bytes. Build the cache with a capacity above the budget (1 << 40), so
/// that the runtime alone decides; a lower capacity is a second bound beside the runtime.
///
/// An eviction resizes the cache, and then resizes it back to the capacity with which it was built.
/// A capacity that the program set by its own `resize` is lost then. Inserts of other threads
/// meanwhile meet the lower capacity. foyer resizes on a new thread for each shard, so few shards
/// are better: eight by default. Meanwhile other threads evict from other caches, and this one
/// evicts as much afterwards. If a thread cannot be started, the shards after it are not evicted.
/// If an event listener panics, it is not called for the rest of that shard.
///
/// Each shard has an equal part of the capacity, so an eviction takes more than it must: the bytes
/// of each shard above its part of the target, and each entry that is heavier than that part. With
/// fewer than 16 entries per shard it lowers the capacity in steps, by a quarter each, until the
/// weight is low enough. Then it takes at most a quarter of the heaviest shards, rounded up to
/// whole entries, and from equally heavy shards one entry each. So a few heavy entries among many
/// light ones need one shard.
///
/// After such a failure, shards may keep the lower capacity until the next eviction.
///
/// # Deadlocks
///
/// The eviction waits for foyer's threads, which call event listeners and drop values. That code
/// must not drop the [`Adapted`](crate::Adapted) handle of this cache: see [`Evict::shrink_to`].
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
        if self.weight() <= target {
            return;
        }
        // After an error or a panic, shards may be left as they are: the runtime asks again.
        // `resize` panics if a thread cannot be started, or if a listener or the drop of a value
        // panics. The second call must follow nevertheless, or the cache would stay small.
        let resize = |capacity| drop(catch_unwind(AssertUnwindSafe(|| self.resize(capacity))));
        let capacity = self.capacity();
        // One shard needs one step.
        let shards = if self.entries() < FEW_ENTRIES * self.shards() { self.shards() } else { 1 };
        for lowered in capacity_steps(capacity as u64, target.get(), shards as u64, 1, STEP_DIVISOR) {
            resize(usize::try_from(lowered).unwrap_or(usize::MAX));
            if self.weight() <= target {
                break;
            }
        }
        resize(capacity);
    }
}
