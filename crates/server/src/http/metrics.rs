//! `/metrics`, in Prometheus' text format. Tenants are listed only with `--metrics-tenants`, up to
//! its number (see `tenant_metrics.rs`): clients can create tenants, and each adds series that
//! never end.
//!
//! A published name must not change: dashboards use it.

use std::fmt::{Display, Write};

use super::tenant_metrics::TenantNumbers;
use crate::server::Server;

/// The content type of Prometheus' text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns all metrics with their current values.
pub fn text(server: &Server) -> String {
    let mut page = Page(String::new());
    let totals = server.store.totals();
    page.one(
        "lowwater_server_uptime_seconds",
        "gauge",
        "Time since the server started",
        server.started.elapsed().as_secs(),
    );
    page.one("lowwater_server_connections", "gauge", "Connections open now", server.connections());
    page.one("lowwater_bytes", "gauge", "Bytes charged to all tenants and to values being received", totals.bytes);
    page.one("lowwater_limit_bytes", "gauge", "Bytes that all tenants may use", server.store.budget().get());
    page.one(
        "lowwater_arriving_bytes",
        "gauge",
        "Bytes charged to values being received",
        server.receive_budget.bytes().get(),
    );
    page.one("lowwater_items", "gauge", "Values in the cache", totals.items);
    page.one("lowwater_evictions_total", "counter", "Values evicted", totals.evictions);
    page.one("lowwater_expired_total", "counter", "Values expired", totals.expired);
    for (name, count) in server.counters.all() {
        let name = name.strip_prefix("total_").unwrap_or(name);
        page.one(&format!("lowwater_server_{name}_total"), "counter", "As in memcached's stats", count);
    }

    let stats = server.store.runtime().stats();
    let registry = &stats.registry;
    page.one("lowwater_groups", "gauge", "Groups, the root included", stats.groups);
    page.one(
        "lowwater_live_pairs",
        "gauge",
        "Triples of shrinker, group and node that may hold objects",
        registry.live_pairs,
    );
    page.one("lowwater_map_bytes", "gauge", "Bytes of the shrinker map", registry.map_bytes.get());
    let shrinkers = || registry.shrinkers.iter().map(|shrinker| (shrinker.full_name(), shrinker));
    for (name, help, value) in [
        ("callbacks", "Calls of count_objects", (|s| s.callbacks) as fn(&lowwater::ShrinkerStats) -> u64),
        ("requested", "Objects requested to be scanned", |s| s.requested),
        ("scanned", "Objects scanned", |s| s.scanned),
        ("freed", "Objects freed", |s| s.freed),
        ("deferred", "Objects deferred", |s| s.deferred),
        ("panics", "Callbacks that panicked", |s| s.panics),
    ] {
        let values = shrinkers().map(|(label, shrinker)| (label, value(shrinker)));
        page.many(&format!("lowwater_shrinker_{name}_total"), "counter", help, "shrinker", values);
    }
    let seconds = shrinkers().map(|(label, shrinker)| (label, shrinker.time_ns as f64 / 1e9));
    page.many("lowwater_shrinker_seconds_total", "counter", "Time in callbacks", "shrinker", seconds);
    let owed = shrinkers().map(|(label, shrinker)| {
        let pairs = registry.pairs.iter().filter(|pair| pair.shrinker == shrinker.id);
        (label, pairs.map(|pair| pair.owed).sum::<u64>())
    });
    page.many("lowwater_shrinker_owed", "gauge", "Objects owed now", "shrinker", owed);

    let nodes = || stats.reclaimers.iter().map(|node| (node.node.index(), node));
    for (name, help, value) in [
        ("wakeups", "Wakeups with work to do", (|n| n.wakeups) as fn(&lowwater::NodeStats) -> u64),
        ("steps", "Passes", |n| n.steps),
        ("freed", "Objects freed", |n| n.freed),
        ("exhausted", "Groups given up for now, as nothing more could be freed", |n| n.exhausted),
    ] {
        let values = nodes().map(|(label, node)| (label, value(node)));
        page.many(&format!("lowwater_reclaimer_{name}_total"), "counter", help, "node", values);
    }
    let tenants = server.listed_tenants.numbers(server.store.reports());
    if !tenants.is_empty() {
        for (name, kind, help, value) in [
            ("bytes", "gauge", "Bytes charged to the tenant", (|t| t.bytes) as fn(&TenantNumbers) -> u64),
            ("items", "gauge", "Values of the tenant", |t| t.items),
            ("hits_total", "counter", "Reads that found a value", |t| t.hits),
            ("misses_total", "counter", "Reads that found none", |t| t.misses),
            ("evictions_total", "counter", "Values evicted", |t| t.evictions),
            ("connections", "gauge", "Connections open now", |t| t.traffic.connections),
            ("refused_requests_total", "counter", "Requests above a limit", |t| t.traffic.refused_requests),
            ("denied_commands_total", "counter", "Denied commands", |t| t.traffic.denied_commands),
            ("rejected_connections_total", "counter", "Connections above the limit", |t| {
                t.traffic.rejected_connections
            }),
        ] {
            let values = tenants.iter().map(|tenant| (&tenant.name, value(tenant)));
            page.many(&format!("lowwater_tenant_{name}"), kind, help, "tenant", values);
        }
    }
    page.0
}

/// The text of the metrics so far.
struct Page(String);

impl Page {
    /// Adds a metric with one value and no label.
    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        // Writing to a `String` does not fail, here and below.
        let _ = writeln!(self.0, "{name} {value}");
    }

    /// Adds a metric with a value for each value of `label`.
    fn many<L: Display, V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        label: &str,
        values: impl Iterator<Item = (L, V)>,
    ) {
        self.head(name, kind, help);
        for (which, value) in values {
            let _ = writeln!(self.0, "{name}{{{label}=\"{}\"}} {value}", escaped(&which.to_string()));
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }
}

/// Returns a label's value, escaped as the format requires between quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_cannot_leave_its_quotes() {
        let mut page = Page(String::new());
        page.many("n", "gauge", "h", "l", [("a\"b\\c\nd", 1)].into_iter());
        assert_eq!(page.0, "# HELP n h\n# TYPE n gauge\nn{l=\"a\\\"b\\\\c\\nd\"} 1\n");
    }
}
