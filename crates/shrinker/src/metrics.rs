//! What the registry did and holds, for the `metrics` facade.
//!
//! Set when somebody asks (from a timer, or before a scrape), not counted up at each visit: a visit costs nothing for it.
//!
//! | name | kind | labels |
//! |---|---|---|
//! | `lowwater_shrinker_callbacks_total`, `_requested_total`, `_scanned_total`, `_freed_total`, `_deferred_total`, `_panics_total` | counter | shrinker |
//! | `lowwater_shrinker_microseconds_total` | counter | shrinker |
//! | `lowwater_live_pairs`, `lowwater_live_groups`, `lowwater_map_bytes` | gauge | |
//! | `lowwater_shrinker_objects`, `lowwater_shrinker_owed` | gauge | shrinker, group, node; only with [`Labels::Groups`] |

use alloc::string::ToString;

use crate::registry::Registry;

/// How much is told apart. Groups are chosen by tenants, so there may be as many as tenants like, each with series of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Labels {
    /// Shrinkers.
    #[default]
    Shrinkers,
    /// Shrinkers, and each group and node for which they hold something. Asks them how much: a call of `count_objects` each.
    Groups,
}

impl Registry {
    /// Sets the metrics to what they are now, at the recorder of the calling thread. O(shrinkers + live pairs).
    ///
    /// Counters of a shrinker that has gone stay where they were; a series of a pair that is not live any more keeps its last
    /// value until the recorder forgets it.
    pub fn publish_metrics(&self, labels: Labels) {
        let stats = if labels == Labels::Groups { self.survey() } else { self.snapshot() };
        for shrinker in &stats.shrinkers {
            let name = shrinker.full_name();
            for (metric, value) in [
                ("lowwater_shrinker_callbacks_total", shrinker.callbacks),
                ("lowwater_shrinker_requested_total", shrinker.requested),
                ("lowwater_shrinker_scanned_total", shrinker.scanned),
                ("lowwater_shrinker_freed_total", shrinker.freed),
                ("lowwater_shrinker_deferred_total", shrinker.deferred),
                ("lowwater_shrinker_panics_total", shrinker.panics),
                ("lowwater_shrinker_microseconds_total", shrinker.time_ns / 1000),
            ] {
                metrics::counter!(metric, "shrinker" => name.clone()).absolute(value);
            }
        }
        metrics::gauge!("lowwater_live_pairs").set(stats.live_pairs as f64);
        metrics::gauge!("lowwater_live_groups").set(stats.live_groups as f64);
        metrics::gauge!("lowwater_map_bytes").set(stats.map_bytes.get() as f64);
        if labels == Labels::Shrinkers {
            return;
        }
        for pair in &stats.pairs {
            let Some(shrinker) = stats.shrinker(pair.shrinker) else { continue };
            let labels = [
                ("shrinker", shrinker.full_name()),
                ("group", pair.memcg.path()),
                ("node", pair.node.index().to_string()),
            ];
            metrics::gauge!("lowwater_shrinker_objects", &labels).set(pair.count.unwrap_or(0) as f64);
            metrics::gauge!("lowwater_shrinker_owed", &labels).set(pair.owed as f64);
        }
    }
}
