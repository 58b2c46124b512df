//! The binary decoder's guarantees: no panic, steps that do not depend on how the bytes were split,
//! and a stream that stays in step or is closed.

use proptest::prelude::*;

use super::super::steps::binary_steps;
use super::{parts, ITEM_BYTES_MAX};

/// Returns a request with the given lengths, which need not be right.
fn request(opcode: u8, extras: u8, key: u16, body: u32) -> Vec<u8> {
    let mut bytes = vec![0x80, opcode];
    bytes.extend(key.to_be_bytes());
    bytes.extend([extras, 0, 0, 0]);
    bytes.extend(body.to_be_bytes());
    bytes.extend([7; 4]);
    bytes.extend([0; 8]);
    bytes.extend((0..body.min(30_000)).map(|at| at as u8));
    bytes
}

fn steps<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    binary_steps(ITEM_BYTES_MAX, true, chunks)
}

#[test]
fn every_opcode_split_at_every_byte() {
    for opcode in 0..=0x30 {
        for (extras, key, value) in
            [(0, 0, 0), (0, 3, 0), (4, 3, 0), (8, 3, 5), (20, 3, 0), (4, 0, 0), (0, 3, 5), (1, 1, 1)]
        {
            let body = u32::from(extras) + u32::from(key) + value;
            let stream = [request(opcode, extras, key, body), request(0x0a, 0, 0, 0)].concat();
            let whole = steps([&stream[..]]);
            assert!(!whole.is_empty());
            for at in 0..stream.len() {
                assert_eq!(steps([&stream[..at], &stream[at..]]), whole, "{opcode:#x} at {at}");
            }
        }
    }
}

#[test]
fn hostile_lengths_are_refused_by_the_header_alone() {
    for (opcode, extras, key, body, status) in [
        (0x00, 0, 251, 251, "InvalidArguments"),
        (0x00, 0, u16::MAX, u32::from(u16::MAX), "InvalidArguments"),
        (0x01, 8, 3, (1 << 30) + 1, "InvalidArguments"),
        (0x01, 8, 3, u32::MAX, "InvalidArguments"),
        (0x01, 8, 3, 10, "UnknownCommand"),
        (0x01, 255, u16::MAX, 0, "UnknownCommand"),
        (0x01, 9, 3, 20, "InvalidArguments"),
        (0x99, 0, 3, 1 << 30, "UnknownCommand"),
    ] {
        let steps = steps([&request(opcode, extras, key, body)[..24]]);
        assert_eq!(steps.len(), 1, "{steps:?}");
        assert!(steps[0].contains(&format!("Refused({status})")), "{steps:?}");
    }
    assert_eq!(steps([&b"\x81\x00"[..], &[0; 30]]), ["NoRequest"]);
    assert!(steps([&[0x80; 23][..]]).is_empty(), "a part of a header");
}

#[test]
fn a_client_without_a_login_gets_no_further() {
    let set = request(0x01, 8, 3, 1000);
    let steps = binary_steps(ITEM_BYTES_MAX, false, [&request(0x0b, 0, 0, 0)[..], &set, &request(0x0b, 0, 0, 0)]);
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert!(steps[0].contains("Version") && steps[1].contains("Refused(AuthError)"), "{steps:?}");
}

/// Requests of which most are valid, and single bytes.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let shape =
        prop::sample::select(vec![(0u8, 3u16), (4, 3), (8, 3), (20, 3), (0, 0), (4, 0), (8, 250), (1, 2), (0, 251)]);
    prop_oneof![
        8 => (0u8..0x28, shape, prop_oneof![Just(0u32), 1..20u32, 9_900..10_100u32]).prop_map(
            |(opcode, (extras, key), value)| request(opcode, extras, key, u32::from(extras) + u32::from(key) + value)
        ),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #[test]
    fn split_anywhere_same_steps(
        fragments in prop::collection::vec(fragment(), 0..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let stream = fragments.concat();
        let whole = steps([&stream[..]]);
        prop_assert_eq!(&steps(parts(&stream, &cuts)), &whole);
        prop_assert_eq!(&steps(stream.chunks(1)), &whole, "byte by byte");
    }

    /// A request after a value, stored or discarded, is decoded.
    #[test]
    fn the_decoder_stays_in_step(lengths in prop::collection::vec(0u32..12_000, 1..8), opcode in prop::sample::select(vec![0x01u8, 0x99])) {
        let mut stream = Vec::new();
        for length in &lengths {
            stream.extend(request(opcode, 8, 3, 11 + length));
            stream.extend(request(0x0b, 0, 0, 0));
        }
        let steps = steps([&stream[..]]);
        prop_assert_eq!(steps.len(), 2 * lengths.len());
        prop_assert!(steps.iter().skip(1).step_by(2).all(|step| step.ends_with("Command(Version)")), "{:?}", steps);
    }
}
