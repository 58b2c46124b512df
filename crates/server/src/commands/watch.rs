//! `watch`: prints a line for each event of the given kinds, until the client disconnects.
//!
//! A watcher that does not read misses lines; it never delays an event (`watchers.rs`).
//!
//! A change must ensure that a watcher that does not read takes no more memory than one full
//! output: further lines wait in its queue, or are missed.

use std::io;
use std::ops::ControlFlow;

use tokio::io::AsyncReadExt;

use crate::admission::charge_received;
use crate::connections::ConnectionState;
use crate::protocol::event::EventSet;
use crate::session::Session;

/// Answers `OK`, or an error if there are too many watchers or if `watch` is not allowed; after
/// `OK`, writes the lines of `events`. Input is counted, charged and discarded. After input above
/// the limit of the tenant's bytes, nothing is read or written until they are paid for, or for a
/// second.
pub async fn watch(session: &mut Session, events: EventSet) -> io::Result<ControlFlow<()>> {
    if !session.server.settings.watch {
        session.output.line("CLIENT_ERROR watch commands not allowed");
        return Ok(ControlFlow::Continue(()));
    }
    let Some(mut lines) = session.server.store.watchers().subscribe(events) else {
        session.output.line("WATCHER_TOO_MANY log watcher limit reached");
        return Ok(ControlFlow::Continue(()));
    };
    session.output.line("OK");
    session.flush().await?;
    let mut input = Vec::with_capacity(1024);
    let mut closing = session.closing.clone();
    loop {
        input.clear();
        session.entry.set_state(ConnectionState::Watch);
        tokio::select! {
            // No message is ever sent: the sender is dropped when the server shuts down.
            _ = closing.changed() => return Ok(ControlFlow::Break(())),
            // A zero means that the client has disconnected. A dropped `read_buf` loses no input.
            read = session.stream.read_buf(&mut input) => match read? {
                0 => return Ok(ControlFlow::Break(())),
                read => {
                    session.note_received(read as u64);
                    charge_received(session);
                }
            },
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
        // The end of a stream behind unread input would otherwise be noticed after all pauses.
        if !session.pause.is_zero() && session.wait_out_pause().await {
            return Ok(ControlFlow::Break(()));
        }
    }
}
