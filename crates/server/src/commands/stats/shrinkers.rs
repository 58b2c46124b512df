//! `stats shrinkers`: statistics of each shrinker.
//!
//! An extension; no memcached tool expects it, so its lines may change.

use crate::server::{Server, StatLines};

/// Returns the lines of `stats shrinkers`: for each shrinker, its objects and pairs now, and the
/// counts of its calls and of the objects that it has freed so far. O(live pairs).
pub fn lines(server: &Server) -> StatLines {
    let mut lines = StatLines::new();
    let stats = server.store.runtime().registry().survey();
    for shrinker in &stats.shrinkers {
        let name = shrinker.full_name();
        let pairs = || stats.pairs.iter().filter(|pair| pair.shrinker == shrinker.id);
        for (field, value) in [
            ("objects", pairs().map(|pair| pair.count.unwrap_or(0)).sum()),
            ("live_pairs", pairs().count() as u64),
            ("callbacks", shrinker.callbacks),
            ("requested", shrinker.requested),
            ("scanned", shrinker.scanned),
            ("freed", shrinker.freed),
            ("deferred", shrinker.deferred),
            ("owed", pairs().map(|pair| pair.owed).sum()),
            ("panics", shrinker.panics),
            ("time_us", shrinker.time_ns / 1000),
        ] {
            lines.push((format!("{name}:{field}"), value.to_string()));
        }
        let last_run = match shrinker.last_run_ns {
            Some(then) => (stats.now_ns.saturating_sub(then) / 1_000_000).to_string(),
            None => "never".to_owned(),
        };
        lines.push((format!("{name}:last_run_ms_ago"), last_run));
    }
    lines
}
