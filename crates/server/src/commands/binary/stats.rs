//! `stat`: a reply for each name, and one without name and value at the end.
//!
//! The topics are those of the text protocol, except `cachedump`, whose lines are no names with
//! values: memcached does not have it here either.

use std::io;

use super::super::stats;
use super::super::stats::detail::PAGE_LINES;
use crate::protocol::binary::header::ReplyTo;
use crate::protocol::binary::status::Status;
use crate::session::Session;

/// A reply with a part of a dump ends with the line that reaches this length.
const DUMP_BYTES: usize = 64 * 1024;

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
        Some(b"detail") => detail(session, to, argument).await?,
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

/// As `stats detail`; the dump is the value of one name, as in memcached, or of several replies
/// with this name if it is long. Returns whether the request is known and allowed.
async fn detail(session: &mut Session, to: ReplyTo, argument: Option<&[u8]>) -> io::Result<bool> {
    let prefixes = &session.server.prefix_stats;
    match argument {
        _ if !session.server.settings.dump => return Ok(false),
        Some(b"on") => prefixes.switch(true),
        Some(b"off") => prefixes.switch(false),
        Some(b"dump") => dump(session, to).await?,
        _ => return Ok(false),
    }
    session.output.binary_stat(to, "", "");
    Ok(true)
}

/// Adds the lines of all prefixes. A reply begins with its length, so all of it is in memory until
/// it is read; hence the parts.
async fn dump(session: &mut Session, to: ReplyTo) -> io::Result<()> {
    let mut last: Option<Box<[u8]>> = None;
    loop {
        let page = session.server.prefix_stats.lines_after(last.as_deref(), PAGE_LINES);
        let mut is_end = page.len() < PAGE_LINES;
        let mut lines = String::new();
        for (prefix, line) in page {
            lines.push_str(&line);
            lines.push_str("\r\n");
            last = Some(prefix);
            if lines.len() >= DUMP_BYTES {
                // The rest of the page is dropped, and made again for the next reply.
                is_end = false;
                break;
            }
        }
        if is_end {
            lines.push_str("END\r\n");
        }
        session.output.binary_stat(to, "detailed", &lines);
        drop(lines);
        if is_end {
            return Ok(());
        }
        if session.output.is_full() {
            session.flush().await?;
        }
        // A page takes as long as many commands.
        tokio::task::yield_now().await;
    }
}
