//! `stat`: a reply for each name, and one without name and value at the end.
//!
//! The topics are those of the text protocol, except `cachedump`, whose lines are no names with
//! values: memcached does not have it here either.

use std::io;

use super::super::stats;
use crate::protocol::binary::header::ReplyTo;
use crate::protocol::binary::status::Status;
use crate::session::Session;

/// Answers with the statistics of `topic`.
pub async fn stats(
    session: &mut Session,
    to: ReplyTo,
    topic: Option<&[u8]>,
    argument: Option<&[u8]>,
) -> io::Result<()> {
    let is_known = match topic {
        Some(b"reset") => {
            stats::reset(session);
            session.output.binary_stat(to, "", "");
            true
        }
        Some(b"detail") => detail(session, to, argument),
        _ => {
            session.output.set_stats_to(Some(to));
            let outcome = stats::topic_lines(session, topic).await;
            session.output.set_stats_to(None);
            outcome?
        }
    };
    if !is_known {
        session.output.binary_error(to, Status::NotFound, None);
    }
    Ok(())
}

/// As `stats detail`; the dump is the value of one name, as in memcached. Returns whether the
/// request is known and allowed.
fn detail(session: &mut Session, to: ReplyTo, argument: Option<&[u8]>) -> bool {
    let prefixes = &session.server.prefix_stats;
    match argument {
        _ if !session.server.settings.dump => return false,
        Some(b"on") => prefixes.switch(true),
        Some(b"off") => prefixes.switch(false),
        Some(b"dump") => {
            let lines: String = prefixes.lines().iter().map(|line| format!("{line}\r\n")).collect();
            session.output.binary_stat(to, "detailed", &format!("{lines}END\r\n"));
        }
        _ => return false,
    }
    session.output.binary_stat(to, "", "");
    true
}
