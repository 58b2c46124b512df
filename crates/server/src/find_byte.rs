//! Searches for a byte that is mostly near.
//!
//! The words of a line are short: a call of `memchr`, which chooses an implementation for the
//! processor and prepares its registers, takes longer than the search. So the first bytes are
//! searched here, eight at a time, and only the rest by `memchr`.
//!
//! A change must ensure that the first match is returned, whichever part has it.

/// The lowest bit of each byte.
const LOW: u64 = u64::from_le_bytes([0x01; 8]);
/// The highest bit of each byte.
const HIGH: u64 = LOW << 7;

/// Bytes that are searched without `memchr`: a line with one short key fits. Any number gives the
/// same results.
const NEAR_BYTES: usize = 64;

/// Returns the position of the first `byte` in `text`. O(bytes before it).
#[inline]
pub fn find_byte(byte: u8, text: &[u8]) -> Option<usize> {
    match text.split_at_checked(NEAR_BYTES) {
        None => find_near(byte, text),
        Some((near, far)) => find_near(byte, near).or_else(|| find_far(byte, far)),
    }
}

/// Returns the position of the first space or control character in `text`. O(bytes before it).
#[inline]
pub fn find_space_or_control(text: &[u8]) -> Option<usize> {
    const END: u8 = b' ' + 1;
    find_in_words(text, |word| word.wrapping_sub(u64::from(END) * LOW) & !word & HIGH, |byte| byte < END)
}

#[inline]
fn find_near(byte: u8, text: &[u8]) -> Option<usize> {
    let pattern = u64::from(byte) * LOW;
    let matches = |word: u64| {
        let differing = word ^ pattern;
        differing.wrapping_sub(LOW) & !differing & HIGH
    };
    find_in_words(text, matches, |there| there == byte)
}

/// Returns the position of the first byte that matches. `matches` sets the highest bit of the first
/// byte of a word that does, and no bit below. Bits above may be set for other bytes, because a
/// subtraction borrows.
#[inline]
fn find_in_words(text: &[u8], matches: impl Fn(u64) -> u64, byte_matches: impl Fn(u8) -> bool) -> Option<usize> {
    let find = |word: &[u8; 8]| {
        let found = matches(u64::from_le_bytes(*word));
        (found != 0).then(|| found.trailing_zeros() as usize / 8)
    };
    let mut rest = text;
    while let Some((word, after)) = rest.split_first_chunk() {
        if let Some(at) = find(word) {
            return Some(text.len() - rest.len() + at);
        }
        rest = after;
    }
    match text.last_chunk::<8>() {
        // The last eight bytes; the first of them were searched already.
        Some(last) => find(last).map(|at| text.len() - 8 + at),
        None => rest.iter().position(|&there| byte_matches(there)),
    }
}

#[inline(never)]
fn find_far(byte: u8, text: &[u8]) -> Option<usize> {
    memchr::memchr(byte, text).map(|at| NEAR_BYTES + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_is_found_at_any_place() {
        for length in 0..150 {
            for byte in [0, b' ', b'\n', 0x7f, 0x80, 0xff] {
                // Neighbours of the byte, which a wrong carry would find.
                let other = [byte ^ 1, byte.wrapping_sub(1), byte.wrapping_add(1), byte ^ 0x80];
                let mut text: Vec<u8> = (0..length).map(|n| other[n % 4]).collect();
                assert_eq!(find_byte(byte, &text), None, "{length} {byte}");
                for at in (0..length).rev() {
                    text[at] = byte;
                    assert_eq!(find_byte(byte, &text), Some(at), "{length} {byte}");
                }
            }
        }
    }

    #[test]
    fn the_first_space_or_control_character_is_found_at_any_place() {
        for length in 0..80 {
            let mut text = vec![b'!'; length];
            assert_eq!(find_space_or_control(&text), None, "{length}");
            for at in (0..length).rev() {
                for byte in 0..=u8::MAX {
                    text[at] = byte;
                    let expected = if byte <= b' ' { Some(at) } else { (at + 1..length).next() };
                    assert_eq!(find_space_or_control(&text), expected, "{length} {at} {byte}");
                }
                text[at] = if at % 2 == 0 { b' ' } else { 0 };
            }
        }
    }
}
