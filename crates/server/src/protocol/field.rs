//! Fields of a line: keys, lengths, `noreply`.
//!
//! Parsers of single fields, shared by all commands. Each accepts exactly what memcached 1.6.18
//! accepts; `protocol.rs` lists the exceptions.
//!
//! A change must ensure that the accepted texts stay memcached's.

use super::error::ProtocolError;
use super::item::KEY_BYTES_MAX;
use super::number::signed;
use crate::find_byte::find_byte;

/// The longest value that memcached can announce: its lengths are C ints, and include CR LF.
const VALUE_BYTES_MAX: i64 = i32::MAX as i64 - 2;

/// Returns whether the last word is `noreply`. As in memcached, it also suppresses error replies.
pub fn noreply(arguments: &[&[u8]]) -> bool {
    arguments.last() == Some(&&b"noreply"[..])
}

/// Parses a key: at most 250 bytes, without a space, a line end or a zero byte. As memcached, and
/// unlike its `protocol.txt`, accepts other control characters.
pub fn key(word: &[u8]) -> Result<&[u8], ProtocolError> {
    if word.len() > KEY_BYTES_MAX || find_byte(0, word).is_some() {
        return Err(ProtocolError::Format);
    }
    Ok(word)
}

/// Parses the length of a data block.
pub fn value_length(word: &[u8]) -> Option<usize> {
    signed(word).filter(|length| (0..=VALUE_BYTES_MAX).contains(length)).map(|length| length as usize)
}
