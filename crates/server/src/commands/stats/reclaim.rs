//! `stats reclaim`: statistics of the background reclaimers.
//!
//! An extension; no memcached tool expects it, so its lines may change.

use crate::server::{Server, StatLines};

/// Returns the lines of `stats reclaim`: the work of the background reclaimers, and the memory of
/// the shrinker map. O(live pairs).
pub fn lines(server: &Server) -> StatLines {
    let stats = server.store.runtime().stats();
    let fields = [
        ("bytes", stats.usage.get()),
        ("limit_maxbytes", stats.budget.get()),
        ("arriving_bytes", server.receive_budget.bytes().get()),
        ("groups", stats.groups as u64),
        ("live_pairs", stats.registry.live_pairs as u64),
        ("live_groups", stats.registry.live_groups as u64),
        ("map_bytes", stats.registry.map_bytes.get()),
    ];
    let mut lines: StatLines = fields.map(|(field, value)| (field.to_owned(), value.to_string())).into();
    for node in &stats.reclaimers {
        for (field, value) in [
            ("wakeups", node.wakeups),
            ("steps", node.steps),
            ("freed", node.freed),
            ("exhausted", node.exhausted),
            ("pinned", u64::from(node.pinned)),
        ] {
            lines.push((format!("node{}:{field}", node.node.index()), value.to_string()));
        }
    }
    lines
}
