//! The end of a connection.
//!
//! A change must ensure that a client which is refused can read the answer, and that one which
//! keeps sending cannot delay the end for more than [`CLOSE_TIME_MAX`], nor send more than
//! [`DISCARDED_BYTES_MAX`] meanwhile.

use std::future::poll_fn;
use std::io;

use tokio::io::AsyncWriteExt;

use crate::connections::{CloseReason, ConnectionEntry};
use crate::net::input::Input;
use crate::net::stream::Stream;
use crate::server::{Server, CLOSE_TIME_MAX};
use crate::timers;

/// Logs and publishes the end of a connection.
pub(super) fn end(server: &Server, entry: &ConnectionEntry, reason: &CloseReason) {
    entry.publish_end(server.store.watchers(), reason);
    let number = entry.number();
    match reason {
        CloseReason::Error(why) => server.log(1, format_args!("<{number} connection closed (error: {why})")),
        reason => server.log(1, format_args!("<{number} connection closed ({})", reason.name())),
    }
}

/// The connection of a client that sends more than this behind its last answer is closed.
const DISCARDED_BYTES_MAX: u64 = 1 << 20;

/// Ends the stream to a client. A close with unread input would reset the connection, and the
/// client might lose the last answer: its bytes are received and discarded until it has read the
/// answer. They are added to `discarded`.
pub(super) async fn end_after_answer(stream: &mut Stream, input: &mut Input, discarded: &mut u64) -> io::Result<()> {
    let end = async {
        stream.shutdown().await?;
        while *discarded < DISCARDED_BYTES_MAX {
            let received = input.len();
            input.advance(received);
            match poll_fn(|cx| input.poll_read(stream, cx)).await {
                Ok(0) | Err(_) => break,
                Ok(read) => *discarded += read as u64,
            }
            // Otherwise a client that keeps the socket full would hold the thread: the timer is
            // looked at only when this waits.
            tokio::task::yield_now().await;
        }
        Ok(())
    };
    // An error means that the time is over.
    timers::timeout(CLOSE_TIME_MAX, end).await.unwrap_or(Ok(()))
}
