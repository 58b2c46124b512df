//! Lines are parsed as memcached parses them, including the errors; `protocol.rs` lists the
//! differences.
//!
//! The expected texts are those of memcached 1.6.18, but for the command `tenant`;
//! `ci/memcached.sh` compares both servers. A change must keep memcached's texts.

mod meta;

use proptest::prelude::*;

use super::command::{Command, PlainSet, StoreCommand, StoreVerb};
use super::error::{ProtocolError, RefusedLine};
use super::item::KEY_BYTES_MAX;
use super::meta_command::{MetaCommand, MetaVerb};
use super::*;

const ITEM_BYTES_MAX: usize = 10_000;

fn steps<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
    crate::decoder::steps::steps(ITEM_BYTES_MAX, chunks)
}

fn one(line: &str) -> Result<Command<'_>, RefusedLine> {
    line::command(line.as_bytes())
}

fn keys(command: Result<Command<'_>, RefusedLine>) -> Vec<String> {
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
    assert_eq!((store.verb, store.key, store.flags, store.exptime), (StoreVerb::Cas, b"k"[..].into(), 7, -1));
    assert_eq!((store.length, store.unique, store.noreply), (5, u64::MAX, true));
    let Ok(Command::Store(store)) = one("set k 0 0 5 other") else { panic!("memcached takes any sixth word") };
    assert!(!store.noreply);
}

#[test]
fn usual_lines_are_plain() {
    assert_eq!(line::plain_get(b"get key:1\r\nget"), Some((&b"key:1"[..], 11)));
    assert_eq!(line::plain_get(b"get key:1\n\n"), Some((&b"key:1"[..], 10)));
    let key = [b'k'; KEY_BYTES_MAX];
    assert_eq!(line::plain_get(&[b"get ", &key[..], b"\r\n"].concat()), Some((&key[..], 6 + key.len())));
    assert_eq!(line::plain_get(&[b"get k", &key[..], b"\r\n"].concat()), None, "a key of 251 bytes");
    for other in ["get", "get ", "get \r\n", "get a", "get a\r", "get a\r\r\n", "get a b\n", "get a \n"] {
        assert_eq!(line::plain_get(other.as_bytes()), None, "{other:?}");
    }
    for other in ["get  a\n", "gets a\n", "get a\0\n", "get a\tb\n"] {
        assert_eq!(line::plain_get(other.as_bytes()), None, "{other:?}");
    }
    let expected = PlainSet { key: b"k", flags: u32::MAX, exptime: 60, length: 100, noreply: true };
    assert_eq!(line::plain_set(b"set k 4294967295 60 100 noreply\r\nvalue"), Some((expected, 33)));
    for other in ["set k 0 0 10", "set k 0 0 1\r", "set k 0 0\n", "set k 0 0 \n", "set k 0 0 1 \n", "set  k 0 0 1\n"] {
        assert_eq!(line::plain_set(other.as_bytes()), None, "{other:?}");
    }
    for other in ["set k\0 0 0 1\n", "set k 4294967296 0 1\n", "set k 0 0 1 noreply \n", "set k 0 0 1 noreplyx\n"] {
        assert_eq!(line::plain_set(other.as_bytes()), None, "{other:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_096))]

    #[test]
    fn a_plain_line_has_the_meaning_that_the_whole_parser_finds(
        words in prop::collection::vec(0usize..14, 1..6),
        spaces in prop::collection::vec(0usize..20, 9),
    ) {
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        let known = [
            "set", "k", "key:1", "0", "7", "30", "4294967295", "4294967296", "12345678901", "-1", "noreply", "k\0y",
            "\t", &long,
        ];
        let mut text = String::from(["get ", "set "][spaces[8] % 2]);
        for (word, space) in words.iter().zip(&spaces) {
            text += known[*word];
            text += [" ", "  ", ""][space.saturating_sub(17)];
        }
        let text = text.strip_suffix(' ').filter(|_| spaces[8] > 0).unwrap_or(&text);
        let input = [text, "\r\n"].concat();
        if let Some((key, used)) = line::plain_get(input.as_bytes()) {
            prop_assert_eq!(used, input.len());
            prop_assert_eq!(keys(one(text)), [String::from_utf8_lossy(key)]);
        }
        // The caller refuses a longer value.
        if let Some((plain, used)) = line::plain_set(input.as_bytes()).filter(|(plain, _)| plain.length < 1 << 31) {
            prop_assert_eq!(used, input.len());
            let expected = StoreCommand {
                verb: StoreVerb::Set,
                key: plain.key.into(),
                flags: plain.flags,
                exptime: plain.exptime,
                length: plain.length,
                unique: 0,
                noreply: plain.noreply,
                meta: None,
            };
            prop_assert_eq!(one(text), Ok(Command::Store(expected)));
        }
    }
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
        ("tenant", ProtocolError::TenantUsage.text()),
        ("tenant set shop", ProtocolError::TenantUsage.text()),
        ("watch x", "ERROR"),
        ("watch rawcmds sysevents proxyreqs proxyevents proxyuser fetchers mutations x", "ERROR"),
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
        ("get a\0b", "CLIENT_ERROR bad command line format"),
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
    assert_eq!(number::unsigned(b"12 tail"), Some(12), "text after white space is ignored");
    assert_eq!(number::unsigned(b"\x0b1\x0b"), Some(1), "white space as in C");
    // Around ten digits, the bound of the fast path `digits`; `/` and `:` are beside the digits in
    // ASCII.
    for text in
        ["0", "9", "0000000001", "00000000001", "4294967295", "9999999999", "10000000000", "18446744073709551615"]
    {
        assert_eq!(number::unsigned(text.as_bytes()), text.parse().ok(), "{text}");
        for other in [
            format!("{text}x"),
            format!("x{text}"),
            format!("{text}/"),
            format!("{text}:"),
            "18446744073709551616".into(),
        ] {
            assert_eq!(number::unsigned(other.as_bytes()), None, "{other}");
        }
    }
    assert_eq!(number::unsigned(b""), None);
    assert_eq!(number::unsigned(b"-0"), Some(0));
    for not in [&b""[..], b" ", b"+", b"12x", b"-1", b"0x10", b"18446744073709551616", b"\xff"] {
        assert_eq!(number::unsigned(not), None, "{}", not.escape_ascii());
    }
    assert_eq!(number::signed(b"-9223372036854775808"), Some(i64::MIN));
    assert_eq!(number::signed(b"-9223372036854775809"), None);
}
