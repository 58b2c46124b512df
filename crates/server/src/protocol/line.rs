//! Parser of memcached's classic text commands. A command is one line, after which a value may
//! follow.
//!
//! Names of two letters that begin with `m` are meta commands, which [`meta`] parses; [`admin`]
//! parses the commands that control the whole server.
//!
//! Pure functions from a line to a command or an error. They check in memcached's order, because
//! the first failing check determines the error text.
//!
//! A change must keep that order, and ensure that no line makes a parser panic, which the fuzz
//! target `protocol` checks.

use super::command::{Command, PlainSet, StoreCommand, StoreVerb};
use super::error::{ProtocolError, RefusedLine};
use super::field::{key, noreply, value_length};
use super::item::KEY_BYTES_MAX;
use super::number::{leading_digits, signed, unsigned, unsigned32};
use super::words::Words;
use super::{admin, meta};
use crate::find_byte::find_space_or_control;

/// The words of a line that are split up front: more than a command with a fixed number of words
/// has. The gets, `tenant set`, `watch` and meta commands read the rest from the line. Any other
/// line of this length is refused, but `stats`, `version` and `quit` ignore further words.
const WORDS_MAX: usize = 8;

/// Parses a line, which is passed without its line end.
pub fn command(line: &[u8]) -> Result<Command<'_>, RefusedLine> {
    // Fast path for a frequent command: it is not split into words twice.
    if let Some(keys) = line.strip_prefix(b"get ") {
        return get(keys_after(0, keys)?, false);
    }
    let words = FirstWords::of(line);
    let words = words.as_slice();
    let Some((&name, arguments)) = words.split_first() else {
        return Err(ProtocolError::Unknown.into());
    };
    match name {
        b"get" | b"gets" => get(keys_after(1, line)?, name == b"gets"),
        b"gat" | b"gats" => get_and_touch(line, name == b"gats", arguments),
        b"set" => store(StoreVerb::Set, arguments),
        b"add" => store(StoreVerb::Add, arguments),
        b"replace" => store(StoreVerb::Replace, arguments),
        b"append" => store(StoreVerb::Append, arguments),
        b"prepend" => store(StoreVerb::Prepend, arguments),
        b"cas" => store(StoreVerb::Cas, arguments),
        b"delete" => delete(arguments),
        b"incr" => arithmetic(true, arguments),
        b"decr" => arithmetic(false, arguments),
        b"touch" => touch(arguments),
        b"flush_all" => flush_all(arguments),
        b"verbosity" => verbosity(arguments),
        b"stats" => {
            let word = |at: usize| arguments.get(at).copied();
            Ok(Command::Stats { topic: word(0), argument: word(1), second: word(2) })
        }
        b"cache_memlimit" => admin::memory_limit(arguments),
        b"tenant" => admin::tenant(line, arguments),
        b"watch" => admin::watch(Words::of(line).skip(1)),
        b"lru_crawler" => admin::lru_crawler(arguments),
        b"version" => Ok(Command::Version),
        b"shutdown" => admin::shutdown(arguments),
        b"quit" => Ok(Command::Quit),
        [b'm', _] => meta::command(name, line),
        // A web page can make a browser send a request to this port; its headers and body must not
        // run as commands.
        _ if words.last().is_some_and(|last| last.starts_with(b"HTTP/")) => {
            Err(RefusedLine { noreply: true, ..ProtocolError::HttpRequest.into() })
        }
        _ => Err(ProtocolError::Unknown.into()),
    }
}

/// Parses a `get` as nearly all clients send it, at the front of `input`: valid, with one key.
/// Returns the key, and the length of the line with its end. `None` for any other line, which the
/// caller passes to [`command`].
///
/// A fast path, as [`plain_set`]: the line is passed over once.
#[inline]
pub fn plain_get(input: &[u8]) -> Option<(&[u8], usize)> {
    let (key, rest) = plain_key(input.strip_prefix(b"get ")?)?;
    Some((key, input.len() - after_line_end(rest)?.len()))
}

/// Parses a `set` as nearly all clients send it, at the front of `input`: valid, with fields of
/// digits only and one space between two fields. Returns the command, and the length of the line
/// with its end. `None` for any other line, which the caller passes to [`command`]. Does not bound
/// the length of the value: the caller does.
#[inline(always)] // As a call, the result would be passed in memory.
pub fn plain_set(input: &[u8]) -> Option<(PlainSet<'_>, usize)> {
    let (key, rest) = plain_key(input.strip_prefix(b"set ")?)?;
    let (flags, rest) = leading_digits(rest.strip_prefix(b" ")?)?;
    let (exptime, rest) = leading_digits(rest.strip_prefix(b" ")?)?;
    let (length, rest) = leading_digits(rest.strip_prefix(b" ")?)?;
    let (noreply, rest) = match rest.strip_prefix(b" noreply") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let used = input.len() - after_line_end(rest)?.len();
    let (flags, exptime, length) = (flags.try_into().ok()?, exptime.try_into().ok()?, length.try_into().ok()?);
    Some((PlainSet { key, flags, exptime, length, noreply }, used))
}

/// Splits a valid key, without control characters, from the front of `text`.
#[inline]
fn plain_key(text: &[u8]) -> Option<(&[u8], &[u8])> {
    // Bounded, as a part of a long line may be searched again and again while the rest arrives.
    let near = &text[..text.len().min(KEY_BYTES_MAX + 1)];
    let length = find_space_or_control(near).filter(|length| *length > 0)?;
    Some(text.split_at(length))
}

/// Returns the bytes after the line end at the front of `text`.
#[inline]
fn after_line_end(text: &[u8]) -> Option<&[u8]> {
    text.strip_prefix(b"\r\n").or_else(|| text.strip_prefix(b"\n"))
}

fn get(keys: Words<'_>, unique: bool) -> Result<Command<'_>, RefusedLine> {
    if keys.clone().next().is_none() {
        return Err(ProtocolError::Unknown.into());
    }
    Ok(Command::Get { keys, unique, touch: None })
}

fn get_and_touch<'a>(line: &'a [u8], unique: bool, arguments: &[&'a [u8]]) -> Result<Command<'a>, RefusedLine> {
    let Some(exptime) = arguments.first() else {
        return Err(ProtocolError::Unknown.into());
    };
    let touch = signed(exptime).ok_or(ProtocolError::Exptime)?;
    Ok(Command::Get { keys: keys_after(2, line)?, unique, touch: Some(touch) })
}

/// Returns the keys after the first `words` words. All keys are checked here, before the first is
/// looked up.
fn keys_after(words: usize, line: &[u8]) -> Result<Words<'_>, RefusedLine> {
    let mut keys = Words::of(line);
    for _ in 0..words {
        keys.next();
    }
    let checked = keys.clone();
    for each in checked {
        key(each)?;
    }
    Ok(keys)
}

/// Parses `<verb> <key> <flags> <exptime> <length> [<unique>] [noreply]`. The order of the checks
/// is memcached's.
fn store<'a>(verb: StoreVerb, arguments: &[&'a [u8]]) -> Result<Command<'a>, RefusedLine> {
    let fields = if verb == StoreVerb::Cas { 5 } else { 4 };
    let has_all_words = arguments.len() == fields || arguments.len() == fields + 1;
    let (noreply, why) = match has_all_words {
        true => (noreply(arguments), ProtocolError::Format),
        false => (false, ProtocolError::Unknown),
    };
    // The length comes first: if it is valid, the block after a refused line is discarded, and not
    // run as commands. (memcached 1.6.18 runs the block; later versions discard it.)
    let Some(length) = arguments.get(3).and_then(|length| value_length(length)) else {
        return Err(RefusedLine { noreply, ..why.into() });
    };
    // 2: the CR LF of the block.
    let refused = RefusedLine { why, noreply, swallow: length + 2 };
    if !has_all_words {
        return Err(refused);
    }
    let read = || {
        Some(StoreCommand {
            verb,
            key: key(arguments[0]).ok()?.into(),
            flags: unsigned32(arguments[1])?,
            exptime: signed(arguments[2])?,
            length,
            unique: if verb == StoreVerb::Cas { unsigned(arguments[4])? } else { 0 },
            noreply,
            meta: None,
        })
    };
    read().map(Command::Store).ok_or(refused)
}

/// Parses `<key> [0] [noreply]`. As in memcached, the 0 is accepted for old clients.
fn delete<'a>(arguments: &[&'a [u8]]) -> Result<Command<'a>, RefusedLine> {
    let (noreply, well_formed) = match arguments[..] {
        [_] => (false, true),
        [_, b"0"] => (false, true),
        [_, b"noreply"] => (true, true),
        [_, b"0", b"noreply"] => (true, true),
        [_, _, _] | [_, _] => (noreply(arguments), false),
        _ => return Err(ProtocolError::Unknown.into()),
    };
    if !well_formed {
        return Err(RefusedLine { noreply, ..ProtocolError::DeleteUsage.into() });
    }
    let key = key(arguments[0]).map_err(|why| RefusedLine { noreply, ..why.into() })?;
    Ok(Command::Delete { key, noreply })
}

fn arithmetic<'a>(increment: bool, arguments: &[&'a [u8]]) -> Result<Command<'a>, RefusedLine> {
    let (key, delta, noreply) = key_and_number(arguments)?;
    let delta = unsigned(delta).ok_or(RefusedLine { noreply, ..ProtocolError::Delta.into() })?;
    Ok(Command::Arithmetic { key, increment, delta, noreply })
}

fn touch<'a>(arguments: &[&'a [u8]]) -> Result<Command<'a>, RefusedLine> {
    let (key, exptime, noreply) = key_and_number(arguments)?;
    let exptime = signed(exptime).ok_or(RefusedLine { noreply, ..ProtocolError::Exptime.into() })?;
    Ok(Command::Touch { key, exptime, noreply })
}

/// Parses `<key> <number> [noreply]`, without converting the number.
fn key_and_number<'a>(arguments: &[&'a [u8]]) -> Result<(&'a [u8], &'a [u8], bool), RefusedLine> {
    if arguments.len() != 2 && arguments.len() != 3 {
        return Err(ProtocolError::Unknown.into());
    }
    let noreply = noreply(arguments);
    let key = key(arguments[0]).map_err(|why| RefusedLine { noreply, ..why.into() })?;
    Ok((key, arguments[1], noreply))
}

/// Parses `[<exptime>] [noreply]`.
fn flush_all<'a>(arguments: &[&'a [u8]]) -> Result<Command<'a>, RefusedLine> {
    if arguments.len() > 2 {
        return Err(ProtocolError::Unknown.into());
    }
    let noreply = noreply(arguments);
    let exptime = if arguments.len() == usize::from(noreply) {
        0
    } else {
        signed(arguments[0]).ok_or(RefusedLine { noreply, ..ProtocolError::Exptime.into() })?
    };
    Ok(Command::FlushAll { exptime, noreply })
}

fn verbosity<'a>(arguments: &[&'a [u8]]) -> Result<Command<'a>, RefusedLine> {
    if arguments.len() != 1 && arguments.len() != 2 {
        return Err(ProtocolError::Unknown.into());
    }
    let noreply = noreply(arguments);
    let level = unsigned32(arguments[0]).ok_or(RefusedLine { noreply, ..ProtocolError::Format.into() })?;
    Ok(Command::Verbosity { level, noreply })
}

/// The first [`WORDS_MAX`] words of a line, without an allocation.
struct FirstWords<'a> {
    words: [&'a [u8]; WORDS_MAX],
    count: usize,
}

impl<'a> FirstWords<'a> {
    fn of(line: &'a [u8]) -> Self {
        let mut words = Self { words: [&[]; WORDS_MAX], count: 0 };
        for (slot, word) in words.words.iter_mut().zip(Words::of(line)) {
            *slot = word;
            words.count += 1;
        }
        words
    }

    fn as_slice(&self) -> &[&'a [u8]] {
        &self.words[..self.count]
    }
}
