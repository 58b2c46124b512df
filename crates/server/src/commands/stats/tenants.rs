//! `stats tenants`: usage, statistics and limits of each tenant.
//!
//! An extension; no memcached tool expects it.
//!
//! A change must ensure that no lock is held while the output is flushed, and only a pointer for
//! each tenant: the client may never read, and clients choose the names.

use std::io;

use crate::session::Session;
use crate::store::tenant::TENANTS_PER_TURN;

/// Adds the lines of each tenant. Flushes whenever the output is full, as there may be tens of
/// thousands of tenants.
pub async fn tenants(session: &mut Session) -> io::Result<()> {
    for (at, tenant) in session.server.store.tenants().into_iter().enumerate() {
        if at % TENANTS_PER_TURN == TENANTS_PER_TURN - 1 {
            tokio::task::yield_now().await;
        }
        let tenant = session.server.store.report(&tenant);
        let name = &tenant.name;
        let out = &mut session.output;
        for (field, value) in [
            ("bytes", tenant.bytes),
            ("items", tenant.items),
            ("hits", tenant.hits),
            ("misses", tenant.misses),
            ("evictions", tenant.evictions),
        ] {
            out.stat(&format!("{name}:{field}"), value);
        }
        let limits = tenant.limits;
        for (field, value) in [("min", limits.min), ("low", limits.low), ("high", limits.high), ("max", limits.max)] {
            out.stat(&format!("{name}:{field}"), value);
        }
        let traffic = tenant.traffic;
        for (field, value) in [
            ("connections", traffic.connections),
            ("refused_requests", traffic.refused_requests),
            ("denied_commands", traffic.denied_commands),
            ("rejected_connections", traffic.rejected_connections),
        ] {
            out.stat(&format!("{name}:{field}"), value);
        }
        if out.is_full() {
            session.flush().await?;
        }
    }
    session.output.end_stats();
    Ok(())
}
