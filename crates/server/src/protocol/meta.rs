//! The meta commands: `mg`, `ms`, `md`, `ma`, `me`, `mn`. Two letters, a key, and flags of one letter each, some with a token.
//!
//! ```text
//!   mg <key> <flag>*             read, touch, make on a miss, win the right to recache
//!   ms <key> <length> <flag>*    store, in five modes, with or without a unique number
//!   md <key> <flag>*             delete, or mark stale
//!   ma <key> <flag>*             increment, decrement
//!   me <key> [b]                 what is known of the value
//!   mn                           MN: all before it is answered
//! ```
//!
//! All four take all flags; those that mean nothing to a command are not looked at. A reply's flags stand in the order of the
//! request's, so the words are kept behind what was read from them.

use std::borrow::Cow;

use super::command::{Command, Store, Verb};
use super::error::{Fault, Refusal, Refused};
use super::item::KEY_BYTES_MAX;
use super::meta_command::{Meta, MetaStore, MetaVerb, Options};
use super::number::{signed, unsigned, unsigned32};
use super::words::Keys;
use super::{base64, field};

/// So many words behind its name are more than memcached takes.
const WORDS_MAX: usize = 19;

/// The longest word that an opaque may be, its `O` included.
const OPAQUE_BYTES_MAX: usize = 32;

/// Reads a line whose first word is `name`: an `m` and another letter.
pub fn command<'a>(name: &[u8], line: &'a [u8]) -> Result<Command<'a>, Refused> {
    let mut words = Keys::of(line);
    words.next();
    match name {
        b"mn" => Ok(Command::MetaNoop),
        b"me" => debug(words),
        b"ms" => store(words).map(Command::Store),
        b"mg" => flagged(MetaVerb::Get, words).map(Command::Meta),
        b"md" => flagged(MetaVerb::Delete, words).map(Command::Meta),
        b"ma" => flagged(MetaVerb::Arithmetic, words).map(Command::Meta),
        _ => Err(Refusal::Unknown.into()),
    }
}

fn flagged<'a>(verb: MetaVerb, mut words: Keys<'a>) -> Result<Meta<'a>, Refused> {
    let count = words.clone().take(WORDS_MAX).count();
    let key = words.next().ok_or(Refusal::Unknown)?;
    if key.len() > KEY_BYTES_MAX {
        return Err(Refusal::Format.into());
    }
    let is_get = verb == MetaVerb::Get;
    if count == WORDS_MAX {
        return Err(if is_get { Fault::TooManyFlagsToGet } else { Fault::TooManyFlags }.into());
    }
    let options = options(words.clone(), key).map_err(|refusal| match is_get {
        true => refusal,
        false => Refusal::Meta(Fault::InvalidOrDuplicateFlag),
    })?;
    if verb == MetaVerb::Arithmetic && !matches!(options.mode, None | Some(b'I' | b'+' | b'D' | b'-')) {
        return Err(Fault::ArithmeticMode.into());
    }
    check_opaque(words.clone())?;
    Ok(Meta { verb, key: read_key(key, options.binary)?, options, flags: words })
}

fn store(mut words: Keys<'_>) -> Result<Store<'_>, Refused> {
    let count = words.clone().take(WORDS_MAX).count();
    let key = words.next().ok_or(Refusal::Unknown)?;
    let length = words.next().ok_or(Refusal::Format)?;
    let length = field::value_length(length);
    // As with the classic commands: where the length can be read, the block goes with its line, whatever is wrong with that.
    let swallow = length.map_or(0, |length| length + 2);
    let refused = |why| Refused { why, noreply: false, swallow };
    if key.len() > KEY_BYTES_MAX {
        return Err(refused(Refusal::Format));
    }
    if count == WORDS_MAX {
        return Err(refused(Refusal::Meta(Fault::TooManyFlags)));
    }
    let length = length.ok_or(Refusal::Format)?;
    let options = options(words.clone(), key).map_err(refused)?;
    let verb = match (options.mode, options.unique) {
        (None | Some(b'S' | b'R'), Some(_)) => Verb::Cas,
        (None | Some(b'S'), None) => Verb::Set,
        (Some(b'R'), None) => Verb::Replace,
        (Some(b'E'), _) => Verb::Add,
        (Some(b'A'), _) => Verb::Append,
        (Some(b'P'), _) => Verb::Prepend,
        (Some(_), _) => return Err(refused(Refusal::Meta(Fault::StoreMode))),
    };
    check_opaque(words.clone()).map_err(|fault| refused(Refusal::Meta(fault)))?;
    let echo: Vec<&[u8]> = words.filter(|flag| matches!(flag[0], b'O' | b'k' | b'c')).collect();
    Ok(Store {
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
            invalidate: options.invalidate && verb == Verb::Cas,
            echo: echo.join(&b' ').into(),
        })),
    })
}

fn debug(mut words: Keys<'_>) -> Result<Command<'_>, Refused> {
    let key = words.next().filter(|key| key.len() <= KEY_BYTES_MAX).ok_or(Refusal::Format)?;
    let binary = words.next() == Some(b"b");
    // Here, memcached has no words of its own for a key that is no base64.
    let key = if binary { base64::decode(key).ok_or(Refusal::Format)?.into() } else { read_key(key, false)? };
    Ok(Command::MetaDebug { key })
}

fn read_key(word: &[u8], binary: bool) -> Result<Cow<'_, [u8]>, Refusal> {
    if binary {
        return base64::decode(word).map(Cow::Owned).ok_or(Refusal::Meta(Fault::Key));
    }
    field::key(word).map(Cow::Borrowed)
}

fn check_opaque(mut flags: Keys<'_>) -> Result<(), Fault> {
    match flags.any(|flag| flag[0] == b'O' && flag.len() > OPAQUE_BYTES_MAX) {
        true => Err(Fault::Opaque),
        false => Ok(()),
    }
}

/// Reads the flags. An unknown one ends the reading; of other faults, the last is told. Both as memcached.
fn options(flags: Keys<'_>, key: &[u8]) -> Result<Options, Refusal> {
    let mut options = Options::default();
    let mut seen = 0u128;
    let mut fault = None;
    for word in flags {
        let (&letter, token) = word.split_first().ok_or(Refusal::Format)?;
        if letter >= 127 || seen & 1 << letter != 0 {
            return Err(Refusal::Meta(Fault::DuplicateFlag));
        }
        seen |= 1 << letter;
        let bad = match letter {
            b'b' => {
                options.binary = true;
                base64::decode(key).is_none().then_some(Fault::Key)
            }
            b'N' => read(signed(token), &mut options.vivify, Fault::Token),
            b'T' => read(signed(token), &mut options.exptime, Fault::Token),
            b'R' => read(signed(token), &mut options.recache, Fault::Token),
            b'C' => read(unsigned(token), &mut options.unique, Fault::Token),
            b'D' => read(unsigned(token), &mut options.delta, Fault::Delta),
            b'J' => {
                let initial = unsigned(token);
                options.initial = initial.unwrap_or_default();
                initial.is_none().then_some(Fault::Initial)
            }
            b'F' => {
                match unsigned32(token) {
                    Some(flags) => options.flags = flags,
                    // It has no words of its own in memcached.
                    None => drop(fault.get_or_insert(Refusal::Format)),
                }
                None
            }
            b'M' => match token {
                &[mode] => {
                    options.mode = Some(mode);
                    None
                }
                _ => Some(Fault::ModeLength),
            },
            b'v' => set(&mut options.value),
            b'u' => set(&mut options.unused),
            b'q' => set(&mut options.quiet),
            b'I' => set(&mut options.invalidate),
            // What the reply repeats or tells, and what is meant for a proxy.
            b'O' | b'k' | b's' | b't' | b'c' | b'f' | b'l' | b'h' | b'P' | b'L' => None,
            _ => return Err(Refusal::Meta(Fault::InvalidFlag)),
        };
        fault = bad.map(Refusal::Meta).or(fault);
    }
    fault.map_or(Ok(options), Err)
}

fn read<T>(token: Option<T>, option: &mut Option<T>, fault: Fault) -> Option<Fault> {
    *option = token;
    option.is_none().then_some(fault)
}

fn set(option: &mut bool) -> Option<Fault> {
    *option = true;
    None
}
