//! The stream's state: between lines, inside a block of data, or inside bytes to throw away.
//!
//! The decoder takes what it can use from the input and says how much that was; the rest is shown to it again, with more
//! behind it. It keeps no input but a block in progress, so a connection's memory is one line, one value and this struct.
//!
//! # Invariants
//!
//! 1. The steps depend on the bytes alone, not on how they were split: `split_anywhere_same_steps`.
//! 2. A step other than `More` and `NoRoom` takes at least one byte, so a finite input has finitely many steps.
//! 3. Memory for a value is taken as its bytes arrive, one piece ahead, never by the length that was announced; it is counted (see
//!    [`Arrivals`]) before.

#[cfg(test)]
pub mod steps;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use crate::protocol::command::{Command, Store, Verb};
use crate::protocol::error::{Refusal, Refused};
use crate::protocol::item::item_bytes;
use crate::protocol::line;
use crate::protocol::meta_command::MetaStore;
use crate::receive_budget::{Arrivals, Claim};
use crate::value::data::{Builder, Data};
use crate::value::piece_pool::Stash;

/// A line without an end after so many bytes is no command of ours; memcached has the same limit.
const LINE_BYTES_MAX: usize = 2048;

/// A get of many keys may be this long: 1,000 keys of the longest kind. (memcached has no limit here; we promise one.)
const GET_LINE_BYTES_MAX: usize = 256 * 1024;

/// Turns a stream of bytes into [`Step`]s.
#[derive(Debug)]
pub struct Decoder {
    item_bytes_max: usize,
    /// Where values take their pieces from.
    stash: Arc<Stash>,
    /// Who counts what arrives; nobody, if none.
    arrivals: Option<Arc<Arrivals>>,
    state: State,
    /// How far the line in front was searched for its end, so that slow arrival does not make the search quadratic.
    searched: usize,
}

#[derive(Debug)]
enum State {
    Line,
    Block(Box<Block>),
    Swallow(usize),
    /// After [`Refusal::LineTooLong`]: everything is thrown away.
    Lost,
}

/// What the input said.
#[derive(Debug)]
pub enum Step<'a> {
    /// Nothing more without more input.
    More,
    /// A command that is complete with its line.
    Command(Command<'a>),
    /// A store command with its value.
    Store(Box<Block>),
    /// A store command whose value is larger than any may be; the value is swallowed by later steps.
    TooLarge { verb: Verb, key: Cow<'a, [u8]>, noreply: bool },
    /// There is no room for more of a value. The same input again may find some; or the value is [given up](Decoder::give_up).
    NoRoom,
    /// A line, or a block, that gets an error reply.
    Refused(Refused),
}

/// A store command and the value that came with it.
#[derive(Debug)]
pub struct Block {
    pub verb: Verb,
    pub key: Box<[u8]>,
    pub flags: u32,
    pub exptime: i64,
    pub unique: u64,
    pub noreply: bool,
    /// Of an `ms`.
    pub meta: Option<Box<MetaStore>>,
    value: Builder,
    claim: Claim,
    /// The two bytes behind the value, as far as they have come.
    end: [u8; 2],
    end_length: usize,
}

impl Block {
    /// The value, complete, and what it has been counted for so far.
    pub fn into_data(self) -> (Data, Claim) {
        (self.value.finish(), self.claim)
    }

    /// Takes what belongs to this block from the front of `input`: how much, and how it stands then.
    fn take(&mut self, input: &[u8]) -> (usize, Progress) {
        if !self.claim.reach(self.value.len() + input.len().min(self.value.missing())) {
            return (0, Progress::NoRoom);
        }
        let mut taken = self.value.extend(input);
        while self.value.is_complete() && self.end_length < self.end.len() && taken < input.len() {
            self.end[self.end_length] = input[taken];
            self.end_length += 1;
            taken += 1;
        }
        (taken, if self.missing() == 0 { Progress::Complete } else { Progress::More })
    }

    /// Bytes that are still to come.
    fn missing(&self) -> usize {
        self.value.missing() + self.end.len() - self.end_length
    }
}

/// How a block stands.
enum Progress {
    More,
    Complete,
    NoRoom,
}

impl Decoder {
    /// Items (key, value and memcached's own header) of more than `item_bytes_max` bytes are too large.
    pub fn new(item_bytes_max: usize, stash: &Arc<Stash>, arrivals: Option<&Arc<Arrivals>>) -> Self {
        let (stash, arrivals) = (Arc::clone(stash), arrivals.cloned());
        Self { item_bytes_max, stash, arrivals, state: State::Line, searched: 0 }
    }

    /// Gives up the value that is arriving: what is still to come of it is swallowed by later steps.
    pub fn give_up(&mut self) -> Option<Box<Block>> {
        match std::mem::replace(&mut self.state, State::Line) {
            State::Block(block) => {
                self.state = State::Swallow(block.missing());
                Some(block)
            }
            state => {
                self.state = state;
                None
            }
        }
    }

    /// Takes one step: how many bytes of `input` were used up, and what they said.
    pub fn step<'a>(&mut self, input: &'a [u8]) -> (usize, Step<'a>) {
        match &mut self.state {
            State::Line => self.line(input),
            State::Block(block) => {
                let taken = match block.take(input) {
                    (taken, Progress::More) => return (taken, Step::More),
                    (taken, Progress::NoRoom) => return (taken, Step::NoRoom),
                    (taken, Progress::Complete) => taken,
                };
                match std::mem::replace(&mut self.state, State::Line) {
                    State::Block(block) if &block.end == b"\r\n" => (taken, Step::Store(block)),
                    State::Block(block) => {
                        let refused = Refused { noreply: block.noreply, ..Refusal::BadDataChunk.into() };
                        (taken, Step::Refused(refused))
                    }
                    _ => (taken, Step::More),
                }
            }
            State::Swallow(left) => {
                let taken = input.len().min(*left);
                *left -= taken;
                if *left > 0 {
                    return (taken, Step::More);
                }
                self.state = State::Line;
                let (line, step) = self.line(&input[taken..]);
                (taken + line, step)
            }
            State::Lost => (input.len(), Step::More),
        }
    }

    fn line<'a>(&mut self, input: &'a [u8]) -> (usize, Step<'a>) {
        let end = input[self.searched..].iter().position(|&b| b == b'\n').map(|at| self.searched + at);
        let length = end.unwrap_or(input.len());
        if length > LINE_BYTES_MAX && (length > GET_LINE_BYTES_MAX || !is_get(input)) {
            self.state = State::Lost;
            return (input.len(), Step::Refused(Refusal::LineTooLong.into()));
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
                    self.state = State::Swallow(store.length + 2);
                    // As memcached: whatever an `ms` was to do, the value there is out of date.
                    let verb = if store.meta.is_some() { Verb::Set } else { store.verb };
                    return (used, Step::TooLarge { verb, key: store.key, noreply: store.noreply });
                }
                self.state = State::Block(Box::new(Block {
                    verb: store.verb,
                    key: store.key.into_owned().into(),
                    flags: store.flags,
                    exptime: store.exptime,
                    unique: store.unique,
                    noreply: store.noreply,
                    meta: store.meta,
                    value: Builder::new(store.length, &self.stash),
                    claim: Claim::new(self.arrivals.as_ref(), store.length),
                    end: [0; 2],
                    end_length: 0,
                }));
                let (block, step) = self.step(&input[used..]);
                (used + block, step)
            }
            Ok(command) => (used, Step::Command(command)),
            Err(refused) => {
                if refused.swallow > 0 {
                    self.state = State::Swallow(refused.swallow);
                }
                (used, Step::Refused(refused))
            }
        }
    }

    fn is_too_large(&self, store: &Store<'_>) -> bool {
        item_bytes(&store.key, store.flags, store.length) > self.item_bytes_max
    }
}

fn is_get(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    [&b"get "[..], b"gets ", b"gat ", b"gats "].iter().any(|name| line.starts_with(name))
}
