//! The memcached protocols: bytes in, decoder steps out. As in the server, the first byte shows
//! whether a stream is binary.
//!
//! 1. No input makes the decoder panic.
//! 2. A step other than `More` consumes at least one byte, and no step consumes more bytes than
//!    there are; `decoder/steps.rs` of the server checks it.
//! 3. The steps do not depend on how the input is split.
//! 4. The decoder of the text protocol stays in sync: after the input, and a filler that ends any
//!    open line or block, it decodes a further command, unless it has given up the connection, or
//!    is still discarding a value that is longer than the filler.
//!
//! A change must ensure that each property is checked for each input.

#[path = "../../crates/server/src/decoder/steps.rs"]
mod steps;

use crate::protocol::binary::header::REQUEST_MAGIC;

const ITEM_BYTES_MAX: usize = 10_000;

/// Decodes `data`, and panics if a property of the module documentation fails.
pub fn check(data: &[u8]) {
    let Some((&split, data)) = data.split_first() else { return };
    if data.first() == Some(&REQUEST_MAGIC) {
        let is_logged_in = split < 128;
        let binary = |chunk| steps::binary_steps(ITEM_BYTES_MAX, is_logged_in, data.chunks(chunk));
        return assert_eq!(binary(data.len()), binary(1 + usize::from(split % 64)), "3");
    }
    let whole = steps([data]);
    assert_eq!(whole, steps(data.chunks(1 + usize::from(split % 64))), "3");
    // Enough bytes to end any line, and any block that is not too large. Lines of 1,000 bytes are
    // accepted; those above `LINE_BYTES_MAX` of the decoder (2,048) would be excused below.
    let line = [&[b'x'; 1000][..], b"\r\n"].concat();
    let filler = [b"\r\n", &line.repeat(ITEM_BYTES_MAX / 1000 + 1)[..], b"version\r\n"].concat();
    let followed = steps([data, &filler]);
    let last = followed.last();
    let is_given_up = followed.iter().any(|step| step.contains("LineTooLong"));
    // The discarded value may be longer than the filler.
    let swallows =
        |step: &String| step.starts_with("TooLarge") || (step.contains("swallow: ") && !step.contains("swallow: 0"));
    let is_excused = is_given_up || followed.iter().any(swallows);
    assert!(is_excused || last.is_some_and(|last| last == "Command(Version)"), "4: {last:?} after {followed:?}");
}

fn steps<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    steps::steps(ITEM_BYTES_MAX, chunks)
}
