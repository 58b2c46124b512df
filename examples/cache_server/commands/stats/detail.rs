//! `stats detail on | off | dump`

use crate::connection::Session;

/// Answers as memcached does.
pub fn detail(session: &mut Session, argument: Option<&[u8]>) {
    let Session { output: out, server, .. } = session;
    match argument {
        Some(b"on") => {
            server.prefixes.switch(true);
            out.line("OK");
        }
        Some(b"off") => {
            server.prefixes.switch(false);
            out.line("OK");
        }
        Some(b"dump") => {
            server.prefixes.lines().iter().for_each(|line| out.line(line));
            out.line("END");
        }
        _ => out.line("CLIENT_ERROR usage: stats detail on|off|dump"),
    }
}
