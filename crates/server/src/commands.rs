//! The implementation of each command.
//!
//! A parsed `Command` comes from the decoder; each file of this folder runs the commands of one
//! kind on the store and writes their replies into the session's output.
//!
//! A change must ensure that replies to memcached's commands are memcached's, byte for byte
//! (`ci/memcached.sh`; docs/MEMCACHED.md has the exceptions), and that a tenant's own connection
//! runs no command of `concerns_all`.

mod admin;
mod arithmetic;
pub mod binary;
mod crawl;
mod delete;
mod each_tenant;
mod events;
mod get;
mod login;
mod meta;
mod pages;
pub mod stats;
mod store;
mod touch;
mod watch;

use std::io;
use std::ops::ControlFlow;

pub use get::get;
pub use login::log_in;
pub use store::{no_room, set, set_with_wait, store, too_large};

use crate::counters::Counter;
use crate::protocol::command::Command;
use crate::server::Stop;
use crate::session::Session;
use crate::version::VERSION;

/// memcached's highest verbosity.
#[doc(alias = "MAX_VERBOSITY_LEVEL")]
const VERBOSITY_MAX: u32 = 2;

/// Runs a command that has no data block. Returns `Break` if the connection is to be closed. The
/// large futures of rare commands are boxed, so that a waiting connection does not reserve room for
/// them.
///
/// # Errors
///
/// The connection failed while the reply was written.
pub async fn run(session: &mut Session, command: Command<'_>) -> io::Result<ControlFlow<()>> {
    if session.namespace.is_restricted() && concerns_all(&command) {
        session.answer(command.is_noreply(), "CLIENT_ERROR not allowed on a tenant's own connection");
        return Ok(ControlFlow::Continue(()));
    }
    match command {
        Command::Get { keys, unique, touch } => get::get_all(session, keys, unique, touch).await?,
        Command::Delete { key, noreply } => delete::delete(session, key, noreply),
        Command::Arithmetic { key, increment, delta, noreply } => {
            let delta = arithmetic::Delta { increment, amount: delta };
            Box::pin(arithmetic::arithmetic(session, key, delta, noreply)).await;
        }
        Command::Touch { key, exptime, noreply } => touch::touch(session, key, exptime, noreply),
        Command::Stats { topic, argument, second } => {
            Box::pin(stats::stats(session, topic, [argument, second])).await?
        }
        Command::FlushAll { exptime, noreply } => {
            // As in memcached: a refused flush counts as well.
            session.counts.count(Counter::CmdFlush);
            if session.server.settings.flush {
                session.server.flush(exptime).await;
                session.answer(noreply, "OK");
            } else {
                session.answer(noreply, "CLIENT_ERROR flush_all not allowed");
            }
        }
        Command::Verbosity { level, noreply } => {
            session.server.set_verbosity(level.min(VERBOSITY_MAX) as u8);
            session.answer(noreply, "OK");
        }
        Command::Version => session.output.format(format_args!("VERSION {VERSION}")),
        Command::Meta(meta) => Box::pin(meta::meta(session, meta)).await,
        Command::MetaDebug { key } => meta::debug(session, &key),
        Command::MetaNoop => session.output.line("MN"),
        Command::MemoryLimit { megabytes, noreply } => admin::memory_limit(session, megabytes, noreply),
        Command::TenantSet { name, limits } => admin::tenant_set(session, name, limits),
        Command::TenantList => admin::tenant_list(session).await?,
        Command::Watch { events } => return watch::watch(session, events).await,
        Command::Crawl { crawl, everything } => crawl::crawl(session, crawl, everything).await?,
        Command::Shutdown { .. } if !session.server.settings.shutdown => {
            session.output.line("SERVER_ERROR: shutdown not enabled");
        }
        Command::Shutdown { graceful } => {
            session.server.stop(if graceful { Stop::Save } else { Stop::Discard });
            return Ok(ControlFlow::Break(()));
        }
        Command::Quit => return Ok(ControlFlow::Break(())),
        Command::Store(_) => unreachable!("the decoder keeps store commands until their value is complete"),
    }
    Ok(ControlFlow::Continue(()))
}

/// Returns whether a tenant's own connection must not run the command: it changes the server, or
/// reads or changes other tenants' values or connections. Statistics that are sums over all tenants
/// may be read, except those that take a walk over all values or tenants.
fn concerns_all(command: &Command<'_>) -> bool {
    match command {
        Command::FlushAll { .. }
        | Command::Verbosity { .. }
        | Command::Shutdown { .. }
        | Command::MemoryLimit { .. }
        | Command::TenantSet { .. }
        | Command::TenantList
        | Command::Watch { .. }
        | Command::Crawl { .. } => true,
        Command::Stats { topic, .. } => {
            let all: [&[u8]; 8] =
                [b"tenants", b"detail", b"reset", b"sizes", b"conns", b"cachedump", b"shrinkers", b"reclaim"];
            topic.is_some_and(|topic| all.contains(&topic))
        }
        _ => false,
    }
}
