//! The memcached protocol: bytes in, steps out.
//!
//! 1. No bytes make the decoder panic.
//! 2. A step other than `More` takes at least one byte, and none takes more than there is.
//! 3. The steps are the same however the bytes were split.
//! 4. In sync: a command that comes behind the bytes, and behind what ends an open line or block, is understood; unless the decoder gave
//!    the connection up, or is throwing away a value that is longer still.

#[path = "../../crates/server/src/decoder/steps.rs"]
mod steps;

const ITEM_BYTES_MAX: usize = 10_000;

/// See the module.
pub fn check(data: &[u8]) {
    let Some((&split, data)) = data.split_first() else { return };
    let whole = steps([data]);
    assert_eq!(whole, steps(data.chunks(1 + usize::from(split % 64))), "3");
    // Enough to end any line, and any block that is not too large.
    let line = [&[b'x'; 1000][..], b"\r\n"].concat();
    let filler = [b"\r\n", &line.repeat(ITEM_BYTES_MAX / 1000 + 1)[..], b"version\r\n"].concat();
    let followed = steps([data, &filler]);
    let last = followed.last();
    let is_given_up = followed.iter().any(|step| step.contains("LineTooLong"));
    // What is thrown away may be longer than what we sent.
    let swallows =
        |step: &String| step.starts_with("TooLarge") || (step.contains("swallow: ") && !step.contains("swallow: 0"));
    let is_excused = is_given_up || followed.iter().any(swallows);
    assert!(is_excused || last.is_some_and(|last| last == "Command(Version)"), "4: {last:?} after {followed:?}");
}

fn steps<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    steps::steps(ITEM_BYTES_MAX, chunks)
}
