//! The metric series that a runtime has published so far.
//!
//! Kept under a lock of the runtime, so that a series whose group ended is set to 0 once.
//!
//! A change must ensure that a series is set to 0 before it is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use lowwater_shrinker::Totals;

/// The number of counters that a cache has.
pub(super) const NR_COUNTERS: usize = 10;

/// The series of a runtime.
#[derive(Default)]
pub(super) struct PublishedSeries {
    pub(super) caches: Totals<NR_COUNTERS>,
    /// The paths of the groups that have series.
    pub(super) groups: BTreeSet<String>,
    /// For each cache by its label, the paths of the groups whose entries were not 0.
    pub(super) pairs: BTreeMap<String, BTreeSet<String>>,
}
