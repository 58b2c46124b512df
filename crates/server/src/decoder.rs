//! The decoder: turns a stream of bytes into commands and values.
//!
//! Each step consumes a part of the input and returns the number of consumed bytes; the caller
//! presents the rest again, with more input behind it. The decoder stores no input except the key
//! and the data block of a store in progress, so a connection's memory is one line, one value and
//! this struct. The value of a plain `set` is not stored either, if it is short: the `set` stays in
//! the input until its value has arrived as a whole ([`PlainStep::Set`]).
//!
//! # Invariants
//!
//! 1. The steps depend on the bytes alone, not on how the bytes were split, except that a `set` is
//!    either [`PlainStep::Set`] or [`Step::Store`], with the same effect:
//!    `split_anywhere_same_steps`.
//! 2. A step other than `More` and `NoRoom` consumes at least one byte, so a finite input has
//!    finitely many steps.
//! 3. Memory for a value is allocated as its bytes arrive, one piece ahead, never by the announced
//!    length; it is charged to the [`ReceiveBudget`] first. A `set` that stays in the input fits
//!    into the buffer of the connection, as any line does.

pub mod binary;
pub mod long_value;
#[cfg(test)]
pub mod steps;
pub mod store_request;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use self::binary::BinaryDecoder;
use self::long_value::LongValue;
use self::store_request::{ReceiveProgress, StoreRequest};
use crate::find_byte::find_byte;
use crate::protocol::command::{Command, PlainSet, StoreCommand, StoreVerb};
use crate::protocol::error::{ProtocolError, RefusedLine};
use crate::protocol::item::{item_bytes, KEY_BYTES_MAX};
use crate::protocol::line;
use crate::receive_budget::{ReceiveBudget, FREE_BYTES};
use crate::value::piece_pool::PiecePool;

/// The longest line, except for retrieval commands ([`is_get`]); memcached has the same limit.
const LINE_BYTES_MAX: usize = 2048;

/// The longest line of a retrieval command, which has room for 1,000 keys of the maximum length.
/// memcached has no limit here.
const GET_LINE_BYTES_MAX: usize = 256 * 1024;

/// The longest word of a line that is longer than [`LINE_BYTES_MAX`]: a key, and the CR of the
/// line's end. So no room is taken for the rest of a line that is refused anyway.
const WORD_BYTES_MAX: usize = KEY_BYTES_MAX + 1;

/// The longest value that is taken out of the input as a whole: what a connection's buffer has room
/// for (`BUFFER_BYTES` in `net/buffer_pool.rs`). Must be at most `SHORT_BYTES_MAX` of
/// `store/update.rs`: such a value is stored however many pieces are in use.
const COMPLETE_BYTES_MAX: usize = 16 * 1024;

/// The longest value of a plain `set` that stays in the input until it has arrived as a whole: all
/// that the receive budget would not charge. With its line it is shorter than a connection's
/// buffer, so that the buffer never grows for it.
const KEPT_BYTES_MAX: usize = FREE_BYTES as usize;
const _: () = assert!(KEPT_BYTES_MAX + LINE_BYTES_MAX + LINE_END.len() < COMPLETE_BYTES_MAX);

/// The end of a line, and of a data block.
const LINE_END: &[u8] = b"\r\n";

/// Turns a stream of bytes into [`Step`]s.
#[derive(Debug)]
pub struct Decoder {
    item_bytes_max: usize,
    /// The pool for the pieces of values.
    pool: Arc<PiecePool>,
    /// The budget for values that are being received; `None`: they are not charged.
    receive_budget: Option<Arc<ReceiveBudget>>,
    state: DecoderState,
    /// Bytes at the front of the input that contain no line end, so that a line that arrives slowly
    /// is not searched in quadratic time.
    searched: usize,
}

/// The meaning of the next input byte.
#[derive(Debug)]
enum DecoderState {
    Line,
    /// A data block is being received.
    Value(Box<StoreRequest>),
    /// This many bytes of a data block are still to be discarded; more than 0.
    Swallow(usize),
    /// After [`ProtocolError::LineTooLong`] and [`ProtocolError::HttpRequest`]: all further input
    /// is discarded.
    Closed,
    /// The stream is of the binary protocol.
    Binary(Box<BinaryDecoder>),
}

/// A step of the decoder.
#[derive(Debug)]
pub enum Step<'a> {
    /// No further step without more input.
    More,
    Plain(PlainStep<'a>),
    /// Another command without a data block.
    Command(Command<'a>),
    /// A store command whose data block is complete.
    Store(Box<StoreRequest>),
    /// A store command whose value is larger than `-I` allows; later steps discard the value.
    TooLarge {
        verb: StoreVerb,
        key: Cow<'a, [u8]>,
        noreply: bool,
    },
    /// There is no room for more of a value. A later step with the same input may find room;
    /// otherwise [`abandon_value`](Decoder::abandon_value) gives up.
    NoRoom,
    /// A line or a data block that is answered with an error.
    Error(RefusedLine),
}

/// A command as nearly all clients send it, in the input as a whole.
#[derive(Debug)]
pub enum PlainStep<'a> {
    /// A plain `get` of one key.
    Get { key: &'a [u8] },
    /// A plain `set` of a short value.
    Set { command: PlainSet<'a>, value: &'a [u8] },
}

/// The outcome of [`Decoder::plain_step`].
#[derive(Debug)]
pub enum PlainOutcome<'a> {
    /// A plain step, and the number of consumed bytes.
    Step(usize, PlainStep<'a>),
    /// No further step without more input: a part of a plain `set`, which stays in the input.
    More,
    /// The next step is not a plain one, or not known.
    NotPlain,
}

impl Decoder {
    /// Creates a decoder for a new stream. Items (key, value and memcached's header) of more than
    /// `item_bytes_max` bytes are refused as too large.
    pub fn new(item_bytes_max: usize, pool: &Arc<PiecePool>, receive_budget: Option<&Arc<ReceiveBudget>>) -> Self {
        let (pool, receive_budget) = (Arc::clone(pool), receive_budget.cloned());
        Self { item_bytes_max, pool, receive_budget, state: DecoderState::Line, searched: 0 }
    }

    /// Returns whether the client has sent a part of a value, which is stored or discarded. `input`
    /// is the input that the last step has left.
    pub fn is_in_value(&self, input: &[u8]) -> bool {
        match &self.state {
            DecoderState::Line => !input.is_empty() && line::plain_set(input).is_some(),
            _ => self.long_value().is_some(),
        }
    }

    /// Returns the value that is being received, if it leaves the input as it arrives.
    pub fn long_value(&self) -> Option<LongValue> {
        match &self.state {
            DecoderState::Value(_) => Some(LongValue::Stored),
            DecoderState::Swallow(_) => Some(LongValue::Discarded),
            DecoderState::Binary(decoder) => decoder.long_value(),
            DecoderState::Line | DecoderState::Closed => None,
        }
    }

    /// Sets the budget of the values that are received from now on.
    pub fn set_receive_budget(&mut self, receive_budget: &Arc<ReceiveBudget>) {
        if let DecoderState::Binary(decoder) = &mut self.state {
            decoder.set_receive_budget(receive_budget);
        }
        self.receive_budget = Some(Arc::clone(receive_budget));
    }

    /// Begins to decode the binary protocol, at the first byte of the stream.
    pub fn begin_binary(&mut self) {
        let decoder = BinaryDecoder::new(self.item_bytes_max, &self.pool, self.receive_budget.as_ref());
        self.state = DecoderState::Binary(Box::new(decoder));
    }

    /// Returns the decoder of the binary protocol, after [`begin_binary`](Self::begin_binary).
    pub fn binary(&mut self) -> Option<&mut BinaryDecoder> {
        match &mut self.state {
            DecoderState::Binary(decoder) => Some(decoder),
            _ => None,
        }
    }

    /// Returns whether no command can follow a refused line: all further input is discarded.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, DecoderState::Closed)
    }

    /// Returns the position in an input of `length` bytes at which the next line begins, as far as
    /// that is known.
    pub fn next_line_at(&self, length: usize) -> Option<usize> {
        match self.state {
            DecoderState::Line => Some(0),
            DecoderState::Swallow(left) => Some(left).filter(|left| *left < length),
            DecoderState::Value(_) | DecoderState::Closed | DecoderState::Binary(_) => None,
        }
    }

    /// Abandons the value that is being received, and returns its request; later steps discard the
    /// rest of the data block.
    pub fn abandon_value(&mut self) -> Option<Box<StoreRequest>> {
        match std::mem::replace(&mut self.state, DecoderState::Line) {
            DecoderState::Value(request) => {
                self.state = DecoderState::Swallow(request.missing());
                Some(request)
            }
            state => {
                self.state = state;
                None
            }
        }
    }

    /// Takes one step, and returns the number of consumed bytes of `input` and the step.
    pub fn step<'a>(&mut self, input: &'a [u8]) -> (usize, Step<'a>) {
        match &mut self.state {
            DecoderState::Line => match self.plain_step(input) {
                PlainOutcome::Step(taken, step) => (taken, Step::Plain(step)),
                PlainOutcome::More => (0, Step::More),
                PlainOutcome::NotPlain => self.line(input),
            },
            DecoderState::Value(request) => {
                let taken = match request.take(input) {
                    (taken, ReceiveProgress::More) => return (taken, Step::More),
                    (taken, ReceiveProgress::NoRoom) => return (taken, Step::NoRoom),
                    (taken, ReceiveProgress::Complete) => taken,
                };
                match std::mem::replace(&mut self.state, DecoderState::Line) {
                    DecoderState::Value(request) if &request.end == b"\r\n" => (taken, Step::Store(request)),
                    DecoderState::Value(request) => {
                        let refused = RefusedLine { noreply: request.noreply, ..ProtocolError::BadDataChunk.into() };
                        (taken, Step::Error(refused))
                    }
                    _ => (taken, Step::More),
                }
            }
            DecoderState::Swallow(left) => {
                let taken = input.len().min(*left);
                *left -= taken;
                if *left > 0 {
                    return (taken, Step::More);
                }
                self.state = DecoderState::Line;
                let (line, step) = self.step(&input[taken..]);
                (taken + line, step)
            }
            DecoderState::Closed => (input.len(), Step::More),
            // The caller uses the decoder that `binary` returns.
            DecoderState::Binary(_) => (0, Step::More),
        }
    }

    /// Takes a plain step, if the next step is one; otherwise changes nothing.
    #[inline(always)] // As a call, the result would be passed in memory.
    pub fn plain_step<'a>(&mut self, input: &'a [u8]) -> PlainOutcome<'a> {
        if !matches!(self.state, DecoderState::Line) {
            return PlainOutcome::NotPlain;
        }
        let (taken, step) = match line::plain_get(input) {
            Some((key, used)) => (used, PlainStep::Get { key }),
            None => {
                let Some((command, used)) = line::plain_set(input) else { return PlainOutcome::NotPlain };
                if command.length > COMPLETE_BYTES_MAX
                    || item_bytes(command.key, command.flags, command.length) > self.item_bytes_max
                {
                    return PlainOutcome::NotPlain;
                }
                match input[used..].split_at_checked(command.length) {
                    Some((value, rest)) if rest.starts_with(LINE_END) => {
                        (used + value.len() + LINE_END.len(), PlainStep::Set { command, value })
                    }
                    Some((_, [_, _, ..])) => return PlainOutcome::NotPlain,
                    _ if command.length > KEPT_BYTES_MAX => return PlainOutcome::NotPlain,
                    _ => return PlainOutcome::More,
                }
            }
        };
        self.searched = 0;
        PlainOutcome::Step(taken, step)
    }

    /// Takes one step at the beginning of a line that is not plain: parses it into a command,
    /// begins to receive the value of a store, or refuses it.
    fn line<'a>(&mut self, input: &'a [u8]) -> (usize, Step<'a>) {
        let end = find_byte(b'\n', &input[self.searched..]).map(|at| self.searched + at);
        let length = end.unwrap_or(input.len());
        let has_long_word = || {
            // Earlier calls have searched up to `searched`: only a word that goes on there is new.
            let from = (LINE_BYTES_MAX - WORD_BYTES_MAX).max(self.searched.saturating_sub(WORD_BYTES_MAX));
            input[from..length].split(|byte| *byte == b' ').any(|word| word.len() > WORD_BYTES_MAX)
        };
        if length > LINE_BYTES_MAX && (length > GET_LINE_BYTES_MAX || !is_get(input) || has_long_word()) {
            self.state = DecoderState::Closed;
            return (input.len(), Step::Error(ProtocolError::LineTooLong.into()));
        }
        let Some(end) = end else {
            self.searched = input.len();
            return (0, Step::More);
        };
        self.searched = 0;
        let text = &input[..end];
        // As memcached: a line of nothing but CR keeps its CR (and is an error either way).
        let text = text.strip_suffix(b"\r").filter(|text| !text.is_empty()).unwrap_or(text);
        let used = end + 1;
        match line::command(text) {
            Ok(Command::Store(store)) => {
                if self.is_too_large(&store) {
                    self.state = DecoderState::Swallow(store.length + 2);
                    // As in memcached: an `ms` in any mode removes the old value, as a `set` does.
                    let verb = if store.meta.is_some() { StoreVerb::Set } else { store.verb };
                    return (used, Step::TooLarge { verb, key: store.key, noreply: store.noreply });
                }
                let request = StoreRequest::new(store, &self.pool, self.receive_budget.as_ref());
                self.state = DecoderState::Value(Box::new(request));
                let (more, step) = self.step(&input[used..]);
                (used + more, step)
            }
            Ok(command) => (used, Step::Command(command)),
            Err(refused) => {
                if refused.why == ProtocolError::HttpRequest {
                    self.state = DecoderState::Closed;
                } else if refused.swallow > 0 {
                    self.state = DecoderState::Swallow(refused.swallow);
                }
                (used, Step::Error(refused))
            }
        }
    }

    fn is_too_large(&self, store: &StoreCommand<'_>) -> bool {
        item_bytes(&store.key, store.flags, store.length) > self.item_bytes_max
    }
}

fn is_get(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    [&b"get "[..], b"gets ", b"gat ", b"gats "].iter().any(|name| line.starts_with(name))
}
