//! The metric series that a runtime has published so far.
//!
//! Kept under a lock of the runtime, so that exactly one publisher forgets a series whose cache or
//! group has ended, and sets the series to 0 after it has released the lock.
//!
//! A change must ensure that a publisher which forgets a series sets it to 0.

use std::collections::{BTreeMap, BTreeSet};

use lowwater_shrinker::Totals;

use super::maintenance::MaintenanceId;

/// The number of counters that a cache has: `PLAIN` and `CAUSES` in `metrics.rs`.
pub(super) const NR_COUNTERS: usize = 10;

/// The series of a runtime.
#[derive(Default)]
pub(super) struct PublishedSeries {
    pub(super) caches: Totals<NR_COUNTERS>,
    /// The paths of the groups that have series.
    pub(super) groups: BTreeSet<String>,
    /// Those of them whose usage and limits were published.
    pub(super) with_usage: BTreeSet<String>,
    /// For each label, the cache of the last publish with groups, and the paths of the groups whose
    /// entries in it were not 0.
    pub(super) pairs: BTreeMap<String, (MaintenanceId, BTreeSet<String>)>,
}
