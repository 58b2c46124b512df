//! `stats [settings | tenants | shrinkers | reclaim | reset | items | detail | slabs | sizes | conns]`

mod detail;
mod items;

use std::io;

use crate::connection::Session;
use crate::stats::{self, stat};

/// Answers with the topic's lines.
pub async fn stats(session: &mut Session, topic: Option<&[u8]>, argument: Option<&[u8]>) -> io::Result<()> {
    // This connection's own commands count as well.
    session.settle();
    let server = std::sync::Arc::clone(&session.server);
    let output = &mut session.output;
    match topic {
        None => stats::general(&server, output),
        Some(b"settings") => stats::settings(&server, output),
        Some(b"reset") => stats::reset(&server, output),
        Some(b"shrinkers") => stats::shrinkers(&server, output),
        Some(b"reclaim") => stats::reclaim(&server, output),
        Some(b"tenants") => return tenants(session).await,
        // What a slab allocator would have to tell; there is none here.
        Some(b"slabs" | b"sizes" | b"conns") => output.line("END"),
        Some(b"detail") => return detail::detail(session, argument).await,
        Some(b"items") => items::items(session),
        Some(b"cachedump") => output.line("CLIENT_ERROR stats cachedump not allowed"),
        Some(_) => output.line("ERROR"),
    }
    Ok(())
}

/// Nine lines for each tenant. There may be tens of thousands: written out as they are made.
async fn tenants(session: &mut Session) -> io::Result<()> {
    for tenant in session.server.store.tenants() {
        let name = &tenant.name;
        let out = &mut session.output;
        for (field, value) in [
            ("bytes", tenant.bytes),
            ("items", tenant.items),
            ("hits", tenant.hits),
            ("misses", tenant.misses),
            ("evictions", tenant.evictions),
        ] {
            stat(out, &format!("{name}:{field}"), value);
        }
        let limits = tenant.limits;
        for (field, value) in [("min", limits.min), ("low", limits.low), ("high", limits.high), ("max", limits.max)] {
            stat(out, &format!("{name}:{field}"), value);
        }
        if out.is_full() {
            session.flush().await?;
        }
    }
    session.output.line("END");
    Ok(())
}
