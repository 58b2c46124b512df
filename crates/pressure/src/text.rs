//! The format that the kernel's small text files share, and the error for a malformed one.
//!
//! One format and one error, so that each message names the field and quotes its text. Parsers
//! accept no sign, no blanks inside, and no overflow.
//!
//! A parser must return an error, and not panic, for any text.

use alloc::string::String;

use lowwater_lru_core::ByteSize;
use thiserror::Error;

/// The longest part of a malformed text that an error quotes, in characters.
const SHOWN_MAX: usize = 40;

/// A malformed field of a text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("field `{field}`: found \"{found}\", expected {expected}")]
pub struct TextError {
    /// The name of the field in the file; a line of the file if the line has no name.
    pub field: String,
    /// The text found, escaped, and cut if it is long.
    pub found: String,
    /// A description of the expected text.
    pub expected: &'static str,
}

impl TextError {
    pub(super) fn new(field: &str, found: &str, expected: &'static str) -> Self {
        Self { field: shown(field), found: shown(found), expected }
    }
}

fn shown(text: &str) -> String {
    text.escape_debug().take(SHOWN_MAX).collect()
}

/// Parses a whole number.
pub(super) fn number(field: &str, text: &str) -> Result<u64, TextError> {
    // `parse` would accept a sign.
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().ok_or_else(|| TextError::new(field, text, "a whole number below 2^64"))
}

/// Parses a file with one `key value` per line, such as `memory.events`. Calls `each` with every
/// pair.
pub(super) fn pairs(text: &str, mut each: impl FnMut(&str, u64)) -> Result<(), TextError> {
    for line in text.lines().filter(|line| !line.is_empty()) {
        let (key, value) = line.split_once(' ').ok_or_else(|| TextError::new(line, "", "a name and a number"))?;
        each(key, number(key, value)?);
    }
    Ok(())
}

/// Parses the line `NAME:   12345 kB` of a file with one field per line, such as `/proc/meminfo`.
pub(super) fn kilobytes(field: &str, text: &str) -> Result<ByteSize, TextError> {
    let missing = || TextError::new(field, "", "a line with a number of kB");
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).ok_or_else(missing)?;
    let digits = line.trim_ascii().strip_suffix(" kB").ok_or_else(missing)?;
    Ok(ByteSize::kib(number(field, digits)?))
}

/// Parses the single line of a limit file: a number of bytes, or `max`.
pub(super) fn limit(field: &str, text: &str) -> Result<ByteSize, TextError> {
    match text.trim_ascii() {
        "max" => Ok(ByteSize::MAX),
        digits => number(field, digits)
            .map(ByteSize::new)
            .map_err(|_| TextError::new(field, digits, "a whole number of bytes, or \"max\"")),
    }
}
