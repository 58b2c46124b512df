//! Numbers, parsed as C's `strtoull` does, because memcached uses it.
//!
//! Leading white space and a sign are allowed; the digits must be followed by white space or the
//! end. For the words of a command line less would do, but `incr` parses stored values in the same
//! way: `"12 "` is a number, and a `decr` can leave such a value behind. A stored value is a C
//! string to memcached, so a zero byte ends it; in a word of a line, a zero byte is no digit.
//!
//! memcached 1.6.18 lets a number that is too big wrap (flags of 2^32, an exptime of 2^32); this
//! server refuses the number.
//!
//! A change must ensure that, but for numbers that are too big, the texts that memcached accepts
//! are accepted, and no others.

/// Parses a number that is not negative and fits in 64 bits; `-0` is 0.
pub fn unsigned(text: &[u8]) -> Option<u64> {
    not_negative(scan(text)?)
}

/// Parses the number of a stored value as [`unsigned`] does; a zero byte ends the text. `pieces`
/// are those of the value: any number of spaces or zeros may precede the first other digit.
pub fn of_value<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Option<u64> {
    not_negative(scan_bytes(pieces.flatten().copied().take_while(|byte| *byte != 0))?)
}

/// Parses a number as [`unsigned`] does, if it fits in 32 bits.
pub fn unsigned32(text: &[u8]) -> Option<u32> {
    u32::try_from(unsigned(text)?).ok()
}

/// Parses a signed number that fits in 64 bits.
pub fn signed(text: &[u8]) -> Option<i64> {
    match scan(text)? {
        (false, magnitude) => i64::try_from(magnitude).ok(),
        (true, magnitude) => 0i64.checked_sub_unsigned(magnitude),
    }
}

/// Returns the number with this sign (true: minus) and absolute value; `None` if it is negative.
fn not_negative((negative, magnitude): (bool, u64)) -> Option<u64> {
    (!negative || magnitude == 0).then_some(magnitude)
}

/// Returns the sign (true: minus) and the absolute value.
fn scan(text: &[u8]) -> Option<(bool, u64)> {
    match digits(text) {
        Some(value) => Some((false, value)),
        None => scan_bytes(text.iter().copied()),
    }
}

/// Returns the value of a text of at most ten digits and nothing else, as most numbers in commands
/// are; `None` for any other text.
pub fn digits(text: &[u8]) -> Option<u64> {
    leading_digits(text).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// Returns the value of the digits at the front of `text`, and the text after them; `None` if there
/// are none, or more than ten.
#[inline(always)] // As a call, the result would be passed in memory.
pub fn leading_digits(text: &[u8]) -> Option<(u64, &[u8])> {
    const FEW: usize = 10;
    let (mut value, mut length) = (0, 0);
    while let Some(digit) = text.get(length).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        if length == FEW {
            return None;
        }
        value = value * 10 + u64::from(digit);
        length += 1;
    }
    (length > 0).then(|| (value, &text[length..]))
}

/// As [`scan`], for a text in parts, or one that [`digits`] does not parse.
fn scan_bytes(text: impl Iterator<Item = u8>) -> Option<(bool, u64)> {
    let mut text = text.skip_while(is_space).peekable();
    let sign = text.next_if(|byte| matches!(byte, b'-' | b'+'));
    // A fold is faster than a loop over the bytes of several pieces.
    let magnitude = text.take_while(|byte| !is_space(byte)).try_fold(None, |magnitude: Option<u64>, byte| {
        let digit = char::from(byte).to_digit(10)?;
        Some(Some(magnitude.unwrap_or(0).checked_mul(10)?.checked_add(digit.into())?))
    })?;
    Some((sign == Some(b'-'), magnitude?))
}

/// C's `isspace`, which includes the vertical tab; Rust's `is_ascii_whitespace` does not.
fn is_space(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || *byte == 0x0b
}
