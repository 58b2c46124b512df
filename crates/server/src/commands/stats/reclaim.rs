//! `stats reclaim`: statistics of the background reclaimers.
//!
//! An extension; no memcached tool expects it, so its lines may change.

use crate::net::output::Output;
use crate::server::Server;

/// Adds the lines of `stats reclaim`: the work of the background reclaimers, and the memory of the
/// shrinker map.
pub fn reclaim(server: &Server, out: &mut Output) {
    let stats = server.store.runtime().stats();
    out.stat("bytes", stats.usage.get());
    out.stat("limit_maxbytes", stats.budget.get());
    out.stat("arriving_bytes", server.receive_budget.bytes().get());
    out.stat("groups", stats.groups);
    out.stat("live_pairs", stats.registry.live_pairs);
    out.stat("live_groups", stats.registry.live_groups);
    out.stat("map_bytes", stats.registry.map_bytes.get());
    for node in &stats.reclaimers {
        for (field, value) in [
            ("wakeups", node.wakeups),
            ("steps", node.steps),
            ("freed", node.freed),
            ("exhausted", node.exhausted),
            ("pinned", u64::from(node.pinned)),
        ] {
            out.stat(&format!("node{}:{field}", node.node.index()), value);
        }
    }
    out.end_stats();
}
