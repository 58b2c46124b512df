//! What the parser promises:
//!
//! - each line of the protocol reads as memcached reads it, errors included;
//! - no bytes make it panic;
//! - the steps do not depend on how the bytes were split (invariant 1 of the decoder);
//! - after anything but a line too long, the next command is understood.

mod meta;

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::stash::Stash;

const ITEM_BYTES_MAX: usize = 10_000;

fn steps<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    super::steps::steps(ITEM_BYTES_MAX, chunks)
}

fn one(line: &str) -> Result<Command<'_>, Refused> {
    line::command(line.as_bytes())
}

fn keys(command: Result<Command<'_>, Refused>) -> Vec<String> {
    match command {
        Ok(Command::Get { keys, .. }) => keys.map(|key| String::from_utf8_lossy(key).into_owned()).collect(),
        other => panic!("not a get: {other:?}"),
    }
}

#[test]
fn gets_have_any_number_of_keys() {
    assert_eq!(keys(one("get a")), ["a"]);
    assert_eq!(keys(one("  get  a   b ")), ["a", "b"]);
    assert_eq!(keys(one("gat 10 a b")), ["a", "b"]);
    assert_eq!(keys(one("gat 10")), [""; 0], "memcached answers END");
    assert!(matches!(one("gets a"), Ok(Command::Get { unique: true, touch: None, .. })));
    assert!(matches!(one("gats -1 a"), Ok(Command::Get { unique: true, touch: Some(-1), .. })));
    let many: Vec<String> = (0..1000).map(|n| format!("key{n}")).collect();
    assert_eq!(keys(one(&format!("get {}", many.join(" ")))), many);
}

#[test]
fn store_lines() {
    let Ok(Command::Store(store)) = one("cas k 7 -1 5 18446744073709551615 noreply") else { panic!("not a store") };
    assert_eq!((store.verb, store.key, store.flags, store.exptime), (Verb::Cas, b"k"[..].into(), 7, -1));
    assert_eq!((store.length, store.unique, store.noreply), (5, u64::MAX, true));
    let Ok(Command::Store(store)) = one("set k 0 0 5 other") else { panic!("memcached takes any sixth word") };
    assert!(!store.noreply);
}

#[test]
fn refused_lines_in_memcacheds_words() {
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    for (line, text) in [
        ("", "ERROR"),
        ("   ", "ERROR"),
        ("x", "ERROR"),
        ("cache_memlimit", "ERROR"),
        ("cache_memlimit x", "ERROR"),
        ("tenant", "CLIENT_ERROR usage: tenant list | tenant set <name> [min|low|high|max]=<bytes>..."),
        ("tenant set shop", "CLIENT_ERROR usage: tenant list | tenant set <name> [min|low|high|max]=<bytes>..."),
        ("watch", "CLIENT_ERROR only evictions can be watched here"),
        ("watch evictions fetchers", "CLIENT_ERROR only evictions can be watched here"),
        ("watch x", "ERROR"),
        ("lru_crawler metadump x", "BADCLASS invalid class id"),
        ("lru_crawler metadump 1,64", "BADCLASS invalid class id"),
        ("lru_crawler metadump", "ERROR"),
        ("lru_crawler enable all", "ERROR"),
        ("GET a", "ERROR"),
        ("get", "ERROR"),
        ("gat", "ERROR"),
        ("set k 0 0", "ERROR"),
        ("set k 0 0 5 noreply more", "ERROR"),
        ("cas k 0 0 5", "ERROR"),
        ("delete", "ERROR"),
        ("delete k 0 noreply more", "ERROR"),
        ("incr k", "ERROR"),
        ("touch k", "ERROR"),
        ("verbosity", "ERROR"),
        ("flush_all 0 noreply more", "ERROR"),
        (&format!("get {long}"), "CLIENT_ERROR bad command line format"),
        (&format!("get a {long}"), "CLIENT_ERROR bad command line format"),
        (&format!("set {long} 0 0 5"), "CLIENT_ERROR bad command line format"),
        (&format!("delete {long}"), "CLIENT_ERROR bad command line format"),
        (&format!("touch {long} 0"), "CLIENT_ERROR bad command line format"),
        ("get a\tb", "CLIENT_ERROR bad command line format"),
        ("set k x 0 5", "CLIENT_ERROR bad command line format"),
        ("set k -1 0 5", "CLIENT_ERROR bad command line format"),
        ("set k 4294967296 0 5", "CLIENT_ERROR bad command line format"),
        ("set k 0 x 5", "CLIENT_ERROR bad command line format"),
        ("set k 0 0 -1", "CLIENT_ERROR bad command line format"),
        ("set k 0 0 5x", "CLIENT_ERROR bad command line format"),
        ("set k 0 0 2147483647", "CLIENT_ERROR bad command line format"),
        ("cas k 0 0 5 x", "CLIENT_ERROR bad command line format"),
        ("verbosity x", "CLIENT_ERROR bad command line format"),
        ("gat x k", "CLIENT_ERROR invalid exptime argument"),
        ("touch k x", "CLIENT_ERROR invalid exptime argument"),
        ("flush_all x", "CLIENT_ERROR invalid exptime argument"),
        ("incr k -1", "CLIENT_ERROR invalid numeric delta argument"),
        ("decr k 18446744073709551616", "CLIENT_ERROR invalid numeric delta argument"),
        ("delete k 1", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]"),
        ("delete k 0 x", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]"),
    ] {
        assert_eq!(one(line).map_err(|refused| refused.why.text()), Err(text), "{line:?}");
    }
}

#[test]
fn numbers_as_strtoull_reads_them() {
    assert_eq!(number::unsigned(b"18446744073709551615"), Some(u64::MAX));
    assert_eq!(number::unsigned(b" +12 "), Some(12));
    assert_eq!(number::unsigned(b"12 tail"), Some(12), "what stands behind white space is not looked at");
    assert_eq!(number::unsigned(b"\x0b1\x0b"), Some(1), "white space as C has it");
    assert_eq!(number::unsigned(b"-0"), Some(0));
    for not in [&b""[..], b" ", b"+", b"12x", b"-1", b"0x10", b"18446744073709551616", b"\xff"] {
        assert_eq!(number::unsigned(not), None, "{}", not.escape_ascii());
    }
    assert_eq!(number::signed(b"-9223372036854775808"), Some(i64::MIN));
    assert_eq!(number::signed(b"-9223372036854775809"), None);
}

#[test]
fn a_value_too_large_is_swallowed_whole() {
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
fn a_bad_data_chunk_ends_where_its_length_says() {
    let steps = steps([&b"set k 0 0 3\r\nabcdef\r\nversion\r\n"[..]]);
    assert_eq!(steps.len(), 3, "{steps:?}");
    assert!(steps[0].contains("BadDataChunk"));
    assert!(steps[1].contains("Unknown"), "what stands behind it is a line of its own, as in memcached");
    assert_eq!(steps[2], "Command(Version)");
}

#[test]
fn a_value_for_which_there_is_no_room_is_swallowed_once_it_is_given_up() {
    let runtime = lowwater::Runtime::builder().budget(lowwater::Bytes::kib(64)).build().unwrap();
    let arrivals = crate::arrival::Arrivals::new(&runtime, true, 0);
    for come in [1, 20_000, 49_152, 100_000, 100_001, 100_002] {
        let mut decoder = Decoder::new(1 << 20, &Arc::new(Stash::new(0)), Some(&arrivals));
        let input = [&b"set k 0 0 100000\r\n"[..], &[b'x'; 100_000], b"\r\nversion\r\n"].concat();
        let (used, step) = decoder.step(&input[..18 + come]);
        assert!(matches!(step, Step::More | Step::NoRoom), "{come}: {step:?}");
        let (taken, step) = decoder.step(&input[used..]);
        assert!(matches!((taken, step), (0, Step::NoRoom)), "however often it is asked");
        let block = decoder.give_up().unwrap();
        assert_eq!((block.verb, &*block.key), (Verb::Set, &b"k"[..]));
        assert!(decoder.give_up().is_none(), "once");
        let (_, step) = decoder.step(&input[used..]);
        assert!(matches!(step, Step::Command(Command::Version)), "{come}: {step:?}");
        drop(block);
        assert_eq!(arrivals.bytes(), lowwater::Bytes::ZERO);
    }
}

#[test]
fn lines_are_bounded() {
    let line_too_long = |input: &[u8]| steps([input]).first().is_some_and(|step| step.contains("LineTooLong"));
    assert!(!line_too_long(&[b'x'; 2048]));
    assert!(line_too_long(&[b'x'; 2049]));
    let gets = |length: usize| [&b"get "[..], &b"key ".repeat(length / 4)].concat();
    assert!(!line_too_long(&gets(200_000)));
    assert!(line_too_long(&gets(300_000)));
    assert!(line_too_long(&[&b"set "[..], &[b'k'; 2048], b" 0 0 1\r\nx\r\n"].concat()), "even if its end has come");
}

// === random streams ===

/// Something a client may send: commands, blocks that lie, and noise.
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
    let block = (0usize..600, -2i32..3, prop::sample::select(vec!["set", "add", "cas", "ms", "ms bad"])).prop_map(
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
    prop_oneof![6 => ended, 4 => block, 2 => noise, 1 => long]
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
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let whole = steps([&stream[..]]);
        prop_assert_eq!(&steps(cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]])), &whole);
        prop_assert_eq!(&steps(stream.chunks(1)), &whole, "byte by byte");
    }

    /// A well-formed command behind anything that ends cleanly is understood: nothing leaves the stream out of step.
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
