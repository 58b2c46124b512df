//! `watch evictions`: prints a line for each evicted value, until the client disconnects.

use std::io;
use std::ops::ControlFlow;

use crate::session::Session;

/// Answers `OK`, or an error if there are too many watchers; after `OK`, writes the lines of
/// evictions. Input is discarded.
pub async fn evictions(session: &mut Session) -> io::Result<ControlFlow<()>> {
    let Some(mut lines) = session.server.store.watch_evictions() else {
        session.output.line("WATCHER_TOO_MANY log watcher limit reached");
        return Ok(ControlFlow::Continue(()));
    };
    session.output.line("OK");
    session.flush().await?;
    let mut input = Vec::with_capacity(1024);
    loop {
        tokio::select! {
            _ = session.closed() => return Ok(ControlFlow::Break(())),
            ready = session.readable() => {
                ready?;
                input.clear();
                if session.has_left(&mut input)? {
                    return Ok(ControlFlow::Break(()));
                }
            }
            line = lines.recv() => match line {
                Some(line) => session.output.push(line.as_bytes()),
                None => return Ok(ControlFlow::Break(())),
            }
        }
        while let Ok(line) = lines.try_recv() {
            session.output.push(line.as_bytes());
            if session.output.is_full() {
                break;
            }
        }
        session.flush().await?;
    }
}
