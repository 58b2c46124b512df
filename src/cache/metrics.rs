//! Metrics of one cache, for the `metrics` facade.
//!
//! `runtime/metrics.rs` has the metrics and the publishing; this is the call for one cache.
//!
//! A metric that is added must be described in `runtime/metrics.rs`.

use std::hash::{BuildHasher, Hash};

use lowwater_shrinker::Labels;

use super::handle::Cache;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Publishes the metrics of this cache alone to the calling thread's recorder: those with the
    /// label `cache` in the table of [`Runtime::publish_metrics`](crate::Runtime::publish_metrics),
    /// which publishes all caches and describes the labels. Gauges of caches that have ended are
    /// set to 0 here, too.
    ///
    /// O(entries / 500 + caches); with [`Labels::Groups`] O(1,000) more.
    pub fn publish_metrics(&self, labels: Labels) {
        self.inner.runtime.publish_cache(self.inner.maintenance, labels);
    }
}
