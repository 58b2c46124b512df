//! What each command means.

mod arithmetic;
mod control;
mod crawl;
mod delete;
mod get;
mod log_in;
mod meta;
mod stats;
mod store;
mod touch;
mod watch;

use std::io;

pub use log_in::log_in;
pub use store::{no_room, store, too_large};

use crate::connection::{Next, Session};
use crate::parse::Command;
use crate::stats::Counter;
use crate::VERSION;

/// memcached's highest verbosity.
const VERBOSITY_MAX: u32 = 3;

/// Runs one command that came without a value. What would need much room while it runs has a block of its own for so long: a connection that
/// waits has room for the rest.
///
/// # Errors
///
/// The client left while it was being answered.
pub async fn run(session: &mut Session, command: Command<'_>) -> io::Result<Next> {
    session.server.note(2, format_args!("< {command:?}"));
    if session.scope.is_tenants() && concerns_all(&command) {
        let noreply = matches!(
            command,
            Command::FlushAll { noreply: true, .. }
                | Command::Verbosity { noreply: true, .. }
                | Command::MemoryLimit { noreply: true, .. }
        );
        answer(session, noreply, "CLIENT_ERROR not allowed on a tenant's own connection");
        return Ok(Next::Serve);
    }
    match command {
        Command::Get { keys, unique, touch } => get::get(session, keys, unique, touch).await?,
        Command::Delete { key, noreply } => delete::delete(session, key, noreply),
        Command::Arithmetic { key, increment, delta, noreply } => {
            let delta = arithmetic::Delta { increment, amount: delta };
            Box::pin(arithmetic::arithmetic(session, key, delta, noreply)).await;
        }
        Command::Touch { key, exptime, noreply } => touch::touch(session, key, exptime, noreply),
        Command::Stats { topic, argument } => stats::stats(session, topic, argument).await?,
        Command::FlushAll { exptime, noreply } => {
            session.tally.count(Counter::CmdFlush);
            session.server.flush(exptime).await;
            answer(session, noreply, "OK");
        }
        Command::Verbosity { level, noreply } => {
            session.server.set_verbosity(level.min(VERBOSITY_MAX) as u8);
            answer(session, noreply, "OK");
        }
        Command::Version => session.output.format(format_args!("VERSION {VERSION}")),
        Command::Meta(meta) => Box::pin(meta::meta(session, meta)).await,
        Command::MetaDebug { key } => meta::debug(session, &key),
        Command::MetaNoop => session.output.line("MN"),
        Command::MemoryLimit { megabytes, noreply } => control::memory_limit(session, megabytes, noreply),
        Command::TenantSet { name, limits } => control::tenant_set(session, name, limits),
        Command::TenantList => control::tenant_list(session).await?,
        Command::WatchEvictions => return watch::evictions(session).await,
        Command::Crawl { crawl, everything } => crawl::crawl(session, crawl, everything).await?,
        Command::Quit => return Ok(Next::Close),
        Command::Store(_) => unreachable!("the decoder keeps store commands until their value is there"),
    }
    Ok(Next::Serve)
}

/// Whether it reaches beyond one tenant's values.
fn concerns_all(command: &Command<'_>) -> bool {
    match command {
        Command::FlushAll { .. }
        | Command::Verbosity { .. }
        | Command::MemoryLimit { .. }
        | Command::TenantSet { .. }
        | Command::TenantList
        | Command::WatchEvictions
        | Command::Crawl { .. } => true,
        Command::Stats { topic, .. } => matches!(topic, Some(b"tenants" | b"detail" | b"reset")),
        _ => false,
    }
}

/// Says `text`, unless silence was asked for.
fn answer(session: &mut Session, noreply: bool, text: &str) {
    if !noreply {
        session.output.line(text);
    }
}
