//! The statistics of a registry, for the `metrics` facade.
//!
//! Metrics are set when [`Registry::publish_metrics`] is called (from a timer, or before a scrape),
//! not at each visit, so a visit costs nothing for them.
//!
//! A change must ensure that a visit does not touch the recorder, and that each metric is described
//! before it is set.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use metrics::{Label, Unit};

use crate::metric::Metric;
use crate::registry::Registry;
use crate::series::NR_COUNTERS;
use crate::stats::ShrinkerStats;

/// The granularity of the metrics. Tenants create groups, so the number of groups, each with series
/// of its own, may be unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Labels {
    /// Series per shrinker and per cache.
    #[default]
    Shrinkers,
    /// Series per shrinker, cache and group.
    Groups,
}

/// The counters of a shrinker, in the order of [`counts`].
const COUNTERS: [Metric; NR_COUNTERS] = [
    Metric::counter("lowwater_shrinker_callbacks_total", Unit::Count, "Calls that counted a shrinker's objects"),
    Metric::counter("lowwater_shrinker_requested_total", Unit::Count, "Objects that a shrinker was requested to scan"),
    Metric::counter("lowwater_shrinker_scanned_total", Unit::Count, "Objects that a shrinker scanned"),
    Metric::counter("lowwater_shrinker_freed_total", Unit::Count, "Objects that a shrinker freed"),
    Metric::counter(
        "lowwater_shrinker_freed_in_background_total",
        Unit::Count,
        "Objects that a shrinker freed for a background thread",
    ),
    Metric::counter("lowwater_shrinker_deferred_total", Unit::Count, "Objects with a deferred scan"),
    Metric::counter(
        "lowwater_shrinker_back_offs_total",
        Unit::Count,
        "Visits in which a shrinker requested a back-off",
    ),
    Metric::counter("lowwater_shrinker_panics_total", Unit::Count, "Callbacks that panicked"),
    Metric::counter("lowwater_shrinker_microseconds_total", Unit::Microseconds, "Time in a shrinker's callbacks"),
];
const LIVE_PAIRS: Metric =
    Metric::gauge("lowwater_live_pairs", Unit::Count, "Pairs of shrinker and group on a node that may hold objects");
const LIVE_GROUPS: Metric =
    Metric::gauge("lowwater_live_groups", Unit::Count, "Groups on a node that may hold objects");
const MAP_BYTES: Metric = Metric::gauge("lowwater_map_bytes", Unit::Bytes, "Memory of the map of live pairs");
const OBJECTS: Metric =
    Metric::gauge("lowwater_shrinker_objects", Unit::Count, "Objects that a shrinker holds for a group on a node");
const OWED: Metric = Metric::gauge(
    "lowwater_shrinker_owed",
    Unit::Count,
    "Objects that a shrinker has yet to scan for a group on a node",
);

/// Returns the values of [`COUNTERS`], in the same order.
fn counts(stats: &ShrinkerStats) -> [u64; NR_COUNTERS] {
    let ShrinkerStats {
        callbacks,
        requested,
        scanned,
        freed,
        freed_in_background,
        deferred,
        back_offs,
        panics,
        time_ns,
        ..
    } = stats;
    [*callbacks, *requested, *scanned, *freed, *freed_in_background, *deferred, *back_offs, *panics, time_ns / 1_000]
}

impl Registry {
    /// Sets the metrics to their current values at the recorder of the calling thread, and
    /// describes them. No lock is held while the recorder is called. O(shrinkers + live pairs).
    ///
    /// | name | kind, unit | labels |
    /// |---|---|---|
    /// | `lowwater_shrinker_callbacks_total`, `_requested_total`, `_scanned_total`, `_freed_total`, `_freed_in_background_total`, `_deferred_total`, `_back_offs_total`, `_panics_total` | counter | shrinker |
    /// | `lowwater_shrinker_microseconds_total` | counter, microseconds | shrinker |
    /// | `lowwater_live_pairs`, `lowwater_live_groups` | gauge | |
    /// | `lowwater_map_bytes` | gauge, bytes | |
    /// | `lowwater_shrinker_objects`, `lowwater_shrinker_owed` | gauge | shrinker, group, node; only with [`Labels::Groups`] |
    ///
    /// `shrinker` is the shrinker's name; the second shrinker of a name is `name#2`, and so on, in
    /// the order in which they were built, among those first seen by the same call. A label stays
    /// with its shrinker. After a shrinker has ended, its counters stay constant, until the next
    /// shrinker of the name continues from there; 1,024 ended shrinkers are remembered.
    ///
    /// With [`Labels::Groups`], `count_objects` and `weigh_objects` are called once per live pair,
    /// and there are two series per pair, without a bound. The series of a pair that is no longer
    /// live keep their last values until the recorder drops them.
    pub fn publish_metrics(&self, labels: Labels) {
        for metric in COUNTERS.iter().chain(&[LIVE_PAIRS, LIVE_GROUPS, MAP_BYTES]) {
            metric.describe();
        }
        for (label, totals) in self.shrinker_totals() {
            let labels = [Label::new("shrinker", Arc::<str>::from(label))];
            for (metric, total) in COUNTERS.iter().zip(totals) {
                metric.set(&labels, total);
            }
        }
        let (live_pairs, live_groups) = self.core.map.live();
        LIVE_PAIRS.set(&[], live_pairs as u64);
        LIVE_GROUPS.set(&[], live_groups as u64);
        MAP_BYTES.set(&[], self.core.map.footprint().get());
        if labels == Labels::Groups {
            self.publish_pairs();
        }
    }

    /// Sets the metrics of the live pairs. A number of objects that the shrinker does not know is
    /// set as 0.
    fn publish_pairs(&self) {
        OBJECTS.describe();
        OWED.describe();
        let stats = self.survey();
        let names = self.metric_labels();
        for pair in &stats.pairs {
            let Some(shrinker) = names.get(&pair.shrinker.get()) else { continue };
            let labels = [
                Label::new("shrinker", shrinker.clone()),
                Label::new("group", pair.memcg.path()),
                Label::new("node", pair.node.index().to_string()),
            ];
            OBJECTS.set(&labels, pair.count.unwrap_or(0));
            OWED.set(&labels, pair.owed);
        }
    }

    /// Returns the label and the counters of each shrinker.
    fn shrinker_totals(&self) -> Vec<(String, [u64; NR_COUNTERS])> {
        let mut published = self.core.published.lock();
        let published = &mut *published;
        // Read under the lock, so that concurrent calls add the counts of a label's owners in the
        // order of the owners (`Totals::add`).
        let shrinkers = self.core.owners_and_stats();
        published.labels.update(shrinkers.iter().map(|(owner, shrinker)| (*owner, &*shrinker.name)));
        published.totals.begin_round();
        let mut all = Vec::with_capacity(shrinkers.len());
        for (owner, shrinker) in &shrinkers {
            let Some(label) = published.labels.get(*owner) else { continue };
            all.push((label.to_owned(), published.totals.add(label, *owner, counts(shrinker))));
        }
        // All live shrinkers were added above, so each of the others has ended.
        published.totals.end_round(|_| false);
        all
    }

    /// Returns the label of each shrinker in the metrics, by its id.
    #[doc(hidden)]
    pub fn metric_labels(&self) -> BTreeMap<u32, String> {
        let mut published = self.core.published.lock();
        let shrinkers = self.core.owners_and_stats();
        published.labels.update(shrinkers.iter().map(|(owner, shrinker)| (*owner, &*shrinker.name)));
        let label = |owner| published.labels.get(owner).map(ToOwned::to_owned);
        shrinkers.iter().filter_map(|(owner, shrinker)| Some((shrinker.id.get(), label(*owner)?))).collect()
    }
}
