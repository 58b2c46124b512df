//! Parser of the meta commands `mg`, `ms`, `md`, `ma`, `me` and `mn`: two letters, a key, and flags
//! of one letter each, some with a token.
//!
//! ```text
//!   mg <key> <flag>*             read, touch, create on a miss, win the right to recache
//!   ms <key> <length> <flag>*    store, in five modes, with or without a CAS number
//!   md <key> <flag>*             delete, or mark stale
//!   ma <key> <flag>*             increment, decrement
//!   me <key> [b]                 metadata of the value
//!   mn                           answers MN, after all earlier commands
//! ```
//!
//! The first four accept all flags; a flag without a meaning for the command is ignored. The flags
//! of a reply are in the request's order, so the words are kept in addition to the parsed options.
//!
//! A change must ensure that a refused `ms` with a valid length swallows its block, or the value
//! would be run as commands, and that flags of a reply keep the order of the request.

use std::borrow::Cow;

use super::command::{Command, StoreCommand, StoreVerb};
use super::error::{MetaError, ProtocolError, RefusedLine};
use super::item::KEY_BYTES_MAX;
use super::meta_command::{MetaCommand, MetaOptions, MetaStore, MetaVerb};
use super::number::{signed, unsigned, unsigned32};
use super::words::Words;
use super::{base64, field};

/// A line with this many words after its name is refused; as in memcached, one word less is
/// accepted.
const WORDS_MAX: usize = 20;

/// Maximum length of an opaque, including its `O`.
const OPAQUE_BYTES_MAX: usize = 32;

/// Parses a line whose first word is `name`: an `m` and another letter.
pub fn command<'a>(name: &[u8], line: &'a [u8]) -> Result<Command<'a>, RefusedLine> {
    let mut words = Words::of(line);
    words.next();
    match name {
        b"mn" => Ok(Command::MetaNoop),
        b"me" => debug(words),
        b"ms" => store(words).map(Command::Store),
        b"mg" => flagged(MetaVerb::Get, words).map(Command::Meta),
        b"md" => flagged(MetaVerb::Delete, words).map(Command::Meta),
        b"ma" => flagged(MetaVerb::Arithmetic, words).map(Command::Meta),
        _ => Err(ProtocolError::Unknown.into()),
    }
}

/// Parses an `mg`, `md` or `ma`.
fn flagged<'a>(verb: MetaVerb, mut words: Words<'a>) -> Result<MetaCommand<'a>, RefusedLine> {
    let count = words.clone().take(WORDS_MAX).count();
    let key = words.next().ok_or(ProtocolError::Unknown)?;
    if key.len() > KEY_BYTES_MAX {
        return Err(ProtocolError::Format.into());
    }
    let is_get = verb == MetaVerb::Get;
    if count == WORDS_MAX {
        return Err(if is_get { MetaError::TooManyFlagsToGet } else { MetaError::TooManyFlags }.into());
    }
    // As in memcached: `md` and `ma` have one text for all faults of their flags.
    let options = options(words.clone(), key).map_err(|error| match is_get {
        true => error,
        false => ProtocolError::Meta(MetaError::InvalidOrDuplicateFlag),
    })?;
    if verb == MetaVerb::Arithmetic && !matches!(options.mode, None | Some(b'I' | b'+' | b'D' | b'-')) {
        return Err(MetaError::ArithmeticMode.into());
    }
    check_opaque(words.clone())?;
    Ok(MetaCommand { verb, key: read_key(key, options.binary)?, options, flags: words })
}

/// Parses an `ms`. With a valid length the error of a refused line says how many bytes to discard.
fn store(mut words: Words<'_>) -> Result<StoreCommand<'_>, RefusedLine> {
    let count = words.clone().take(WORDS_MAX).count();
    let key = words.next().ok_or(ProtocolError::Unknown)?;
    let length = words.next().ok_or(ProtocolError::Format)?;
    let length = field::value_length(length);
    // As with the classic commands: if the length is valid, the block (with its CRLF) is discarded
    // with a refused line, whatever the error is.
    let swallow = length.map_or(0, |length| length + 2);
    let refused = |why| RefusedLine { why, noreply: false, swallow };
    if key.len() > KEY_BYTES_MAX {
        return Err(refused(ProtocolError::Format));
    }
    if count == WORDS_MAX {
        return Err(refused(ProtocolError::Meta(MetaError::TooManyFlags)));
    }
    let length = length.ok_or(ProtocolError::Format)?;
    let options = options(words.clone(), key).map_err(refused)?;
    let verb = match (options.mode, options.unique) {
        (None | Some(b'S' | b'R'), Some(_)) => StoreVerb::Cas,
        (None | Some(b'S'), None) => StoreVerb::Set,
        (Some(b'R'), None) => StoreVerb::Replace,
        (Some(b'E'), _) => StoreVerb::Add,
        (Some(b'A'), _) => StoreVerb::Append,
        (Some(b'P'), _) => StoreVerb::Prepend,
        (Some(_), _) => return Err(refused(ProtocolError::Meta(MetaError::StoreMode))),
    };
    check_opaque(words.clone()).map_err(|error| refused(ProtocolError::Meta(error)))?;
    let echo: Vec<&[u8]> = words.filter(|flag| matches!(flag[0], b'O' | b'k' | b'c' | b's')).collect();
    Ok(StoreCommand {
        verb,
        key: read_key(key, options.binary).map_err(refused)?,
        flags: options.flags,
        exptime: options.exptime.unwrap_or(0),
        length,
        unique: options.unique.unwrap_or(0),
        noreply: false,
        meta: Some(Box::new(MetaStore {
            binary: options.binary,
            quiet: options.quiet,
            invalidate: options.invalidate && verb == StoreVerb::Cas,
            // As in memcached: here 0 asks for a new number; `mg`, `md` and `ma` store the 0.
            new_unique: options.new_unique.filter(|&unique| unique != 0),
            vivify: options.vivify.filter(|_| matches!(verb, StoreVerb::Append | StoreVerb::Prepend)),
            echo: echo.join(&b' ').into(),
        })),
    })
}

fn debug(mut words: Words<'_>) -> Result<Command<'_>, RefusedLine> {
    let key = words.next().filter(|key| key.len() <= KEY_BYTES_MAX).ok_or(ProtocolError::Format)?;
    let binary = words.next() == Some(b"b");
    // memcached has no error of its own here for an invalid base64 key.
    let key = if binary { base64::decode(key).ok_or(ProtocolError::Format)?.into() } else { read_key(key, false)? };
    Ok(Command::MetaDebug { key })
}

fn read_key(word: &[u8], binary: bool) -> Result<Cow<'_, [u8]>, ProtocolError> {
    if binary {
        return base64::decode(word).map(Cow::Owned).ok_or(ProtocolError::Meta(MetaError::Key));
    }
    field::key(word).map(Cow::Borrowed)
}

fn check_opaque(mut flags: Words<'_>) -> Result<(), MetaError> {
    match flags.any(|flag| flag[0] == b'O' && flag.len() > OPAQUE_BYTES_MAX) {
        true => Err(MetaError::Opaque),
        false => Ok(()),
    }
}

/// Parses the flags. As in memcached, parsing stops at an unknown or duplicate flag; of several
/// other errors the last is reported, except that a bad `F` replaces no earlier error.
fn options(flags: Words<'_>, key: &[u8]) -> Result<MetaOptions, ProtocolError> {
    let mut options = MetaOptions::default();
    let mut seen = 0u128;
    let mut error = None;
    for word in flags {
        let (&letter, token) = word.split_first().ok_or(ProtocolError::Format)?;
        if letter >= 127 || seen & 1 << letter != 0 {
            return Err(ProtocolError::Meta(MetaError::DuplicateFlag));
        }
        seen |= 1 << letter;
        let bad = match letter {
            b'b' => {
                options.binary = true;
                base64::decode(key).is_none().then_some(MetaError::Key)
            }
            b'N' => read(signed(token), &mut options.vivify, MetaError::Token),
            b'T' => read(signed(token), &mut options.exptime, MetaError::Token),
            b'R' => read(signed(token), &mut options.recache, MetaError::Token),
            b'C' => read(unsigned(token), &mut options.unique, MetaError::Token),
            b'E' => read(unsigned(token), &mut options.new_unique, MetaError::Token),
            b'D' => read(unsigned(token), &mut options.delta, MetaError::Delta),
            b'J' => {
                let initial = unsigned(token);
                options.initial = initial.unwrap_or_default();
                initial.is_none().then_some(MetaError::Initial)
            }
            b'F' => {
                match unsigned32(token) {
                    Some(flags) => options.flags = flags,
                    // memcached has no error of its own for these flags.
                    None => drop(error.get_or_insert(ProtocolError::Format)),
                }
                None
            }
            b'M' => match token {
                &[mode] => {
                    options.mode = Some(mode);
                    None
                }
                _ => Some(MetaError::ModeLength),
            },
            b'v' => set(&mut options.value),
            b'u' => set(&mut options.unused),
            b'q' => set(&mut options.quiet),
            b'I' => set(&mut options.invalidate),
            b'x' => set(&mut options.remove_bytes),
            // Flags of the reply, and flags that are meant for a proxy.
            b'O' | b'k' | b's' | b't' | b'c' | b'f' | b'l' | b'h' | b'P' | b'L' => None,
            _ => return Err(ProtocolError::Meta(MetaError::InvalidFlag)),
        };
        error = bad.map(ProtocolError::Meta).or(error);
    }
    error.map_or(Ok(options), Err)
}

/// Stores a parsed token. Returns `error` if there is none.
fn read<T>(token: Option<T>, option: &mut Option<T>, error: MetaError) -> Option<MetaError> {
    *option = token;
    option.is_none().then_some(error)
}

fn set(option: &mut bool) -> Option<MetaError> {
    *option = true;
    None
}
