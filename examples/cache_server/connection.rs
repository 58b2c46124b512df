//! One client: bytes in, commands, replies out in batches.
//!
//! Everything a connection holds is bounded: the input by the longest line (values leave it as they arrive), the value in
//! progress by `-I`, the output by [`Output::is_full`]. A connection that waits for its client holds no input buffer at all.

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::commands;
use crate::parse::{Decoder, Refusal, Step};
use crate::reply::Output;
use crate::scope::Scope;
use crate::server::{Seat, Server};
use crate::stats::{Counter, Tally};

/// Taken when the first bytes arrive; enough for many commands.
const INPUT_BYTES: usize = 16 * 1024;

/// A read fills at most so much, however long the line in progress is.
const READ_BYTES_MAX: usize = 64 * 1024;

/// After so many reads without a wait, others get their turn.
const READS_PER_TURN: u32 = 16;

/// Serves one client until it leaves, errs beyond repair, or the server closes.
pub async fn serve(seat: Seat, stream: TcpStream, closing: watch::Receiver<()>) {
    let server = Arc::clone(seat.server());
    let decoder = Decoder::new(server.settings.item_bytes_max, &server.stash);
    let session = Session {
        output: Output::default(),
        tally: Tally::default(),
        server: Arc::clone(&server),
        scope: Scope::default(),
        stream,
    };
    let mut connection = Connection { session, decoder, input: Vec::new() };
    if let Err(why) = connection.run(closing).await {
        server.note(1, format_args!("connection closed: {why}"));
    }
    drop(connection);
    drop(seat);
}

/// What a command may use of its connection.
#[derive(Debug)]
pub struct Session {
    pub output: Output,
    pub tally: Tally,
    pub server: Arc<Server>,
    /// Whose keys it sees.
    pub scope: Scope,
    stream: TcpStream,
}

struct Connection {
    session: Session,
    decoder: Decoder,
    input: Vec<u8>,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Serve,
    Close,
}

impl Connection {
    async fn run(&mut self, mut closing: watch::Receiver<()>) -> io::Result<()> {
        self.session.stream.set_nodelay(true)?;
        loop {
            tokio::select! {
                // It never sends: it only closes.
                _ = closing.changed() => return Ok(()),
                ready = self.session.stream.readable() => ready?,
            }
            for _ in 0..READS_PER_TURN {
                match self.read() {
                    Ok(0) => return Ok(()),
                    Ok(read) => self.session.tally.add(Counter::BytesRead, read as u64),
                    Err(why) if why.kind() == io::ErrorKind::WouldBlock => break,
                    Err(why) => return Err(why),
                }
                if self.serve_input().await? == Next::Close {
                    return Ok(());
                }
            }
            if self.input.is_empty() {
                self.input = Vec::new();
            }
            tokio::task::yield_now().await;
        }
    }

    /// Reads what there is, behind what is there.
    fn read(&mut self) -> io::Result<usize> {
        if self.input.len() == self.input.capacity() {
            let more = self.input.capacity().clamp(INPUT_BYTES, READ_BYTES_MAX);
            self.input.reserve_exact(more);
        }
        self.session.stream.try_read_buf(&mut self.input)
    }

    /// Serves all commands that are complete, and writes their replies.
    async fn serve_input(&mut self) -> io::Result<Next> {
        let mut used = 0;
        let mut next = Next::Serve;
        while next == Next::Serve {
            let (taken, step) = self.decoder.step(&self.input[used..]);
            used += taken;
            next = match step {
                Step::More => break,
                Step::Refused(refused) => {
                    if !refused.noreply {
                        self.session.output.line(refused.why.text());
                    }
                    if refused.why == Refusal::LineTooLong {
                        Next::Close
                    } else {
                        Next::Serve
                    }
                }
                Step::Command(command) => commands::run(&mut self.session, command).await?,
                Step::Store(block) => commands::store(&mut self.session, *block).await,
                Step::TooLarge { verb, key, noreply } => commands::too_large(&mut self.session, verb, &key, noreply),
            };
            if self.session.output.is_full() {
                self.session.flush().await?;
            }
        }
        self.input.drain(..used);
        self.session.flush().await?;
        Ok(next)
    }
}

impl Session {
    /// Writes the replies out, and shows everyone what was counted.
    pub async fn flush(&mut self) -> io::Result<()> {
        // Counted first: whoever reads the reply finds the command counted.
        self.settle();
        let written = self.output.flush(&mut self.stream).await?;
        self.tally.add(Counter::BytesWritten, written);
        Ok(())
    }

    /// Adds this connection's counts to the server's.
    pub fn settle(&mut self) {
        self.server.counters.add(&mut self.tally);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.settle();
    }
}
