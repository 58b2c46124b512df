//! A client connection: reads bytes, runs commands, and writes replies in batches.
//!
//! All memory of a connection is bounded: the input by the longest line (a value that is not short
//! leaves the input as it arrives), the value in progress by `-I` and by the
//! [`receive_budget`](crate::receive_budget) of its tenant and of all together, the output by
//! [`Output::is_full`]. A connection that waits for its client holds an input buffer only if a part
//! of a command is in it.
//!
//! At shutdown, input that has already been received is still read and answered; an incomplete
//! command is dropped.
//!
//! A change must ensure that the memory of a connection stays bounded, whatever its client sends or
//! does not read.

mod binary;
mod end;
mod handshake;

use std::future::{poll_fn, Future};
use std::io;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::sync::watch;

use crate::admission::{admit, admit_store, charge_value};
use crate::commands;
use crate::commands::binary::SaslState;
use crate::connections::{CloseReason, ConnectionEntry, ConnectionState};
use crate::counters::{Counter, PendingCounts};
use crate::decoder::{Decoder, PlainOutcome, PlainStep, Step};
use crate::log::SENT_BYTES_MAX;
use crate::net::input::Input;
use crate::net::output::Output;
use crate::net::stream::Stream;
use crate::protocol::binary::header::REQUEST_MAGIC;
use crate::protocol::login::{LoginDecoder, LoginStep};
use crate::server::{ConnectionPermit, Server, CLOSE_TIME_MAX};
use crate::session::Session;
use crate::settings::protocol::Protocol;
use crate::store::namespace::Namespace;
use crate::store::update::{ROOM_PAUSE, ROOM_PAUSES_MAX};
use crate::timers;
use crate::traffic::connection_permit::TenantPermit;

use end::{end, end_after_answer};
use handshake::shake_hands;

/// After this many reads that filled the buffer, the task yields to other connections. After a read
/// that did not fill it, other connections run at once: a fast client on another processor would
/// have its next request in the socket before a second read, again and again, and the others would
/// starve. `settings/memcached_flags.rs`, the server's README and
/// `src/tests/compatibility/names.rs` (`-R`, `conn_yields`) state the number.
const READS_PER_TURN: u32 = 16;
/// After this many commands that are not plain, the task yields, too: an append to a large value
/// takes 18 bytes of input, and copies all of the value. Lines before a login count as such
/// commands.
const COMMANDS_PER_TURN: u32 = 20;

/// Serves a client until it disconnects, sends an input that cannot be decoded any further, or the
/// server shuts down. A stream that is not plain begins with the handshake of TLS, if that is on.
/// The permit of the namespace's tenant is absent if a login is required, or if a handshake comes
/// first, after which the tenant admits the connection or not.
pub async fn serve(
    permit: ConnectionPermit,
    entry: ConnectionEntry,
    (stream, is_plain): (Stream, bool),
    (namespace, tenant_permit): (Namespace, Option<TenantPermit>),
    closing: watch::Receiver<()>,
) {
    let server = Arc::clone(permit.server());
    let (stream, tenant_permit) = match &server.tls {
        Some(tls) if !is_plain => match shake_hands(&server, tls, stream, &namespace, closing.clone()).await {
            Ok(admitted) => admitted,
            Err(why) => return end(&server, &entry, &CloseReason::Error(why)),
        },
        _ => (stream, tenant_permit),
    };
    let mut connection = Connection::new(&server, stream, entry, namespace, tenant_permit, closing);
    let reason = connection.run().await.unwrap_or_else(CloseReason::Error);
    if connection.session.stream.has_tls() && !matches!(reason, CloseReason::Error(_)) {
        // Without the close message of TLS, a client could not tell the end from a truncation
        // attack. An error means that the client has left, or does not read.
        let _ = timers::timeout(CLOSE_TIME_MAX, connection.session.stream.shutdown()).await;
    }
    end(&server, &connection.session.entry, &reason);
    drop(connection);
    drop(permit);
}

/// A connection that is served; see the module.
struct Connection {
    session: Session,
    /// `Some` until the client has logged in, if a login is required.
    login: Option<LoginDecoder>,
    /// The login of the binary protocol, if one is required.
    sasl: SaslState,
    decoder: Decoder,
    input: Input,
    /// The protocol that the client speaks.
    spoken: Spoken,
    /// A line that is to be logged with its reply.
    sent: Option<Box<[u8]>>,
    /// The client has sent something after which no command can be found.
    is_refused: bool,
    /// Commands that are not plain, since the task last yielded for them.
    commands: u32,
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spoken {
    /// The first byte, which tells, was not examined yet.
    Unknown,
    Text,
    Binary,
}

/// The event for which a connection that waits for input is woken.
enum Wake {
    /// A read that is the end, filled the buffer, or had more than [`Connection::serve_plain`]
    /// serves; and whether all of it is served.
    Read(ReadOutcome, bool),
    /// The idle timeout is over.
    Idle,
    /// The server shuts down.
    Closing,
}

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadOutcome {
    WouldBlock,
    /// The socket had less than the buffer has room for.
    Drained,
    /// The read filled the buffer.
    Full,
    /// End of the stream.
    Closed,
}

impl Connection {
    // Not in `serve`, whose future would have room for the session twice.
    #[inline(always)] // As a call, each request costs some ten instructions more.
    fn new(
        server: &Arc<Server>,
        stream: Stream,
        entry: ConnectionEntry,
        namespace: Namespace,
        tenant_permit: Option<TenantPermit>,
        closing: watch::Receiver<()>,
    ) -> Self {
        let session = Session {
            output: Output::default(),
            counts: PendingCounts::default(),
            server: Arc::clone(server),
            namespace,
            closing,
            stream,
            entry,
            permit: tenant_permit,
            received: 0,
            charged_value: None,
            uncharged: 0,
            pause: Duration::ZERO,
        };
        let mut decoder =
            Decoder::new(server.settings.item_bytes_max, &server.piece_pool, Some(session.receive_budget()));
        let login = server.settings.users.is_some().then(LoginDecoder::default);
        let spoken = match server.settings.protocol {
            Protocol::Auto => Spoken::Unknown,
            Protocol::Ascii => Spoken::Text,
            Protocol::Binary => {
                decoder.begin_binary();
                Spoken::Binary
            }
        };
        Self {
            session,
            login,
            sasl: SaslState::LoggedOut,
            decoder,
            input: Input::default(),
            spoken,
            sent: None,
            is_refused: false,
            commands: 0,
        }
    }

    /// Serves the client in turns: waits for input, reads, runs all complete commands, writes the
    /// replies. Ends when the client leaves, at a fatal error, after the idle timeout, or at
    /// shutdown, and returns which.
    async fn run(&mut self) -> io::Result<CloseReason> {
        self.session.stream.set_nodelay()?;
        let mut closing = self.session.closing.clone();
        let mut closed = pin!(closing.changed());
        // Polled once, to register the task's waker, which stays the same. After that, `is_closing`
        // is enough.
        poll_fn(|cx| Poll::Ready(closed.as_mut().poll(cx).is_ready())).await;
        let idle_time_max = self.session.server.settings.idle_timeout;
        // A timer for the whole connection: see `timers`.
        let mut idle = pin!(idle_time_max.map(timers::sleep));
        loop {
            self.note_wait();
            let mut idle_until = idle_time_max.map(|time| Instant::now() + time);
            let wake = poll_fn(|cx| -> Poll<io::Result<Wake>> {
                if self.session.is_closing() {
                    return Poll::Ready(Ok(Wake::Closing));
                }
                while let Poll::Ready(read) = self.poll_read(cx) {
                    let (read, is_served) = self.serve_read(read)?;
                    if read != ReadOutcome::Drained || !is_served {
                        return Poll::Ready(Ok(Wake::Read(read, is_served)));
                    }
                    self.note_wait();
                    idle_until = idle_time_max.map(|time| Instant::now() + time);
                }
                match (idle.as_mut().as_pin_mut(), idle_until) {
                    (Some(timer), Some(end)) => timers::poll_until(timer, end, cx).map(|()| Ok(Wake::Idle)),
                    _ => Poll::Pending,
                }
            });
            let (mut outcome, mut is_served) = match wake.await? {
                Wake::Read(outcome, is_served) => (outcome, is_served),
                Wake::Idle => {
                    self.session.counts.count(Counter::IdleKicks);
                    self.session.flush().await?;
                    return Ok(CloseReason::IdleTimeout);
                }
                Wake::Closing => {
                    self.drain().await?;
                    return Ok(CloseReason::Shutdown);
                }
            };
            let mut reads = 1;
            loop {
                match outcome {
                    ReadOutcome::WouldBlock => break,
                    ReadOutcome::Closed => return Ok(self.close_reason()),
                    ReadOutcome::Drained | ReadOutcome::Full => {}
                }
                if !is_served && self.serve_input().await?.is_break() {
                    return Ok(self.close_reason());
                }
                if outcome == ReadOutcome::Drained || !self.session.pause.is_zero() {
                    break;
                }
                if reads == READS_PER_TURN {
                    self.yield_turn().await;
                    break;
                }
                reads += 1;
                let read = self.read().await;
                (outcome, is_served) = self.serve_read(read)?;
            }
            // Input that came before the pause is served before the next read; at shutdown, without
            // further pauses, by `drain`.
            while !self.session.pause.is_zero() && !self.session.is_closing() {
                // Boxed, both: idle connections would hold room for them.
                if Box::pin(self.session.wait_out_pause()).await {
                    Box::pin(self.serve_rest(None)).await?;
                    return Ok(self.close_reason());
                }
                if self.serve_input().await?.is_break() {
                    return Ok(self.close_reason());
                }
            }
        }
    }

    /// Ends the stream to the client as [`end_after_answer`] does, and counts what it has sent.
    async fn end_after_refusal(&mut self) -> io::Result<()> {
        let mut discarded = 0;
        let ended = end_after_answer(&mut self.session.stream, &mut self.input, &mut discarded).await;
        // Charged to its tenant when the session ends.
        self.session.note_received(discarded);
        ended
    }

    /// Serves the rest of the input without pauses: of a client that has ended its stream, or at
    /// shutdown the bytes that were received before `end`.
    #[cold]
    async fn serve_rest(&mut self, end: Option<Instant>) -> io::Result<()> {
        loop {
            self.session.pause = Duration::ZERO;
            let unserved = self.input.len();
            if self.serve_input().await?.is_break() || end.is_some_and(|end| Instant::now() >= end) {
                return Ok(());
            }
            // Also lets the event loop poll the socket once more.
            self.yield_turn().await;
            // Otherwise a refused command has left input behind it, which is served first.
            if self.session.pause.is_zero() || self.input.len() == unserved {
                let read = self.read().await;
                if matches!(self.note_read(read)?, ReadOutcome::WouldBlock | ReadOutcome::Closed) {
                    return Ok(());
                }
            }
        }
    }

    /// Publishes what the connection waits for.
    #[inline]
    fn note_wait(&self) {
        let is_in_value = self.decoder.is_in_value(&self.input);
        self.session.entry.set_state(if is_in_value { ConnectionState::ReadValue } else { ConnectionState::Read });
    }

    /// Returns the reason of an end that the client has caused.
    fn close_reason(&self) -> CloseReason {
        match self.is_refused {
            true => CloseReason::Refused,
            false => CloseReason::Normal,
        }
    }

    /// Serves the input that had been received when shutdown began. A client that keeps sending is
    /// cut off after [`CLOSE_TIME_MAX`].
    async fn drain(&mut self) -> io::Result<()> {
        // Boxed: idle connections would hold room for it.
        Box::pin(self.serve_rest(Some(Instant::now() + CLOSE_TIME_MAX))).await?;
        self.session.stream.shutdown().await
    }

    /// Counts the bytes of a read, and serves its plain commands. Returns its outcome, and whether
    /// [`serve_plain`](Self::serve_plain) has served all of it.
    #[inline]
    fn serve_read(&mut self, read: io::Result<usize>) -> io::Result<(ReadOutcome, bool)> {
        let outcome = self.note_read(read)?;
        let has_input = matches!(outcome, ReadOutcome::Drained | ReadOutcome::Full);
        Ok((outcome, has_input && self.serve_plain()?))
    }

    /// Counts the bytes of a read, and returns its outcome.
    #[inline]
    fn note_read(&mut self, read: io::Result<usize>) -> io::Result<ReadOutcome> {
        match read {
            Ok(0) => Ok(ReadOutcome::Closed),
            Ok(read) => {
                self.session.server.store.update_clock();
                self.session.entry.note_input(self.session.server.store.now_seconds());
                self.session.note_received(read as u64);
                Ok(if self.input.is_full() { ReadOutcome::Full } else { ReadOutcome::Drained })
            }
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => Ok(ReadOutcome::WouldBlock),
            Err(why) => Err(why),
        }
    }

    /// Reads what the socket has, without waiting; `WouldBlock` if it has nothing.
    async fn read(&mut self) -> io::Result<usize> {
        let read = poll_fn(|cx| Poll::Ready(self.poll_read(cx))).await;
        match read {
            Poll::Ready(read) => read,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.input.poll_read(&mut self.session.stream, cx)
    }

    /// Runs the plain commands at the front of the input, and writes their replies, as far as
    /// neither has to wait. Returns whether nothing is left to [`serve_input`](Self::serve_input),
    /// which takes more instructions for each read.
    fn serve_plain(&mut self) -> io::Result<bool> {
        let Self { session, decoder, input, .. } = self;
        if self.spoken != Spoken::Text
            || self.login.is_some()
            || session.server.verbosity() > 0
            || session.limited_traffic().is_some()
        {
            return Ok(false);
        }
        // Once for all commands of a read, which take no time; their replies need another check.
        session.check_not_ended()?;
        session.output.set_trace(false);
        let (mut used, mut is_all) = (0, false);
        while !session.output.is_full() {
            let (taken, step) = match decoder.plain_step(&input[used..]) {
                PlainOutcome::Step(taken, step) => (taken, step),
                PlainOutcome::More => {
                    is_all = true;
                    break;
                }
                PlainOutcome::NotPlain => break,
            };
            let is_done = match step {
                PlainStep::Get { key } => {
                    commands::get(session, key);
                    true
                }
                PlainStep::Set { command, value } => commands::set(session, &command, value),
            };
            if !is_done {
                break;
            }
            used += taken;
            if used == input.len() {
                is_all = true;
                break;
            }
        }
        input.advance(used);
        Ok(session.try_flush()? && is_all)
    }

    /// Runs all complete commands in the input, and writes their replies. After a command that a
    /// limit has refused, the rest of the input stays until the pause of the session is over.
    async fn serve_input(&mut self) -> io::Result<ControlFlow<()>> {
        let mut used = 0;
        let mut waits = 0;
        let mut next = ControlFlow::Continue(());
        if self.spoken != Spoken::Text && self.is_binary() {
            // Boxed: connections of the text protocol would hold room for it.
            return Box::pin(self.serve_binary()).await;
        }
        if self.session.output.is_full() {
            // By plain commands: the socket did not accept all of it at once.
            self.session.flush().await?;
        }
        let is_logged = self.session.server.verbosity() > 0;
        self.session.output.set_trace(is_logged);
        while next.is_continue() && used < self.input.len() {
            self.session.check_not_ended()?;
            if let Some(login) = &mut self.login {
                let (taken, step) = login.step(&self.input[used..]);
                used += taken;
                match step {
                    LoginStep::More => break,
                    LoginStep::LineTooLong => {
                        self.is_refused = true;
                        next = ControlFlow::Break(());
                    }
                    LoginStep::Error(why) => self.session.output.line(why),
                    LoginStep::Login { user, password } => {
                        if commands::log_in(&mut self.session, user, password) {
                            self.login = None;
                            self.session.charge_behind_login(self.input.len() - used, false);
                            self.decoder.set_receive_budget(self.session.receive_budget());
                        }
                    }
                }
                self.commands += 1;
                // `sent` is absent until the login: the line, which has a password, is not logged.
                if self.is_due_after_command(is_logged) && self.after_command(is_logged).await?.is_break() {
                    break;
                }
                continue;
            }
            let line_at = is_logged.then(|| self.decoder.next_line_at(self.input.len() - used)).flatten();
            let sent_at = used;
            let (taken, step) = self.decoder.step(&self.input[used..]);
            used += taken;
            // The line is logged together with the first reply after it.
            if let Some(at) = line_at.filter(|at| *at < taken) {
                let line = self.input[sent_at + at..used].split(|byte| *byte == b'\n').next().unwrap_or_default();
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                self.sent = Some(line[..line.len().min(SENT_BYTES_MAX)].into());
            }
            self.commands += u32::from(!matches!(step, Step::Plain(_)));
            next = match step {
                Step::More => break,
                _ if !admit(&mut self.session, &step) => self.after_refusal(),
                Step::Error(refused) => {
                    if !refused.noreply {
                        self.session.output.line(refused.why.text());
                    }
                    self.after_refusal()
                }
                Step::Plain(PlainStep::Get { key }) => {
                    commands::get(&mut self.session, key);
                    ControlFlow::Continue(())
                }
                // Boxed: all idle connections would hold room for the largest command.
                Step::Command(command) => Box::pin(commands::run(&mut self.session, command)).await?,
                Step::Store(request) => Box::pin(commands::store(&mut self.session, request)).await,
                Step::Plain(PlainStep::Set { command, value }) => {
                    if !commands::set(&mut self.session, &command, value) {
                        Box::pin(commands::set_with_wait(&mut self.session, command, value)).await;
                    }
                    ControlFlow::Continue(())
                }
                // As for a complete value: the request waits for room, and is refused after
                // `ROOM_PAUSES_MAX` pauses.
                Step::NoRoom if self.session.server.settings.evict && waits < ROOM_PAUSES_MAX => {
                    waits += 1;
                    self.session.flush().await?;
                    timers::sleep(ROOM_PAUSE).await;
                    continue;
                }
                Step::NoRoom => match self.decoder.abandon_value() {
                    Some(request) if admit_store(&mut self.session, request.noreply) => {
                        commands::no_room(&mut self.session, &request)
                    }
                    _ => ControlFlow::Continue(()),
                },
                Step::TooLarge { verb, key, noreply } => commands::too_large(&mut self.session, verb, &key, noreply),
            };
            // Each value waits for room by itself.
            waits = 0;
            if self.is_due_after_command(is_logged) && self.after_command(is_logged).await?.is_break() {
                break;
            }
        }
        self.input.advance(used);
        self.note_value();
        self.session.flush().await?;
        if self.is_refused {
            // Boxed: all idle connections would hold room for it.
            Box::pin(self.end_after_refusal()).await?;
        }
        Ok(next)
    }

    /// Returns whether [`after_command`](Self::after_command) has anything to do; mostly not.
    #[inline]
    fn is_due_after_command(&self, is_logged: bool) -> bool {
        is_logged
            || self.session.output.is_full()
            || !self.session.pause.is_zero()
            || self.commands >= COMMANDS_PER_TURN
    }

    /// Logs a command, flushes a full output, and lets other connections run after
    /// [`COMMANDS_PER_TURN`]. Breaks if the rest of the input is to wait for the end of a pause.
    async fn after_command(&mut self, is_logged: bool) -> io::Result<ControlFlow<()>> {
        if is_logged {
            self.session.log_exchange(self.sent.take().as_deref());
        }
        if self.session.output.is_full() {
            self.session.flush().await?;
        }
        if !self.session.pause.is_zero() {
            return Ok(ControlFlow::Break(()));
        }
        if self.commands >= COMMANDS_PER_TURN {
            self.commands = 0;
            self.yield_turn().await;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Charges the bytes of a value that is being received, if the tenant is limited. Not those of
    /// a value that stays in the input, which is short.
    #[inline]
    fn note_value(&mut self) {
        if self.session.limited_traffic().is_some() {
            charge_value(&mut self.session, self.decoder.long_value());
        }
    }

    /// Lets other connections of the thread run.
    async fn yield_turn(&mut self) {
        self.session.counts.count(Counter::ConnYields);
        tokio::task::yield_now().await;
    }

    /// Returns whether the client speaks the binary protocol. If the first byte is to tell, it has
    /// arrived, or nothing has.
    fn is_binary(&mut self) -> bool {
        if self.spoken == Spoken::Unknown {
            self.spoken = match self.input.first() {
                None => return false,
                Some(&REQUEST_MAGIC) => Spoken::Binary,
                Some(_) => Spoken::Text,
            };
            let is_binary = self.spoken == Spoken::Binary;
            if is_binary {
                self.decoder.begin_binary();
            }
            let (number, name) = (self.session.entry.number(), if is_binary { "binary" } else { "ascii" });
            self.session.server.log(2, format_args!("<{number} client using the {name} protocol"));
        }
        self.spoken == Spoken::Binary
    }

    /// Ends the connection after a refused line after which the decoder finds no command (too long,
    /// or of HTTP): sets `is_refused`, and returns `Break`.
    fn after_refusal(&mut self) -> ControlFlow<()> {
        self.is_refused = self.decoder.is_closed();
        match self.is_refused {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}
