//! Metrics of a runtime, its caches and its groups, for the `metrics` facade.
//!
//! No lock of the runtime is held while the recorder runs, as it is user code: the figures of
//! caches are read first, and set at the recorder afterwards; all other figures are read without a
//! lock held.
//!
//! A change must keep that, and ensure that each metric has a unit, is described in each publish
//! (`describe`), and is in the tables of [`Runtime::publish_metrics`] and of `docs/GUIDE.md`.

#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::slice::from_ref;
use std::sync::Arc;

use lowwater_lru_core::{ByteSize, Memcg, NodeId};
use lowwater_shrinker::{Labels, Metric, NodeStats};
use metrics::{Label, Unit};

use super::handle::Runtime;
use super::maintenance::{CacheFigures, MaintenanceId};
use super::published::NR_COUNTERS;

/// The largest number of groups with series of their own.
const GROUPS_MAX: usize = 1_000;

const BUDGET: Metric =
    Metric::gauge("lowwater_budget_bytes", Unit::Bytes, "The budget in effect, as lowered by memory pressure");
const USAGE: Metric = Metric::gauge("lowwater_usage_bytes", Unit::Bytes, "Bytes charged by all caches and groups");
const RETIRED: Metric =
    Metric::gauge("lowwater_retired_bytes", Unit::Bytes, "Bytes of removed entries that are not dropped yet");
const START: Metric =
    Metric::gauge("lowwater_reclaim_start_bytes", Unit::Bytes, "The usage above which reclaim starts");
const STOP: Metric = Metric::gauge("lowwater_reclaim_stop_bytes", Unit::Bytes, "The usage at which reclaim stops");
const PRESSURE: Metric = Metric::gauge(
    "lowwater_pressure_level",
    Unit::Count,
    "Memory pressure: 0 is calm, 1 is low, 2 is medium, 3 is critical",
);
const GROUPS: Metric = Metric::gauge("lowwater_groups", Unit::Count, "Groups, the root included");
const CACHES: Metric = Metric::gauge("lowwater_caches", Unit::Count, "Caches");
const RUNTIME: [Metric; 7] = [BUDGET, USAGE, RETIRED, START, STOP, GROUPS, CACHES];

/// A metric, and the function that reads its value from a `T`.
type MetricOf<T, R> = (Metric, fn(&T) -> R);

const RECLAIMER: [MetricOf<NodeStats, u64>; 4] = [
    (
        Metric::counter("lowwater_reclaimer_wakeups_total", Unit::Count, "Times a node's reclaimer had work to do"),
        |node| node.wakeups,
    ),
    (Metric::counter("lowwater_reclaimer_steps_total", Unit::Count, "Passes of a node's reclaimer"), |node| node.steps),
    (Metric::counter("lowwater_reclaimer_freed_total", Unit::Count, "Objects that a node's reclaimer freed"), |node| {
        node.freed
    }),
    (
        Metric::counter(
            "lowwater_reclaimer_exhausted_total",
            Unit::Count,
            "Times a node's reclaimer gave up a group, as nothing more could be freed",
        ),
        |node| node.exhausted,
    ),
];

/// The counters of a cache without the label `cause`. In [`counters`], the removals by cause
/// ([`CAUSES`]) follow them.
const PLAIN: [Metric; NR_COUNTERS - CAUSES.len()] = [
    Metric::counter("lowwater_cache_hits_total", Unit::Count, "Lookups that found an entry"),
    Metric::counter("lowwater_cache_misses_total", Unit::Count, "Lookups that found no entry"),
    Metric::counter("lowwater_cache_inserts_total", Unit::Count, "Entries inserted"),
    Metric::counter(
        "lowwater_cache_rejected_total",
        Unit::Count,
        "Inserts that were refused, for want of memory mostly",
    ),
    Metric::counter("lowwater_cache_loads_total", Unit::Count, "Values that loads have returned"),
    Metric::counter("lowwater_cache_panics_total", Unit::Count, "Panics of the listener, and of values' drops"),
];
const REMOVALS: Metric = Metric::counter("lowwater_cache_removals_total", Unit::Count, "Entries removed, by cause");
const CAUSES: [&str; 4] = ["size", "expired", "explicit", "replaced"];
const CACHE_ENTRIES: Metric = Metric::gauge("lowwater_cache_entries", Unit::Count, "Entries in a cache");
const CACHE_BYTES: Metric = Metric::gauge("lowwater_cache_bytes", Unit::Bytes, "Bytes charged for a cache's entries");
const CACHE_FOOTPRINT: Metric = Metric::gauge(
    "lowwater_cache_footprint_bytes",
    Unit::Bytes,
    "Memory of a cache from the system, without the heap memory of keys and values",
);
const CACHE_GAUGES: [Metric; 3] = [CACHE_ENTRIES, CACHE_BYTES, CACHE_FOOTPRINT];

const CACHE_GROUP_ENTRIES: Metric =
    Metric::gauge("lowwater_cache_group_entries", Unit::Count, "Entries of a group in a cache");
const GROUP_USAGE: Metric = Metric::gauge(
    "lowwater_group_usage_bytes",
    Unit::Bytes,
    "Bytes charged to a group and those below it, by all caches",
);
const GROUP_LIMITS: [MetricOf<Memcg, ByteSize>; 4] = [
    (Metric::gauge("lowwater_group_min_bytes", Unit::Bytes, "The usage below which nothing is reclaimed"), Memcg::min),
    (Metric::gauge("lowwater_group_low_bytes", Unit::Bytes, "The usage below which a group is protected"), Memcg::low),
    (
        Metric::gauge("lowwater_group_high_bytes", Unit::Bytes, "The usage above which a group is reclaimed"),
        Memcg::high,
    ),
    (Metric::gauge("lowwater_group_max_bytes", Unit::Bytes, "The usage above which charges are refused"), Memcg::max),
];
const UNPUBLISHED: Metric = Metric::gauge(
    "lowwater_groups_unpublished",
    Unit::Count,
    "Groups without series of their own, as there are too many",
);

/// The groups that have series, by path.
type Groups = BTreeMap<String, Memcg>;

/// One cache as it was read: its id, its figures, and its entries by the path of each group that
/// has any.
type ReadCache<'a> = (MaintenanceId, CacheFigures, BTreeMap<&'a str, u64>);

/// The values of the series of one cache.
struct CacheSeries {
    label: String,
    /// In the order of [`counters`], with those of earlier caches of this label.
    totals: [u64; NR_COUNTERS],
    /// In the order of [`CACHE_GAUGES`].
    gauges: [u64; CACHE_GAUGES.len()],
    /// The path and entries of each group; 0 for a group that had entries at the last publish,
    /// maybe in an earlier cache of this label, and has none now.
    entries: Vec<(String, u64)>,
}

/// The values of caches that a publish sets at the recorder.
#[derive(Default)]
struct CachesToPublish {
    caches: Vec<CacheSeries>,
    /// The labels of caches that have ended, with the groups that had entries there.
    ended: Vec<(String, BTreeSet<String>)>,
}

impl Runtime {
    /// Sets the metrics of the runtime, its registry and all its caches to their present values, at
    /// the recorder of the calling thread; with [`Labels::Groups`], also those of its groups. The
    /// recorder is that of the crate `metrics` 0.24. Call this function from a timer, or before a
    /// scrape: metrics cost nothing between two calls.
    ///
    /// | name | kind, unit | labels |
    /// |---|---|---|
    /// | `lowwater_budget_bytes`: the effective budget; `lowwater_usage_bytes`; `lowwater_retired_bytes` | gauge, bytes | |
    /// | `lowwater_reclaim_start_bytes`, `lowwater_reclaim_stop_bytes`: the [watermarks](crate::Watermarks) of the budget | gauge, bytes | |
    /// | `lowwater_pressure_level`: 0 (calm) to 3 (critical); only with a pressure monitor | gauge | |
    /// | `lowwater_groups`, `lowwater_caches` | gauge | |
    /// | `lowwater_reclaimer_wakeups_total`, `_steps_total`, `_freed_total`, `_exhausted_total` | counter | node |
    /// | `lowwater_cache_hits_total`, `_misses_total`, `_inserts_total`, `_rejected_total`, `_loads_total`, `_panics_total` | counter | cache |
    /// | `lowwater_cache_removals_total` | counter | cache, cause: `size`, `expired`, `explicit`, `replaced` |
    /// | `lowwater_cache_entries` | gauge | cache |
    /// | `lowwater_cache_bytes`: charged for the entries; `lowwater_cache_footprint_bytes`: [`Cache::footprint`](crate::Cache::footprint) | gauge, bytes | cache |
    /// | `lowwater_group_usage_bytes`, `lowwater_group_min_bytes`, `_low_bytes`, `_high_bytes`, `_max_bytes` | gauge, bytes | group; only with [`Labels::Groups`] |
    /// | `lowwater_groups_unpublished` | gauge | only with [`Labels::Groups`] |
    /// | `lowwater_cache_group_entries` | gauge | cache, group; only with [`Labels::Groups`] |
    ///
    /// In addition, it sets the metrics of
    /// [`Registry::publish_metrics`](crate::Registry::publish_metrics) with [`Labels::Shrinkers`].
    /// A limit that is not set is `+Inf`.
    ///
    /// # Labels
    ///
    /// `cache` is the cache's [name](crate::cache::CacheBuilder::name), which is also the cache's
    /// label in the shrinkers' metrics. The second cache of the same name is `name#2`, and so on.
    /// Caches that one call sees for the first time get these numbers in the order in which
    /// they were built. A label stays with its cache until the cache ends; the next cache of that
    /// name then gets it. `group` is the group's [path](Memcg::path), `node` the node's number. The
    /// own group of a cache with limits is `/cache:NAME`
    /// ([`CacheBuilder::low`](crate::cache::CacheBuilder::low)). So a program that makes the same
    /// caches and groups has the same labels in each run.
    ///
    /// Two runtimes have the same series: each needs a recorder of its own.
    ///
    /// # Ends
    ///
    /// When a cache has ended, the next call, also one of
    /// [`Cache::publish_metrics`](crate::Cache::publish_metrics), sets the gauges of that cache to
    /// 0. Its counters keep their values, and the next cache of that name continues from them. This
    /// holds for the last 1,024 ended caches: totals of an older one are forgotten, and start again
    /// at 0. Counts of a cache between its last publish and its end are lost. When a group has
    /// ended, the next call with [`Labels::Groups`] sets its usage and limits to 0, and its entries
    /// in the caches that the call publishes.
    ///
    /// # Many groups
    ///
    /// At most 1,000 groups have series at one time: first the root, then parents before their
    /// children, and of siblings first the older one with all groups below it. A group that has
    /// series keeps them until it ends. `lowwater_groups_unpublished` is the number of all other
    /// groups; their bytes are in the usage of the groups above them. The series of entries by
    /// cache and group exist for the same groups, if a cache has entries of them. Bytes are not
    /// published by cache and group.
    ///
    /// A publisher cannot remove series: a recorder keeps those of each group that has ever had
    /// any, unless it drops gauges that were not set for some time, such as with
    /// `PrometheusBuilder::idle_timeout`. Where groups come and go, [`Labels::Groups`] needs such a
    /// recorder.
    ///
    /// # Cost
    ///
    /// O(caches + entries / 500 + live pairs); with groups, O(1,000 x caches) more. Each call
    /// describes each metric, so that a recorder that is installed later gets the descriptions,
    /// too; most recorders keep them in a map.
    ///
    /// # Concurrent calls
    ///
    /// No lock is held while the recorder is called. So of two concurrent calls, the one that has
    /// read the older values may set them last. A recorder must keep the largest value of a
    /// counter, as [`CounterFn::absolute`](metrics::CounterFn::absolute) requires. A gauge may keep
    /// the older value until it is set again, and for ever if its cache or group has ended. Where
    /// that matters, only one thread at a time may publish.
    ///
    /// ```
    /// use lowwater::{ByteSize, Labels, Runtime};
    ///
    /// let runtime = Runtime::builder().budget(ByteSize::mib(64)).build()?;
    /// // Every 10 seconds:
    /// runtime.publish_metrics(Labels::Groups);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn publish_metrics(&self, labels: Labels) {
        self.publish_own();
        self.registry().publish_metrics(Labels::Shrinkers);
        let groups = match labels {
            Labels::Groups => self.publish_groups(),
            Labels::Shrinkers => Groups::new(),
        };
        self.publish_caches(None, labels, &groups);
    }

    /// Publishes the metrics of one cache, and zeros for caches and groups that have ended.
    pub(crate) fn publish_cache(&self, cache: MaintenanceId, labels: Labels) {
        let groups = match labels {
            Labels::Groups => self.update_groups(),
            Labels::Shrinkers => Groups::new(),
        };
        self.publish_caches(Some(cache), labels, &groups);
    }

    /// Publishes the metrics of the runtime as a whole, and of the reclaimer of each node.
    fn publish_own(&self) {
        RUNTIME.iter().for_each(Metric::describe);
        let (root, marks) = (self.root(), self.reclaimer().watermarks());
        let budget = root.max();
        set_limit(&BUDGET, &[], budget);
        set_limit(&START, &[], marks.low(budget));
        set_limit(&STOP, &[], marks.target(budget));
        USAGE.set(&[], root.usage().get());
        RETIRED.set(&[], self.retired().bytes().get());
        GROUPS.set(&[], self.tree().len() as u64);
        CACHES.set(&[], self.housekeeper().caches() as u64);
        if let Some(pressure) = self.pressure() {
            PRESSURE.describe();
            PRESSURE.set(&[], pressure.stats().level as u64);
        }
        let nodes = self.reclaimer().stats();
        for (metric, count) in &RECLAIMER {
            metric.describe();
            for node in &nodes {
                metric.set(&[Label::new("node", node.node.index().to_string())], count(node));
            }
        }
    }

    /// Returns the groups that have series. Sets the usage and limits of groups that have ended
    /// since the last call to 0.
    fn update_groups(&self) -> Groups {
        GROUP_USAGE.describe();
        GROUP_LIMITS.iter().for_each(|(metric, _)| metric.describe());
        // The lock of `published` is held until the set of groups is stored, so that a group that
        // another publisher adds is not lost. The tree's locks are taken under it, and no lock
        // under those; no user code runs.
        let mut published = self.inner.published.lock();
        let mut groups = Groups::new();
        for path in &published.groups {
            groups.extend(self.find_group(path).map(|group| (path.clone(), group)));
        }
        if groups.len() < GROUPS_MAX.min(self.tree().len()) {
            for group in self.root().descendants() {
                if groups.len() == GROUPS_MAX {
                    break;
                }
                groups.entry(group.path()).or_insert(group);
            }
        }
        published.groups = groups.keys().cloned().collect();
        let (with_usage, ended) =
            std::mem::take(&mut published.with_usage).into_iter().partition(|path| groups.contains_key(path));
        published.with_usage = with_usage;
        drop(published);
        for path in &ended {
            let labels = [label("group", path)];
            GROUP_USAGE.set(&labels, 0);
            GROUP_LIMITS.iter().for_each(|(metric, _)| metric.set(&labels, 0));
        }
        groups
    }

    /// Publishes the usage and limits of the groups that have series, and returns these groups.
    fn publish_groups(&self) -> Groups {
        UNPUBLISHED.describe();
        let groups = self.update_groups();
        self.inner.published.lock().with_usage.extend(groups.keys().cloned());
        UNPUBLISHED.set(&[], self.tree().len().saturating_sub(groups.len()) as u64);
        for (path, group) in &groups {
            let labels = [label("group", path)];
            GROUP_USAGE.set(&labels, group.usage().get());
            for (metric, limit) in &GROUP_LIMITS {
                set_limit(metric, &labels, limit(group));
            }
        }
        groups
    }

    /// Publishes all caches, or only one; with [`Labels::Groups`] also their entries by group. Sets
    /// the gauges of caches that have ended since the last call to 0.
    fn publish_caches(&self, only: Option<MaintenanceId>, labels: Labels, groups: &Groups) {
        PLAIN.iter().chain(&CACHE_GAUGES).chain([&REMOVALS]).for_each(Metric::describe);
        if labels == Labels::Groups {
            CACHE_GROUP_ENTRIES.describe();
        }
        let CachesToPublish { caches, ended } = self.read_caches(only, labels, groups);
        for CacheSeries { label: cache, totals, gauges, entries } in caches {
            let cache = label("cache", &cache);
            let (plain, removals) = totals.split_at(PLAIN.len());
            for (metric, total) in PLAIN.iter().zip(plain) {
                metric.set(from_ref(&cache), *total);
            }
            for (cause, total) in CAUSES.iter().zip(removals) {
                REMOVALS.set(&[cache.clone(), Label::from_static_parts("cause", cause)], *total);
            }
            for (metric, value) in CACHE_GAUGES.iter().zip(gauges) {
                metric.set(from_ref(&cache), value);
            }
            for (group, entries) in entries {
                CACHE_GROUP_ENTRIES.set(&[cache.clone(), label("group", &group)], entries);
            }
        }
        for (cache, groups) in ended {
            let cache = label("cache", &cache);
            CACHE_GAUGES.iter().for_each(|metric| metric.set(from_ref(&cache), 0));
            for group in groups {
                CACHE_GROUP_ENTRIES.set(&[cache.clone(), label("group", &group)], 0);
            }
        }
    }

    /// Reads the figures of the caches, and updates the series that were published so far.
    fn read_caches(&self, only: Option<MaintenanceId>, labels: Labels, groups: &Groups) -> CachesToPublish {
        let mut read: Vec<ReadCache<'_>> = Vec::new();
        let nodes = || (0..self.registry().nodes()).map(|node| NodeId::new(node as u16));
        let is_wanted = |id| only.is_none_or(|only| only == id);
        self.housekeeper().read_each(is_wanted, |id, cache| {
            let entries = |group| nodes().map(|node| cache.count_of(group, node)).sum();
            let by_group = groups.iter().map(|(path, group)| (&**path, entries(group)));
            read.push((id, cache.figures(), by_group.filter(|(_, entries)| *entries > 0).collect()));
        });
        let names = self.registry().metric_labels();
        let mut published = self.inner.published.lock();
        let published = &mut *published;
        // A cache leaves this list before its shrinker's id and its label can be given to another
        // cache: a cache that is still in the list has kept both since it was read. Under the lock
        // of `published`, no publisher adds the next cache of a label meanwhile.
        let living = self.housekeeper().living();
        let is_living = |id| living.binary_search(&MaintenanceId(id)).is_ok();
        let mut all = CachesToPublish::default();
        published.caches.begin_round();
        for (id, figures, by_group) in read {
            if !is_living(id.0) {
                continue;
            }
            let Some(label) = names.get(&figures.shrinker.get()) else { continue };
            let totals = published.caches.add(label, id.0, counters(&figures));
            let CacheFigures { entries, bytes, footprint, .. } = figures;
            let gauges = [entries, bytes.get(), footprint.get()];
            let before = match published.pairs.entry(label.clone()) {
                // Also without groups, if the label's last cache has ended.
                Entry::Occupied(pairs) if labels == Labels::Groups || pairs.get().0 != id => pairs.remove().1,
                _ => BTreeSet::new(),
            };
            let emptied = before.into_iter().filter(|path| !by_group.contains_key(&**path));
            let mut series: Vec<_> = emptied.map(|path| (path, 0)).collect();
            series.extend(by_group.iter().map(|(path, entries)| ((*path).to_owned(), *entries)));
            if labels == Labels::Groups {
                let paths = by_group.into_keys().map(str::to_owned).collect();
                published.pairs.insert(label.clone(), (id, paths));
            }
            all.caches.push(CacheSeries { label: label.clone(), totals, gauges, entries: series });
        }
        for label in published.caches.end_round(is_living) {
            let groups = published.pairs.remove(&label).map(|(_, paths)| paths).unwrap_or_default();
            all.ended.push((label, groups));
        }
        all
    }
}

/// Returns the counters in the order of [`PLAIN`] and [`CAUSES`].
fn counters(figures: &CacheFigures) -> [u64; NR_COUNTERS] {
    let CacheFigures { hits, misses, inserts, rejected, loads, listener_panics, drop_panics, .. } = *figures;
    let CacheFigures { evictions, expired, removed, replaced, .. } = *figures;
    let panics = listener_panics + drop_panics;
    [hits, misses, inserts, rejected, loads, panics, evictions, expired, removed, replaced]
}

/// Sets a limit; no limit is `+Inf`.
fn set_limit(metric: &Metric, labels: &[Label], limit: ByteSize) {
    match limit {
        ByteSize::MAX => metric.set_float(labels, f64::INFINITY),
        bytes => metric.set(labels, bytes.get()),
    }
}

/// Returns a label whose clones share its value.
fn label(key: &'static str, value: &str) -> Label {
    Label::new(key, Arc::<str>::from(value))
}
