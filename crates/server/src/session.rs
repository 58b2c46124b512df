//! A client's session: its reply buffer, counts and namespace, for the commands that run in it.

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
    /// The keys that its commands reach.
    pub namespace: Namespace,
    /// It never sends: it only closes.
    pub closing: watch::Receiver<()>,
    pub stream: Stream,
}

impl Session {
    /// Adds the line `text` to the replies, unless silence was asked for.
    pub fn answer(&mut self, noreply: bool, text: &str) {
        if !noreply {
            self.output.line(text);
        }
    }

    /// Writes the replies out, and publishes the counts.
    pub async fn flush(&mut self) -> io::Result<()> {
        // Counted first: whoever reads the reply finds the command counted.
        self.publish_counts();
        let written = self.output.flush(&mut self.stream).await?;
        self.counts.add(Counter::BytesWritten, written);
        Ok(())
    }

    /// Whether the server closes.
    pub fn is_closing(&self) -> bool {
        // It never sends, so an error is all there can be to see.
        self.closing.has_changed().is_err()
    }

    /// Resolves when the server closes.
    pub async fn closed(&self) {
        // It never sends, so an error is what comes.
        let _ = self.closing.clone().changed().await;
    }

    /// Resolves when the client may have sent something, or left.
    pub async fn readable(&self) -> io::Result<()> {
        self.stream.readable().await
    }

    /// Reads what there is; whether the client has left.
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
