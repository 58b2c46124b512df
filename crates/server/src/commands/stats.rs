//! `stats` and its topics: `settings`, `tenants`, `shrinkers`, `reclaim`, `reset`, `items`,
//! `detail`, `slabs`, `sizes`, `conns`.

mod detail;
mod general;
mod items;
mod reclaim;
mod settings;
mod shrinkers;
mod tenants;

use std::io;

use crate::session::Session;

/// Answers with the lines of `topic`.
pub async fn stats(session: &mut Session, topic: Option<&[u8]>, argument: Option<&[u8]>) -> io::Result<()> {
    // So that the statistics include this connection's own commands.
    session.publish_counts();
    let server = std::sync::Arc::clone(&session.server);
    let output = &mut session.output;
    match topic {
        None => general::general(&server, output),
        Some(b"settings") => settings::settings(&server, output),
        Some(b"reset") => {
            server.counters.reset();
            output.line("RESET");
        }
        Some(b"shrinkers") => shrinkers::shrinkers(&server, output),
        Some(b"reclaim") => reclaim::reclaim(&server, output),
        Some(b"tenants") => return tenants::tenants(session).await,
        // Statistics of memcached's slab allocator and connections; there are none here.
        Some(b"slabs" | b"sizes" | b"conns") => output.line("END"),
        Some(b"detail") => return detail::detail(session, argument).await,
        Some(b"items") => items::items(session),
        Some(b"cachedump") => output.line("CLIENT_ERROR stats cachedump not allowed"),
        Some(_) => output.line("ERROR"),
    }
    Ok(())
}
