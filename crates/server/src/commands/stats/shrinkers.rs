//! `stats shrinkers`: statistics of each shrinker.
//!
//! An extension; no memcached tool expects it, so its lines may change.

use crate::net::output::Output;
use crate::server::Server;

/// Adds the lines of `stats shrinkers`: for each shrinker, its objects and pairs now, and the
/// counts of its calls and of the objects that it has freed so far.
pub fn shrinkers(server: &Server, out: &mut Output) {
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
            out.stat(&format!("{name}:{field}"), value);
        }
        match shrinker.last_run_ns {
            Some(then) => out.stat(&format!("{name}:last_run_ms_ago"), stats.now_ns.saturating_sub(then) / 1_000_000),
            None => out.stat(&format!("{name}:last_run_ms_ago"), "never"),
        }
    }
    out.end_stats();
}
