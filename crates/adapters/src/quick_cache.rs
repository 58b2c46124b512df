//! `quick_cache::sync::Cache`, which can evict only by a lower capacity.
//!
//! quick_cache inserts no entry that is heavier than its part for hot entries. Whenever the
//! capacity changes, it computes that part from the old one and rounds it down. So the part would
//! fall by some bytes in each eviction, until the cache refuses all entries. Therefore the capacity
//! of a shard is a multiple of [`GRANULE`], a power of two. A part of `n * m` at the capacity
//! `n * GRANULE` becomes `k * m` at each step of `k * GRANULE` without rounding (below 2^53 bytes:
//! quick_cache divides in `f64`), and then `n * m` again. A part between two such values stays
//! above the lower one, as the computation is monotone.
//!
//! A change must ensure that the capacity is set back after each eviction, also after a panic.

use std::hash::{BuildHasher, Hash};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

use lowwater::ByteSize;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, Weighter};

use crate::capacity_steps::capacity_steps;
use crate::Evict;

/// The capacity of a shard is a multiple of this number of bytes, from the first eviction on: so
/// the part for hot entries loses at most `1 / GRANULE` of the capacity. Small beside an entry.
const GRANULE: u64 = 256;

/// Each step of an eviction lowers the capacity by `1 / STEP_DIVISOR`: at most 17 steps for eight
/// shards, in 2 us.
const STEP_DIVISOR: u64 = 8;

/// The weighter must return bytes. Build the cache with the budget of the runtime as its capacity,
/// and with as many estimated items as fit it: the number of its ghosts follows both.
///
/// An eviction lowers the capacity and sets it back, so inserts of other threads meanwhile meet the
/// lower capacity. quick_cache rounds the number of its ghosts down when its capacity changes, so
/// it loses some of them in each eviction, and all of them at once if its capacity is far above its
/// weight. Without ghosts it still tells used entries from others. With Zipf keys and a scan it hit
/// 0.48 to 0.49 of the lookups, and 0.48 with a capacity of 1 << 40, where a cache of a fixed
/// capacity hit 0.54 (the test `quick_cache_loses_few_hits_by_its_evictions`).
///
/// Each shard has an equal part of the capacity, so an eviction lowers the capacity in steps, by an
/// eighth each, until the weight is low enough. It takes more than it must: up to an eighth of the
/// heaviest shards, rounded up to whole entries, and from equally heavy shards one entry each. It
/// never takes more than one that sets the capacity to the target at once.
///
/// The first eviction raises the capacity of each shard to a multiple of 256 bytes, and each step
/// is one, which may take up to 255 bytes of each shard more. So the part for hot entries
/// (`hot_allocation` of the options) loses at most 1/256 of the capacity in all evictions together;
/// quick_cache inserts no entry that is heavier than that part. An eviction to less than 256 bytes
/// for each shard sets the part to quick_cache's default, 97 %.
impl<K, V, We, B, L> Evict for Cache<K, V, We, B, L>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    We: Weighter<K, V> + Clone + Send + Sync + 'static,
    B: BuildHasher + Clone + Send + Sync + 'static,
    L: Lifecycle<K, V> + Clone + Send + Sync + 'static,
    L::RequestState: Send,
{
    fn weight(&self) -> ByteSize {
        ByteSize::new(Cache::weight(self))
    }

    fn shrink_to(&self, target: ByteSize) {
        if Evict::weight(self) <= target {
            return;
        }
        let granule = GRANULE * self.num_shards() as u64;
        let capacity = self.capacity();
        let capacity = capacity.checked_next_multiple_of(granule).unwrap_or(capacity);
        let mut steps = capacity_steps(capacity, target.get(), self.num_shards() as u64, granule, STEP_DIVISOR);
        let lower = || {
            steps.find(|lowered| {
                self.set_capacity(*lowered);
                Evict::weight(self) <= target
            })
        };
        // The program's lifecycle may panic: the capacity must be set back all the same.
        let lowered = catch_unwind(AssertUnwindSafe(lower));
        self.set_capacity(capacity);
        lowered.map_or_else(|panic| resume_unwind(panic), drop);
    }
}
