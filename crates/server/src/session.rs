//! A client's session: the output, counts and namespace that its commands use.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;

use crate::counters::{Counter, PendingCounts};
use crate::net::output::Output;
use crate::net::stream::Stream;
use crate::server::Server;
use crate::store::namespace::Namespace;

/// The part of a connection that its commands use.
#[derive(Debug)]
pub struct Session {
    pub output: Output,
    pub counts: PendingCounts,
    pub server: Arc<Server>,
    /// The keys that its commands can access.
    pub namespace: Namespace,
    /// Carries no message: the server drops the sender at shutdown.
    pub closing: watch::Receiver<()>,
    pub stream: Stream,
}

impl Session {
    /// Adds the line `text` to the replies, unless `noreply` is set.
    pub fn answer(&mut self, noreply: bool, text: &str) {
        if !noreply {
            self.output.line(text);
        }
    }

    /// Publishes the counts, and writes the replies.
    pub async fn flush(&mut self) -> io::Result<()> {
        // Published first, so that a client that has read a reply finds its command counted.
        self.publish_counts();
        let written = self.output.flush(&mut self.stream).await?;
        self.counts.add(Counter::BytesWritten, written);
        Ok(())
    }

    /// Returns whether the server is shutting down.
    pub fn is_closing(&self) -> bool {
        // No message is ever sent, so the only change is the sender's drop, an error.
        self.closing.has_changed().is_err()
    }

    /// Resolves when the server shuts down.
    pub async fn closed(&self) {
        // No message is ever sent, so `changed` returns an error once the sender is dropped.
        let _ = self.closing.clone().changed().await;
    }

    /// Resolves when there may be input, or the client has disconnected.
    pub async fn readable(&self) -> io::Result<()> {
        self.stream.readable().await
    }

    /// Reads available input, and returns whether the client has disconnected.
    pub fn has_left(&mut self, input: &mut Vec<u8>) -> io::Result<bool> {
        match self.stream.try_read_buf(input) {
            Ok(read) => Ok(read == 0),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(why) => Err(why),
        }
    }

    /// Adds the pending counts to the server's counters.
    pub fn publish_counts(&mut self) {
        self.server.counters.add(&mut self.counts);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.publish_counts();
    }
}
