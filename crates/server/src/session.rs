//! A client's session: the output, counts and namespace that its commands use.
//!
//! Apart from `connection.rs`, so that commands can be called without the code that reads and
//! decodes.
//!
//! A change must ensure that counts are published before the replies are written: a client that has
//! read a reply finds its command counted.

use std::future::{poll_fn, Future};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::coop;

use crate::connections::{ConnectionEntry, ConnectionState};
use crate::counters::{Counter, PendingCounts};
use crate::decoder::long_value::LongValue;
use crate::log;
use crate::net::output::Output;
use crate::net::stream::Stream;
use crate::receive_budget::ReceiveBudget;
use crate::server::Server;
use crate::store::namespace::Namespace;
use crate::store::update::UNREAD_TIME_MIN;
use crate::timers;
use crate::traffic::connection_permit::TenantPermit;
use crate::traffic::unread_replies::UnreadReplies;
use crate::traffic::Traffic;

/// The part of a connection that its commands use.
#[derive(Debug)]
pub struct Session {
    pub output: Output,
    pub counts: PendingCounts,
    pub server: Arc<Server>,
    /// The keys that the client's commands can access.
    pub namespace: Namespace,
    /// Carries no message: the server drops the sender at shutdown.
    pub closing: watch::Receiver<()>,
    pub stream: Stream,
    /// The connection's entry in the table of open connections.
    pub entry: ConnectionEntry,
    /// The connection's permit from its tenant; `None` before a login.
    pub permit: Option<TenantPermit>,
    /// Bytes that were received since the last command, if the tenant is limited; charged with the
    /// next command, those of a long value earlier (`admission.rs`).
    pub received: u64,
    /// The value that is being received, if its bytes are charged as they arrive; also after its
    /// last byte, until a command is admitted or refused.
    pub charged_value: Option<LongValue>,
    /// Bytes of the output that are not charged to the tenant: refusals of commands above a limit.
    pub uncharged: usize,
    /// How long the connection must neither decode nor read, as its tenant is above a limit.
    pub pause: Duration,
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
        if self.output.is_full() {
            // A client that reads as fast as the server writes would otherwise keep the task
            // running.
            coop::consume_budget().await;
        }
        if !self.try_flush()? {
            self.entry.set_state(ConnectionState::Write);
            match self.output.referred_bytes() {
                0 => {
                    let Self { output, stream, counts, uncharged, permit, .. } = self;
                    output.flush(stream, |bytes| note_written(counts, uncharged, permit.as_ref(), bytes)).await?;
                }
                // Boxed: all idle connections would hold room for it.
                bytes => Box::pin(self.flush_values(bytes)).await?,
            }
            self.entry.set_state(ConnectionState::Run);
        }
        Ok(())
    }

    /// Writes replies that refer to `bytes` bytes of values, and that the socket has not accepted
    /// at once.
    ///
    /// # Errors
    ///
    /// The connection failed; or its client does not read, and others need the memory (see
    /// [`unread_replies`](crate::traffic::unread_replies)).
    async fn flush_values(&mut self, bytes: u64) -> io::Result<()> {
        let Self { output, stream, counts, uncharged, server, permit, .. } = self;
        let permit = permit.as_ref();
        let mut flush = pin!(output.flush(stream, |bytes| note_written(counts, uncharged, permit, bytes)));
        let Some(permit) = permit else { return flush.await };
        // With TLS, most replies are accepted only here.
        let first = poll_fn(|cx| Poll::Ready(flush.as_mut().poll(cx))).await;
        if let Poll::Ready(flushed) = first {
            return flushed;
        }
        let unread = UnreadReplies::new(&server.unread_replies, permit.traffic(), bytes);
        let begun = Instant::now();
        loop {
            tokio::select! {
                // In this order: a reply that is accepted now does not close the connection.
                biased;
                flushed = &mut flush => return flushed,
                () = server.store.piece_shortage() => {}
            }
            if begun.elapsed() >= UNREAD_TIME_MIN
                && unread.are_too_many(server.store.unread_bytes_max())
                && server.store.is_short_of_pieces()
            {
                return Err(io::Error::other("the client does not read, and other clients need the memory"));
            }
        }
    }

    /// Returns an error if the service has ended. The values may then be in the file of
    /// `--save-file` already: a later command must not be run, and its reply not be written.
    pub fn check_not_ended(&self) -> io::Result<()> {
        match self.server.has_ended() {
            true => Err(io::Error::other("the server has ended")),
            false => Ok(()),
        }
    }

    /// Publishes the counts, and writes the replies that the socket accepts at once. Returns
    /// whether these are all.
    pub fn try_flush(&mut self) -> io::Result<bool> {
        // First: see the module.
        self.publish_counts();
        // After the commands and not only before them: one may have run for long.
        self.check_not_ended()?;
        let before = self.output.unwritten();
        let is_written = self.output.try_write(|slices| self.stream.try_write(slices))?;
        let written = before - self.output.unwritten();
        note_written(&mut self.counts, &mut self.uncharged, self.permit.as_ref(), written);
        Ok(is_written)
    }

    /// Counts bytes that were received.
    pub fn note_received(&mut self, bytes: u64) {
        self.counts.add(Counter::BytesRead, bytes);
        if self.limited_traffic().is_some() {
            self.received += bytes;
        }
    }

    /// Has the next command charge `bytes` that were read behind a login and are not decoded yet:
    /// when they were counted, the session belonged to no tenant with limits, unless
    /// `was_limited`.
    pub fn charge_behind_login(&mut self, bytes: usize, was_limited: bool) {
        if !was_limited && self.limited_traffic().is_some() {
            self.received = bytes as u64;
        }
    }

    /// Returns the traffic of the tenant, if requests, bytes or commands are limited.
    pub fn limited_traffic(&self) -> Option<&Traffic> {
        self.permit.as_ref().and_then(TenantPermit::limited_traffic)
    }

    /// Returns the budget for the values that the connection receives.
    pub fn receive_budget(&self) -> &Arc<ReceiveBudget> {
        let of_server = &self.server.receive_budget;
        self.permit.as_ref().map_or(of_server, |permit| permit.traffic().receive_budget(of_server))
    }

    /// Logs a line that the client has sent and the reply lines that were added since the last
    /// call: from verbosity 2 on all, below only errors. [`Output::set_trace`] must be on.
    #[cold]
    pub fn log_exchange(&mut self, sent: Option<&[u8]>) {
        let (number, all) = (self.entry.number(), self.server.verbosity() >= 2);
        let (mut lines, omitted) = self.output.take_trace();
        if !all {
            let errors = ["ERROR", "CLIENT_ERROR ", "SERVER_ERROR "];
            lines.retain(|line| errors.iter().any(|error| line.starts_with(error)));
            if lines.is_empty() {
                return;
            }
        }
        if let Some(sent) = sent {
            log::write(format_args!("<{number} {}", sent.escape_ascii()));
        }
        for line in lines {
            log::write(format_args!(">{number} {line}"));
        }
        if all && omitted > 0 {
            log::write(format_args!(">{number} ({omitted} more lines)"));
        }
    }

    /// Waits until the limits of the tenant admit a command again, or the server shuts down.
    /// Returns whether the client has ended its stream. A client that has left would otherwise use
    /// its permits until all of its commands are refused, as commands without replies write
    /// nothing that could fail. A client that only ends its stream gets all replies: the commands
    /// are run, or refused, without further pauses.
    #[cold]
    pub async fn wait_out_pause(&mut self) -> bool {
        let pause = std::mem::take(&mut self.pause);
        // A timeout is the end of the pause.
        let _ = timers::timeout(pause, self.closed()).await;
        self.stream.has_ended().await
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

    /// Adds the pending counts to the server's counters.
    pub fn publish_counts(&mut self) {
        self.server.counters.add(&mut self.counts);
    }
}

/// Counts and charges bytes that were written, with these fields of a session: its other ones may
/// be borrowed by the write. At once, as other connections of the tenant send meanwhile, and the
/// client may leave.
#[inline]
fn note_written(counts: &mut PendingCounts, uncharged: &mut usize, permit: Option<&TenantPermit>, bytes: usize) {
    counts.add(Counter::BytesWritten, bytes as u64);
    let free = bytes.min(*uncharged);
    *uncharged -= free;
    if let Some(traffic) = permit.and_then(TenantPermit::limited_traffic) {
        traffic.charge((bytes - free) as u64);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.publish_counts();
        if let Some(traffic) = self.limited_traffic() {
            // Of a command that is not complete.
            traffic.charge(self.received);
        }
    }
}
