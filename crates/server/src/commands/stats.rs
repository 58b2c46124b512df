//! `stats` and its topics: memcached's `settings`, `items`, `slabs`, `sizes`, `conns`, `cachedump`,
//! `detail` and `reset`, and this server's `tenants`, `shrinkers` and `reclaim`.
//!
//! Names and order of the lines are memcached's where it has them; tools parse them. A file of this
//! folder has one topic, except `cpu_time`, which `general` uses, and `walk`, which answers with
//! the lines of `shrinkers` and `reclaim`.
//!
//! A change must ensure that memcached's topics keep their names and the order of their lines, and
//! that the connection's own commands are counted before the reply is written.
//! `src/tests/compatibility/names.rs` has a row for each name of memcached's topics.

mod cachedump;
mod conns;
mod cpu_time;
pub mod detail;
mod general;
mod items;
mod reclaim;
mod settings;
mod shrinkers;
pub mod sizes;
mod slabs;
mod tenants;
mod walk;

use std::io;

use crate::session::Session;

/// Answers with the lines of `topic`. `arguments` are the words after the topic.
pub async fn stats(session: &mut Session, topic: Option<&[u8]>, arguments: [Option<&[u8]>; 2]) -> io::Result<()> {
    match topic {
        Some(b"reset") => {
            reset(session);
            session.output.line("RESET");
        }
        Some(b"detail") => return detail::detail(session, arguments[0]).await,
        Some(b"cachedump") => return cachedump::cachedump(session, arguments).await,
        _ => {
            if !topic_lines(session, topic).await? {
                session.output.line("ERROR");
            }
        }
    }
    Ok(())
}

/// Sets the statistics to 0.
pub fn reset(session: &mut Session) {
    // So that the counts of this connection's own commands are reset, too.
    session.publish_counts();
    session.server.counters.reset();
    session.server.store.reset_stats();
    session.server.prefix_stats.clear();
}

/// Answers with the lines of a topic that has names and values; returns false if `topic` is none.
pub async fn topic_lines(session: &mut Session, topic: Option<&[u8]>) -> io::Result<bool> {
    // So that the statistics include this connection's own commands.
    session.publish_counts();
    let server = std::sync::Arc::clone(&session.server);
    let output = &mut session.output;
    match topic {
        None => general::general(&server, output),
        Some(b"settings") => settings::settings(&server, output),
        Some(b"slabs") => slabs::slabs(&server, output),
        Some(b"shrinkers") => walk::walk(session, |server| &server.last_shrinkers, shrinkers::lines).await,
        Some(b"reclaim") => walk::walk(session, |server| &server.last_reclaim, reclaim::lines).await,
        Some(b"tenants") => tenants::tenants(session).await?,
        Some(b"sizes") => sizes::sizes(session).await?,
        Some(b"conns") => conns::conns(session).await?,
        Some(b"items") => items::items(session).await?,
        Some(_) => return Ok(false),
    }
    Ok(true)
}
