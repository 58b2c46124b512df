//! `stats tenants`: usage, statistics and limits of each tenant.
//!
//! An extension; no memcached tool expects it.
//!
//! A change must keep the names of the fields, which monitoring reads.

use std::io;

use crate::commands::each_tenant::each_tenant;
use crate::session::Session;

/// Adds the lines of each tenant.
pub async fn tenants(session: &mut Session) -> io::Result<()> {
    each_tenant(session, |out, tenant| {
        let name = &tenant.name;
        for (field, value) in [
            ("bytes", tenant.bytes),
            ("items", tenant.items),
            ("hits", tenant.hits),
            ("misses", tenant.misses),
            ("evictions", tenant.evictions),
        ] {
            out.stat(&format!("{name}:{field}"), value);
        }
        let limits = &tenant.limits;
        for (field, value) in [("min", limits.min), ("low", limits.low), ("high", limits.high), ("max", limits.max)] {
            out.stat(&format!("{name}:{field}"), value);
        }
        let traffic = &tenant.traffic;
        for (field, value) in [
            ("connections", traffic.connections),
            ("refused_requests", traffic.refused_requests),
            ("denied_commands", traffic.denied_commands),
            ("rejected_connections", traffic.rejected_connections),
        ] {
            out.stat(&format!("{name}:{field}"), value);
        }
    })
    .await?;
    session.output.end_stats();
    Ok(())
}
