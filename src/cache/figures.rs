//! The figures of a cache: its memory and its counts.
//!
//! Only reads. A new part of a cache that allocates must be added to `footprint`, which
//! `tests/small_caches.rs` compares with the allocator.

use lowwater_lru_core::ByteSize;

use super::core::Core;
use super::inner::CacheInner;
use super::stats::CacheStats;
#[cfg(feature = "metrics")]
use crate::runtime::CacheFigures;

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> Core<K, V, S> {
    /// See [`Cache::footprint`](crate::Cache::footprint).
    pub(super) fn footprint(&self) -> ByteSize {
        // Two `Arc`s with two reference counts each; and the `Arc` through which the lists notify
        // the registry: two counts and the pointer.
        let shared = 7 * size_of::<usize>() + size_of::<CacheInner<K, V, S>>() + size_of::<Core<K, V, S>>();
        // The index and the queues report their own size.
        let own = shared - size_of_val(&self.index) - size_of_val(&self.queues)
            + self.functions.as_deref().map_or(0, size_of_val)
            + self.clock.footprint()
            + self.counters.footprint()
            + self.queues.footprint()
            + self.sweeps.footprint()
            + self.clear_state.get().map_or(0, size_of_val)
            + self.compaction.get().map_or(0, size_of_val);
        let parts = self.index.slab().footprint().saturating_add(self.index.footprint());
        parts.saturating_add(ByteSize::new(own as u64))
    }

    /// See [`Cache::stats`](crate::Cache::stats).
    pub(super) fn stats(&self) -> CacheStats {
        CacheStats { drop_panics: self.index.slab().drop_panics(), ..self.counters.read() }
    }

    /// Returns the figures for the metrics. O(entries / 500): the footprint visits each segment of
    /// the index.
    #[cfg(feature = "metrics")]
    pub(super) fn figures(&self) -> CacheFigures {
        let stats = self.stats();
        let CacheStats { hits, misses, inserts, rejected, loads, listener_panics, drop_panics, .. } = stats;
        let CacheStats { evictions, expired, removed, replaced, bytes, .. } = stats;
        CacheFigures {
            shrinker: self.shrinker,
            hits,
            misses,
            inserts,
            rejected,
            loads,
            listener_panics,
            drop_panics,
            evictions,
            expired,
            removed,
            replaced,
            entries: self.len() as u64,
            bytes,
            footprint: self.footprint(),
        }
    }
}
