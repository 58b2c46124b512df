//! `stats detail on | off | dump`: statistics by key prefix.
//!
//! Off by default, since counting costs each command a lookup in a shared map.
//!
//! A change must ensure that nothing is counted while it is off, and that a dump keeps no more than
//! a position while the output is flushed: the client may never read, and clients choose the
//! prefixes.

use std::io;

use crate::commands::pages::in_pages;
use crate::session::Session;

/// The number of lines of a dump that are made at once. Each page costs a walk of all prefixes.
pub const PAGE_LINES: usize = 1_000;

/// Answers as memcached does.
pub async fn detail(session: &mut Session, argument: Option<&[u8]>) -> io::Result<()> {
    match argument {
        _ if !session.server.settings.dump => session.output.line("CLIENT_ERROR stats detail not allowed"),
        Some(b"on") => {
            session.server.prefix_stats.switch(true);
            session.output.line("OK");
        }
        Some(b"off") => {
            session.server.prefix_stats.switch(false);
            session.output.line("OK");
        }
        Some(b"dump") => {
            dump(session).await?;
            session.output.line("END");
        }
        _ => session.output.line("CLIENT_ERROR usage: stats detail on|off|dump"),
    }
    Ok(())
}

/// Adds a line for each prefix. Flushes whenever the output is full, as there may be tens of
/// thousands of prefixes.
async fn dump(session: &mut Session) -> io::Result<()> {
    let after = |session: &Session, last: Option<&Box<[u8]>>| {
        session.server.prefix_stats.lines_after(last.map(|prefix| &**prefix), PAGE_LINES)
    };
    in_pages(session, PAGE_LINES, after, |session, line| session.output.line(line)).await
}
