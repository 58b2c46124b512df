//! `/state.json`: the data of the server's web page, as of now. Counters grow until the server
//! restarts, or `stats reset` sets some of them to 0; the page computes rates from them.
//!
//! Tenants' names are included, for administrators: the [`TENANTS_MAX`] tenants that hold most, and
//! the sum of the rest. Keys and values are never included.
//!
//! A change must ensure that no key and no value is shown. `http/page/page.js` reads the names of
//! the fields.

use lowwater::ByteSize;
use serde_json::{json, Value};

use crate::counters::Counter;
use crate::server::Server;
use crate::store::TenantReport;

/// Number of tenants that are listed by name: about as many as fit on a screen.
const TENANTS_MAX: usize = 20;

/// Returns the state as one JSON object.
pub fn json(server: &Server) -> Value {
    let mut tenants = server.store.reports();
    tenants.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    let rest = tenants.get(TENANTS_MAX..).unwrap_or_default();
    let sum = |figure: fn(&TenantReport) -> u64| rest.iter().map(figure).sum::<u64>();

    let mut state = figures(server);
    state["tenant_count"] = tenants.len().into();
    state["tenants"] = tenants.iter().take(TENANTS_MAX).map(tenant).collect();
    state["others"] = json!({
        "tenants": rest.len(),
        "bytes": sum(|tenant| tenant.bytes),
        "items": sum(|tenant| tenant.items),
        "hits": sum(|tenant| tenant.hits),
        "misses": sum(|tenant| tenant.misses),
        "evictions": sum(|tenant| tenant.evictions),
    });
    state
}

/// Returns the figures of the whole server as one JSON object. Sizes are in bytes.
pub fn figures(server: &Server) -> Value {
    let totals = server.store.totals();
    let stats = server.store.runtime().stats();
    let count = |counter| server.counters.get(counter);
    let shrinkers = &stats.registry.shrinkers;
    let freed: u64 = shrinkers.iter().map(|shrinker| shrinker.freed).sum();
    let in_background: u64 = shrinkers.iter().map(|shrinker| shrinker.freed_in_background).sum();

    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_ms": server.started.elapsed().as_millis() as u64,
        "connections": server.connections(),
        "used": totals.bytes,
        // The configured budget. Under memory pressure the current limit, `ceiling`, is lower.
        "budget": stats.pressure.as_ref().map_or(stats.budget, |pressure| pressure.budget).get(),
        "items": totals.items,
        "evictions": totals.evictions,
        "expired": totals.expired,
        "hits": count(Counter::GetHits),
        "misses": count(Counter::GetMisses),
        "sets": count(Counter::CmdSet),
        "refused": count(Counter::StoreNoMemory),
        // Values evicted ahead of need, and by stores that needed room at once.
        "freed_in_background": in_background,
        "freed_in_foreground": freed.saturating_sub(in_background),
        "pressure": stats.pressure.as_ref().map(|pressure| json!({
            "level": format!("{:?}", pressure.level).to_lowercase(),
            "ceiling": pressure.ceiling.get(),
            "lowered": pressure.lowered,
        })),
        "reclaimers": stats.reclaimers.iter().map(|node| json!({
            "node": node.node.index(),
            "wakeups": node.wakeups,
            "steps": node.steps,
            "freed": node.freed,
            "exhausted": node.exhausted,
        })).collect::<Vec<_>>(),
        "shrinkers": shrinkers.iter().map(|shrinker| json!({
            "name": shrinker.full_name(),
            "callbacks": shrinker.callbacks,
            "scanned": shrinker.scanned,
            "freed": shrinker.freed,
            "time_ns": shrinker.time_ns,
        })).collect::<Vec<_>>(),
    })
}

fn tenant(tenant: &TenantReport) -> Value {
    // `null` for no limit, as JSON has no infinity.
    let limit = |bytes: ByteSize| (bytes < ByteSize::MAX).then_some(bytes.get());
    json!({
        "name": tenant.name,
        "bytes": tenant.bytes,
        "items": tenant.items,
        "hits": tenant.hits,
        "misses": tenant.misses,
        "evictions": tenant.evictions,
        "min": limit(tenant.limits.min),
        "low": limit(tenant.limits.low),
        "high": limit(tenant.limits.high),
        "max": limit(tenant.limits.max),
    })
}
