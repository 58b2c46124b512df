//! One cache, for the `metrics` facade.

use std::hash::{BuildHasher, Hash};

use lowwater_shrinker::Labels;

use super::handle::Cache;

impl<K, V, S> Cache<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Sets the metrics of this cache alone to what they are now, at the recorder of the calling
    /// thread: those with the label `cache` in the table of
    /// [`Runtime::publish_metrics`](crate::Runtime::publish_metrics), which sets them for all
    /// caches, and says what the labels are. The gauges of caches that have ended are set to 0, as
    /// they are there.
    ///
    /// O(entries / 500 + caches); with [`Labels::Groups`] O(1,000) more.
    pub fn publish_metrics(&self, labels: Labels) {
        self.inner.runtime.publish_cache(self.inner.maintenance, labels);
    }
}
