//! Fields of a line: a key, a length, `noreply`.

use super::error::ProtocolError;
use super::item::KEY_BYTES_MAX;
use super::number::signed;

/// The longest value memcached can name: its lengths are C ints, and CR LF is added to them.
const VALUE_BYTES_MAX: i64 = i32::MAX as i64 - 2;

/// Whether the line's last word asks for silence. Errors keep silent as well, as memcached's do.
pub fn noreply(arguments: &[&[u8]]) -> bool {
    arguments.last() == Some(&&b"noreply"[..])
}

/// A key: 1 to 250 bytes, no white space, no control character.
pub fn key(word: &[u8]) -> Result<&[u8], ProtocolError> {
    if word.len() > KEY_BYTES_MAX || word.iter().any(|b| b.is_ascii_control()) {
        return Err(ProtocolError::Format);
    }
    Ok(word)
}

/// The length of a block.
pub fn value_length(word: &[u8]) -> Option<usize> {
    signed(word).filter(|length| (0..=VALUE_BYTES_MAX).contains(length)).map(|length| length as usize)
}
