//! The decoder's guarantees:
//!
//! - it panics on no input;
//! - the steps do not depend on how the bytes were split (invariant 1);
//! - after any line but one that is too long, the next command is decoded correctly.
//!
//! A new command is added to the words from which the random streams are made.

mod binary;

use proptest::prelude::*;

use super::*;
use crate::protocol::item::KEY_BYTES_MAX;

const ITEM_BYTES_MAX: usize = 10_000;

fn steps<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    super::steps::steps(ITEM_BYTES_MAX, chunks)
}

#[test]
fn a_too_large_value_is_discarded_with_its_block() {
    let mut input = b"set big 0 0 20000\r\n".to_vec();
    input.extend(vec![b'x'; 20_000]);
    input.extend(b"\r\nversion\r\n");
    assert_eq!(
        steps([&input[..]]),
        ["TooLarge { verb: Set, key: [98, 105, 103], noreply: false }", "Command(Version)"]
    );
}

#[test]
fn the_block_of_a_refused_line_is_not_run() {
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    let input = format!("set {long} 0 0 9\r\nflush_all\r\nversion\r\n");
    let steps = steps([input.as_bytes()]);
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert_eq!(steps[1], "Command(Version)");
}

#[test]
fn the_block_of_a_line_with_a_wrong_number_of_words_is_not_run() {
    for line in ["set k 0 0 9 noreply x", "cas k 0 0 9", "cas k 0 0 9 1 2 3", "add k 0 0 9 1 2"] {
        let steps = steps([format!("{line}\r\nflush_all\r\nversion\r\n").as_bytes()]);
        assert_eq!(steps.len(), 2, "{line}: {steps:?}");
        assert!(steps[0].contains("why: Unknown, noreply: false"), "{line}: {steps:?}");
        assert_eq!(steps[1], "Command(Version)", "{line}");
    }
    // A line without a valid length announces no block.
    for line in ["set k 0 0", "set k 0 0 x 1 2"] {
        let steps = steps([format!("{line}\r\nversion\r\n").as_bytes()]);
        assert_eq!(steps[1..], ["Command(Version)"], "{line}");
    }
}

#[test]
fn nothing_after_a_request_of_http_is_run() {
    let steps = steps([&b"POST / HTTP/1.1\r\nHost: a\r\n\r\nflush_all\r\n"[..]]);
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(steps[0].contains("why: HttpRequest, noreply: true"), "{steps:?}");
}

#[test]
fn a_bad_data_chunk_ends_after_its_announced_length() {
    let steps = steps([&b"set k 0 0 3\r\nabcdef\r\nversion\r\n"[..]]);
    assert_eq!(steps.len(), 3, "{steps:?}");
    assert!(steps[0].contains("BadDataChunk"));
    assert!(steps[1].contains("Unknown"), "the rest of the block is a line of its own, as in memcached");
    assert_eq!(steps[2], "Command(Version)");
}

#[test]
fn an_abandoned_value_is_discarded_with_its_block() {
    let runtime = lowwater::Runtime::builder().budget(lowwater::ByteSize::kib(64)).build().unwrap();
    let receive_budget = ReceiveBudget::new(&runtime, true, &Arc::default(), 0);
    // The budget for values being received is half of 64 KiB, and the first 4 KiB of a value are
    // free: the value finds no room beyond those, as the first reservation is 64 KiB
    // (`STEP_BYTES`). The first input ends within them, later in the value, and before, within and
    // after its line end.
    for received in [1, 20_000, 49_152, 100_000, 100_001, 100_002] {
        let mut decoder = Decoder::new(1 << 20, &Arc::new(PiecePool::new(0)), Some(&receive_budget));
        let input = [&b"set k 0 0 100000\r\n"[..], &[b'x'; 100_000], b"\r\nversion\r\n"].concat();
        let (used, step) = decoder.step(&input[..18 + received]);
        assert!(matches!(step, Step::More | Step::NoRoom), "{received}: {step:?}");
        let (taken, step) = decoder.step(&input[used..]);
        assert!(matches!((taken, step), (0, Step::NoRoom)), "the same input finds no room again");
        let request = decoder.abandon_value().unwrap();
        assert_eq!((request.verb, &*request.key), (StoreVerb::Set, &b"k"[..]));
        assert!(decoder.abandon_value().is_none(), "abandoned only once");
        let (_, step) = decoder.step(&input[used..]);
        assert!(matches!(step, Step::Command(Command::Version)), "{received}: {step:?}");
        drop(request);
        assert_eq!(receive_budget.bytes(), lowwater::ByteSize::ZERO);
    }
}

#[test]
fn a_short_set_stays_in_the_input_until_it_is_complete() {
    let new = || Decoder::new(ITEM_BYTES_MAX, &Arc::new(PiecePool::new(0)), None);
    for length in [0, 1, 100, KEPT_BYTES_MAX - 1, KEPT_BYTES_MAX] {
        for noreply in ["", " noreply"] {
            let line = format!("set k 7 0 {length}{noreply}\r\n");
            let input = [line.as_bytes(), &vec![b'x'; length], b"\r\n"].concat();
            let mut decoder = new();
            for received in 1..input.len() {
                let (taken, step) = decoder.step(&input[..received]);
                assert!(matches!((taken, step), (0, Step::More)), "{received} of {}", input.len());
                assert_eq!(decoder.is_in_value(&input[..received]), received >= line.len());
            }
            assert!(decoder.abandon_value().is_none(), "nothing was allocated for the value");
            let (taken, step) = decoder.step(&input);
            let Step::Plain(PlainStep::Set { command, value }) = step else { panic!("{step:?}") };
            assert_eq!((taken, command.flags, command.noreply), (input.len(), 7, !noreply.is_empty()));
            assert!(value == vec![b'x'; length] && !decoder.is_in_value(b""));
        }
    }
    // A longer value leaves the input at once, a block with a wrong end with its last byte, and a
    // value that is too large with its line.
    let step = |input: &[u8]| {
        let mut decoder = new();
        let (taken, step) = decoder.step(input);
        (taken, format!("{step:?}"), decoder.is_in_value(&input[taken..]))
    };
    let line = format!("set k 0 0 {}\r\n", KEPT_BYTES_MAX + 1);
    assert_eq!(step(format!("{line}x").as_bytes()), (line.len() + 1, "More".into(), true));
    assert_eq!(step(b"set k 0 0 3\r\nabcd").0, 0);
    assert!(step(b"set k 0 0 3\r\nabcd\r").1.contains("BadDataChunk"));
    let (taken, text, is_in_value) = step(b"set k 0 0 20000\r\nabc");
    assert!(text.starts_with("TooLarge") && is_in_value, "{text}");
    assert_eq!(taken, 17);
}

#[test]
fn lines_are_bounded() {
    let line_too_long = |input: &[u8]| steps([input]).first().is_some_and(|step| step.contains("LineTooLong"));
    assert!(!line_too_long(&[b'x'; 2048]));
    assert!(line_too_long(&[b'x'; 2049]));
    let gets = |length: usize| [&b"get "[..], &b"key ".repeat(length / 4)].concat();
    assert!(!line_too_long(&gets(200_000)));
    assert!(line_too_long(&gets(300_000)));
    assert!(line_too_long(&[&b"set "[..], &[b'k'; 2048], b" 0 0 1\r\nx\r\n"].concat()), "even with a line end");
    // A key that is too long already is not kept until the line's end.
    let with_key = |length: usize| [&gets(4_000)[..], &vec![b'k'; length]].concat();
    assert!(!line_too_long(&with_key(KEY_BYTES_MAX)));
    assert!(!line_too_long(&[&with_key(KEY_BYTES_MAX)[..], b"\r"].concat()));
    assert!(line_too_long(&with_key(KEY_BYTES_MAX + 2)));
}

// === random streams ===

/// A fragment of a client's input: commands, blocks with a wrong length, and random bytes.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::sample::select(vec![
        "get",
        "gets",
        "gat",
        "set",
        "add",
        "cas",
        "append",
        "delete",
        "incr",
        "touch",
        "flush_all",
        "stats",
        "quit",
        "mg",
        "ms",
        "md",
        "ma",
        "me",
        "mn",
        "v",
        "b",
        "Zm9v",
        "T30",
        "C1",
        "ME",
        "Oopaque",
        "k",
        "tenant:key",
        "0",
        "1",
        "-1",
        "7",
        "300",
        "9999",
        "20000",
        "4294967296",
        "noreply",
        "",
        "\t",
        "HTTP/1.1",
    ]);
    let line = prop::collection::vec(word, 0..8).prop_map(|words| words.join(" ").into_bytes());
    let ended = (line, prop::sample::select(vec!["\r\n", "\n", "\r", "\r\r\n"]))
        .prop_map(|(line, end)| [line, end.as_bytes().to_vec()].concat());
    let request = (0usize..600, -2i32..3, prop::sample::select(vec!["set", "add", "cas", "ms", "ms bad"])).prop_map(
        |(length, lie, verb)| {
            let announced = length.saturating_add_signed(lie as isize);
            let mut bytes = match verb {
                "ms" => format!("ms c29tZTprZXk= {announced} b T0 c q\r\n"),
                "ms bad" => format!("ms some:key {announced} T0 T0\r\n"),
                "cas" => format!("cas some:key 1 0 {announced} 5\r\n"),
                _ => format!("{verb} some:key 1 0 {announced}\r\n"),
            }
            .into_bytes();
            bytes.extend((0..length).map(|n| b"abc \n"[n % 5]));
            bytes.extend(b"\r\n");
            bytes
        },
    );
    let noise = prop::collection::vec(any::<u8>(), 0..40);
    let long = (0usize..5000).prop_map(|length| [&b"get "[..], &vec![b'q'; length]].concat());
    prop_oneof![6 => ended, 4 => request, 2 => noise, 1 => long]
}

/// Returns the parts of a stream that is cut at these places.
fn parts<'a>(stream: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.extend([0, stream.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect()
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..4000)) {
        steps([&bytes[..]]);
    }

    #[test]
    fn split_anywhere_same_steps(
        fragments in prop::collection::vec(fragment(), 0..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let stream = fragments.concat();
        let whole = steps([&stream[..]]);
        prop_assert_eq!(&steps(parts(&stream, &cuts)), &whole);
        prop_assert_eq!(&steps(stream.chunks(1)), &whole, "byte by byte");
    }

    /// A well-formed command after a value or an error is decoded: the stream stays in step.
    #[test]
    fn the_parser_stays_in_step(lengths in prop::collection::vec(0usize..12_000, 1..8), bad in any::<bool>(), meta in any::<bool>()) {
        let mut stream = Vec::new();
        for length in &lengths {
            let key = if bad { "k".repeat(251) } else { "k".into() };
            let line = if meta { format!("ms {key} {length} T0") } else { format!("set {key} 0 0 {length}") };
            stream.extend(format!("{line}\r\n").bytes());
            stream.extend(vec![b'\n'; *length]);
            stream.extend(b"\r\nversion\r\n");
        }
        let steps = steps([&stream[..]]);
        prop_assert_eq!(steps.len(), 2 * lengths.len());
        prop_assert!(steps.iter().skip(1).step_by(2).all(|step| step == "Command(Version)"));
    }
}
