//! What a cache did and holds, for the `metrics` facade.
//!
//! Set when somebody asks (from a timer, or before a scrape): a lookup costs nothing for it.

use std::hash::{BuildHasher, Hash};

use lowwater_shrinker::Labels;
use metrics::{counter, gauge};

use super::handle::Cache;
use super::stats::CacheStats;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Sets the metrics to what they are now, at the recorder of the calling thread. O(entries / 500); with [`Labels::Groups`] O(groups), too.
    ///
    /// A series of a group that has removal, or has nothing here any more, keeps its last value until the recorder forgets it.
    ///
    /// | name | kind | labels |
    /// |---|---|---|
    /// | `lowwater_cache_hits_total`, `_misses_total`, `_inserts_total`, `_rejected_total`, `_loads_total`, `_panics_total` | counter | cache |
    /// | `lowwater_cache_removals_total` | counter | cache, cause: `size`, `expired`, `explicit`, `replaced` |
    /// | `lowwater_cache_entries`, `lowwater_cache_footprint_bytes` | gauge | cache |
    /// | `lowwater_cache_group_entries` | gauge | cache, group; only with [`Labels::Groups`] |
    /// | `lowwater_group_bytes`: charged to the group, by all caches | gauge | group, for those with entries here; only with [`Labels::Groups`] |
    ///
    /// `cache` is the name under which the shrinkers' metrics know it.
    pub fn publish_metrics(&self, labels: Labels) {
        let registration = self.inner.registration();
        let cache = format!("{}-{}", registration.name(), registration.id());
        let stats = self.stats();
        let CacheStats { hits, misses, inserts, rejected, evictions, expired, removed, replaced, loads, .. } = stats;
        let panics = stats.listener_panics + stats.drop_panics;
        for (metric, value) in [
            ("lowwater_cache_hits_total", hits),
            ("lowwater_cache_misses_total", misses),
            ("lowwater_cache_inserts_total", inserts),
            ("lowwater_cache_rejected_total", rejected),
            ("lowwater_cache_loads_total", loads),
            ("lowwater_cache_panics_total", panics),
        ] {
            counter!(metric, "cache" => cache.clone()).absolute(value);
        }
        for (cause, value) in [("size", evictions), ("expired", expired), ("explicit", removed), ("replaced", replaced)]
        {
            counter!("lowwater_cache_removals_total", "cache" => cache.clone(), "cause" => cause).absolute(value);
        }
        gauge!("lowwater_cache_entries", "cache" => cache.clone()).set(self.len() as f64);
        gauge!("lowwater_cache_footprint_bytes", "cache" => cache.clone()).set(self.footprint().get() as f64);
        if labels == Labels::Shrinkers {
            return;
        }
        for group in self.inner.runtime.root().descendants() {
            let entries = self.len_of(&group);
            if entries > 0 {
                let path = group.path();
                gauge!("lowwater_group_bytes", "group" => path.clone()).set(group.usage().get() as f64);
                gauge!("lowwater_cache_group_entries", "cache" => cache.clone(), "group" => path).set(entries as f64);
            }
        }
    }
}
