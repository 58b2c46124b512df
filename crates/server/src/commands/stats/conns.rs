//! `stats conns`: the open listeners and connections, in memcached's fields.
//!
//! The fields and their order are memcached's, which monitoring tools parse. A change must ensure
//! that the table's lock is not held while the lines are written, and that a page keeps numbers
//! only while the output is flushed.

use std::io;
use std::sync::Arc;

use crate::commands::pages::in_pages;
use crate::connections::{ConnectionInfo, ConnectionState};
use crate::session::Session;

/// Sockets that are listed before other connections of the thread run.
const PAGE_SOCKETS: usize = 64;

/// Adds three or four lines for each socket. Flushes whenever the output is full, as there may be
/// many thousands of connections.
pub async fn conns(session: &mut Session) -> io::Result<()> {
    let now = session.server.store.now_seconds();
    let after = |session: &Session, last: Option<&u64>| {
        let page = session.server.open_connections.after(last.copied().unwrap_or(0), PAGE_SOCKETS);
        page.into_iter().map(|info| (info.number, info)).collect()
    };
    let add = |session: &mut Session, info: &Arc<ConnectionInfo>| {
        let (out, number) = (&mut session.output, info.number);
        out.stat(&format!("{number}:addr"), &info.peer);
        if let Some(local) = &info.local {
            out.stat(&format!("{number}:listen_addr"), local);
        }
        // This connection is listed while it writes, and runs the command.
        let is_own = number == session.entry.number();
        let state = if is_own { ConnectionState::Run } else { info.state() };
        out.stat(&format!("{number}:state"), state.name());
        out.stat(&format!("{number}:secs_since_last_cmd"), now.saturating_sub(info.last_input_seconds()));
    };
    in_pages(session, PAGE_SOCKETS, after, add).await?;
    session.output.end_stats();
    Ok(())
}
