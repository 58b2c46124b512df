//! `stats conns`: the open listeners and connections, in memcached's fields.
//!
//! The fields and their order are memcached's, which monitoring tools parse. A change must keep
//! that the table's lock is not held while the lines are written, nor more than a number while the
//! output is flushed: the client may never read.

use std::io;

use crate::connections::ConnectionState;
use crate::session::Session;

/// Sockets that are listed before other connections of the thread run.
const PAGE_SOCKETS: usize = 64;

/// Adds three or four lines for each socket. Flushes whenever the output is full, as there may be
/// many thousands of connections.
pub async fn conns(session: &mut Session) -> io::Result<()> {
    let now = session.server.store.now_seconds();
    let mut last = 0;
    loop {
        let page = session.server.open_connections.after(last, PAGE_SOCKETS);
        let is_end = page.len() < PAGE_SOCKETS;
        for info in page {
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
            last = number;
        }
        if is_end {
            break;
        }
        if session.output.is_full() {
            session.flush().await?;
        }
        tokio::task::yield_now().await;
    }
    session.output.end_stats();
    Ok(())
}
