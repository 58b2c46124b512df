//! `stats conns`: the open listeners and connections, in memcached's fields.
//!
//! The fields and their order are memcached's, which monitoring tools parse. A change must keep
//! that the table's lock is not held while the lines are written.

use std::io;

use crate::connections::ConnectionState;
use crate::session::Session;

/// Adds three or four lines for each socket. Flushes whenever the output is full, as there may be
/// many thousands of connections.
pub async fn conns(session: &mut Session) -> io::Result<()> {
    let now = session.server.store.now_seconds();
    for info in session.server.open_connections.all() {
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
        if out.is_full() {
            session.flush().await?;
        }
    }
    session.output.end_stats();
    Ok(())
}
