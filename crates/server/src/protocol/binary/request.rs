//! Requests: extras and key, as the command that the text protocol has for them.
//!
//! A CAS number, or a value that an `incr` creates, is an option that only the meta commands have
//! in the text protocol: such a request becomes a meta command.
//!
//! A change must ensure that no request has a second implementation beside the text command's.

use std::borrow::Cow;

use super::header::RequestHeader;
use super::opcode::{Opcode, Operation};
use crate::protocol::command::{Command, StoreCommand, StoreVerb};
use crate::protocol::meta_command::{MetaCommand, MetaOptions, MetaVerb};
use crate::protocol::words::Words;

/// The expiration of an `incr` or `decr` that creates no value.
const CREATE_NOTHING: u32 = u32::MAX;

/// A request without its value.
#[derive(Debug, PartialEq, Eq)]
pub enum Request<'a> {
    Read(Read<'a>),
    /// Any other request without a value.
    Command(Command<'a>),
    /// A request whose value follows.
    Store(StoreCommand<'a>),
    SaslMechanisms,
    /// The name of a mechanism, whose message follows; `is_step`: not the first message.
    Sasl {
        mechanism: &'a [u8],
        is_step: bool,
    },
}

/// `get`, `gat`, `touch`. Unlike a text command's, the key may have spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read<'a> {
    pub key: &'a [u8],
    /// The new exptime, of `gat` and `touch`.
    pub touch: Option<i64>,
    /// Whether the reply has the key.
    pub with_key: bool,
    /// Whether the reply has the value, as all but that to `touch`.
    pub with_value: bool,
}

impl<'a> Request<'a> {
    /// Parses extras and key. Their lengths, and that of the value, are accepted by the operation.
    pub fn parse(header: &RequestHeader, opcode: &Opcode, extras: &[u8], key: &'a [u8], value: usize) -> Self {
        let number = |at: usize| extras.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u32::from_be_bytes(*b));
        let long = |at: usize| extras.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |b| u64::from_be_bytes(*b));
        let noreply = opcode.is_quiet;
        let unique = Some(header.unique).filter(|unique| *unique != 0);
        let meta = |verb, options| {
            Self::Command(Command::Meta(MetaCommand { verb, key: Cow::Borrowed(key), options, flags: Words::of(b"") }))
        };
        let store = |verb, flags, exptime| {
            Self::Store(StoreCommand {
                verb,
                key: Cow::Borrowed(key),
                flags,
                exptime,
                length: value,
                unique: header.unique,
                noreply,
                meta: None,
            })
        };
        let exptime = i64::from(number(0));
        match opcode.operation {
            Operation::Get { with_key } => Self::Read(Read { key, touch: None, with_key, with_value: true }),
            Operation::GetAndTouch { with_key } => {
                Self::Read(Read { key, touch: Some(exptime), with_key, with_value: true })
            }
            Operation::Touch => Self::Read(Read { key, touch: Some(exptime), with_key: false, with_value: false }),
            // As in memcached: with a CAS number, an `add` and a `replace` are a `cas`, too.
            Operation::Store(_) if unique.is_some() => store(StoreVerb::Cas, number(0), number(4).into()),
            Operation::Store(verb) => store(verb, number(0), number(4).into()),
            Operation::Join(verb) => store(verb, 0, 0),
            Operation::Delete => meta(MetaVerb::Delete, MetaOptions { unique, ..MetaOptions::default() }),
            Operation::Arithmetic { increment } => {
                let vivify = Some(number(16)).filter(|exptime| *exptime != CREATE_NOTHING).map(i64::from);
                let mode = Some(if increment { b'I' } else { b'D' });
                let (delta, initial) = (Some(long(0)), long(8));
                meta(
                    MetaVerb::Arithmetic,
                    MetaOptions { unique, mode, delta, initial, vivify, ..MetaOptions::default() },
                )
            }
            Operation::Flush => Self::Command(Command::FlushAll { exptime, noreply }),
            Operation::Version => Self::Command(Command::Version),
            Operation::Noop => Self::Command(Command::MetaNoop),
            Operation::Quit => Self::Command(Command::Quit),
            Operation::Stat => {
                let mut words = Words::of(key);
                let (topic, argument, second) = (words.next(), words.next(), words.next());
                Self::Command(Command::Stats { topic, argument, second })
            }
            Operation::Verbosity => Self::Command(Command::Verbosity { level: number(0), noreply }),
            Operation::SaslMechanisms => Self::SaslMechanisms,
            Operation::SaslAuth => Self::Sasl { mechanism: key, is_step: false },
            Operation::SaslStep => Self::Sasl { mechanism: key, is_step: true },
        }
    }
}
