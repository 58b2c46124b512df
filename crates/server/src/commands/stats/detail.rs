//! `stats detail on | off | dump`: statistics by key prefix.
//!
//! Off by default, since counting costs each command a lookup in a shared map.
//!
//! A change must ensure that nothing is counted while it is off.

use std::io;

use crate::session::Session;

/// Answers as memcached does. Flushes whenever the output is full, as there may be tens of
/// thousands of prefixes.
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
            for line in session.server.prefix_stats.lines() {
                session.output.line(&line);
                if session.output.is_full() {
                    session.flush().await?;
                }
            }
            session.output.line("END");
        }
        _ => session.output.line("CLIENT_ERROR usage: stats detail on|off|dump"),
    }
    Ok(())
}
