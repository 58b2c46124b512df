//! Numbers, parsed as C's `strtoull` does, because memcached uses it.
//!
//! Leading white space and a sign are allowed; the digits must be followed by white space or the
//! end. For the words of a command line less would do, but `incr` parses stored values with the
//! same function: `"12 "` is a number, and a `decr` can leave such a value behind.
//!
//! memcached 1.6.18 lets a number that is too big wrap (flags of 2^32, an exptime of 2^32); this
//! server refuses the number.
//!
//! A change must ensure that, but for numbers that are too big, the texts that memcached accepts
//! are accepted, and no others.

/// Parses a number that is not negative and fits in 64 bits; `-0` is 0.
pub fn unsigned(text: &[u8]) -> Option<u64> {
    match scan(text)? {
        (true, magnitude) if magnitude != 0 => None,
        (_, magnitude) => Some(magnitude),
    }
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

/// Returns the sign (true: minus) and the absolute value.
fn scan(text: &[u8]) -> Option<(bool, u64)> {
    match digits(text) {
        Some(value) => Some((false, value)),
        None => scan_other(text),
    }
}

/// Returns the value of a text of at most ten digits and nothing else, as most numbers in commands
/// are; `None` for any other text.
fn digits(text: &[u8]) -> Option<u64> {
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

/// As [`scan`], for texts that [`digits`] does not parse.
fn scan_other(text: &[u8]) -> Option<(bool, u64)> {
    let text = &text[text.iter().take_while(|b| is_space(b)).count()..];
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    let length = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    if length == 0 || digits.get(length).is_some_and(|b| !is_space(b)) {
        return None;
    }
    let value = digits[..length]
        .iter()
        .try_fold(0u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))?;
    Some((negative, value))
}

/// C's `isspace`, which includes the vertical tab; Rust's `is_ascii_whitespace` does not.
fn is_space(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || *byte == 0x0b
}
