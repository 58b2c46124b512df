//! Keys in base64, decoded as memcached does.
//!
//! Decoding skips characters that are not base64 and stops at the padding, so several texts can
//! denote one key. A reply never repeats the received text: it encodes the key, so each key has one
//! representation in replies.
//!
//! A change must ensure that a text is decoded to the same key as by memcached, also where the text
//! is malformed.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decodes `text`; `None` if its number of base64 characters, `=` included, is 0 or not a multiple
/// of four, or a group of four has more than two `=`. A `=` counts as padding wherever it stands in
/// its group.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let letters: Vec<u8> = text.iter().copied().filter(|&b| b == b'=' || sextet(b).is_some()).collect();
    if letters.is_empty() || letters.len() % 4 != 0 {
        return None;
    }
    let mut bytes = Vec::with_capacity(letters.len() / 4 * 3);
    for four in letters.chunks_exact(4) {
        let bits = four.iter().fold(0u32, |bits, &b| bits << 6 | u32::from(sextet(b).unwrap_or(0)));
        let padding = four.iter().filter(|&&b| b == b'=').count();
        let [_, three @ ..] = bits.to_be_bytes();
        bytes.extend_from_slice(three.get(..3usize.checked_sub(padding).filter(|&kept| kept > 0)?)?);
        if padding > 0 {
            break;
        }
    }
    Some(bytes)
}

/// Appends `bytes` in base64 to `text`.
pub fn encode(bytes: &[u8], text: &mut Vec<u8>) {
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, &b| bits << 8 | u32::from(b)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() { letter } else { b'=' });
        }
    }
}

/// Returns the six bits that a base64 character denotes; `None` for `=` and other bytes.
fn sextet(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_that_memcached_reads_and_refuses() {
        for (text, bytes) in [
            (&b"Zm9v"[..], Some(&b"foo"[..])),
            (b"Zm8=", Some(b"fo")),
            (b"Zg==", Some(b"f")),
            (b"Zg==Zm9v", Some(b"f")),
            (b"Z-m.9v", Some(b"foo")),
            (b"AAAA", Some(b"\0\0\0")),
            (b"", None),
            (b"Zm9", None),
            (b"Z===", None),
            (b"====", None),
            (b"---", None),
        ] {
            assert_eq!(decode(text).as_deref(), bytes, "{}", text.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn encoded_keys_decode_to_themselves(bytes in prop::collection::vec(any::<u8>(), 1..190)) {
            let mut text = Vec::new();
            encode(&bytes, &mut text);
            prop_assert_eq!(decode(&text), Some(bytes));
        }
    }
}
