//! The meta commands' lines: every flag, and every error, with memcached's text.
//!
//! The expected texts are those of memcached 1.6.18; `ci/memcached.sh` compares both servers. The
//! limit of words is that of 1.6.45. A change must keep memcached's texts.

use super::*;

fn meta(line: &str) -> MetaCommand<'_> {
    match one(line) {
        Ok(Command::Meta(meta)) => meta,
        other => panic!("{line:?} is {other:?}"),
    }
}

fn store(line: &str) -> StoreCommand<'_> {
    match one(line) {
        Ok(Command::Store(store)) => store,
        other => panic!("{line:?} is {other:?}"),
    }
}

fn fault(line: &str) -> (&'static str, usize) {
    match one(line) {
        Err(refused) => (refused.why.text(), refused.swallow),
        other => panic!("{line:?} is {other:?}"),
    }
}

#[test]
fn flags_are_read_and_kept_in_order() {
    let meta = meta("mg Zm9v b v t Oq1 N30 R-1 T0 u q k");
    assert_eq!((meta.verb, &*meta.key), (MetaVerb::Get, &b"foo"[..]));
    let options = &meta.options;
    assert!(options.binary && options.value && options.unused && options.quiet && !options.invalidate);
    assert_eq!((options.vivify, options.recache, options.exptime), (Some(30), Some(-1), Some(0)));
    let flags: Vec<_> = meta.flags.clone().map(|flag| String::from_utf8_lossy(flag)).collect();
    assert_eq!(flags, ["b", "v", "t", "Oq1", "N30", "R-1", "T0", "u", "q", "k"]);

    let ma = self::meta("ma k MD D7 J9 C5 I Lpath P");
    assert_eq!((ma.verb, ma.options.mode, ma.options.delta), (MetaVerb::Arithmetic, Some(b'D'), Some(7)));
    assert_eq!((ma.options.initial, ma.options.unique, ma.options.invalidate), (9, Some(5), true));
    assert_eq!(self::meta("md k").verb, MetaVerb::Delete);
    assert_eq!(one("mn what ever"), Ok(Command::MetaNoop));
    assert_eq!(one("me Zm9v b"), Ok(Command::MetaDebug { key: b"foo".into() }));
    assert_eq!(one("me Zm9v x b"), Ok(Command::MetaDebug { key: b"Zm9v".into() }), "only the first flag is read");
}

#[test]
fn ms_is_every_store_command() {
    for (line, verb, unique) in [
        ("ms k 3", StoreVerb::Set, 0),
        ("ms k 3 MS", StoreVerb::Set, 0),
        ("ms k 3 MR", StoreVerb::Replace, 0),
        ("ms k 3 C7", StoreVerb::Cas, 7),
        ("ms k 3 C7 MR", StoreVerb::Cas, 7),
        ("ms k 3 C7 ME", StoreVerb::Add, 7),
        ("ms k 3 MA C7", StoreVerb::Append, 7),
        ("ms k 3 MP", StoreVerb::Prepend, 0),
    ] {
        let store = store(line);
        assert_eq!((store.verb, store.unique, store.length), (verb, unique, 3), "{line}");
    }
    let full = store("ms Zm9v 0 T60 F9 c Ox b q I k C1");
    assert_eq!((&*full.key, full.exptime, full.flags, full.noreply), (&b"foo"[..], 60, 9, false));
    let meta = full.meta.unwrap();
    assert_eq!(&*meta.echo, b"c Ox k");
    assert!(meta.binary && meta.quiet && meta.invalidate);
    assert!(!store("ms k 0 I").meta.unwrap().invalidate, "no CAS number to compare");
}

#[test]
fn faults_in_memcacheds_words() {
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    let opaque = format!("O{}", "o".repeat(32));
    for (line, text) in [
        ("mg", "ERROR"),
        ("ma", "ERROR"),
        ("mx k", "ERROR"),
        ("me", "CLIENT_ERROR bad command line format"),
        ("me --- b", "CLIENT_ERROR bad command line format"),
        (&format!("mg {long}"), "CLIENT_ERROR bad command line format"),
        ("mg a\0b", "CLIENT_ERROR bad command line format"),
        ("mg k v s v", "CLIENT_ERROR duplicate flag"),
        ("mg k \u{e9}", "CLIENT_ERROR duplicate flag"),
        ("mg k S", "CLIENT_ERROR invalid flag"),
        ("mg k Tx S", "CLIENT_ERROR invalid flag"),
        ("mg Zm9 b", "CLIENT_ERROR error decoding key"),
        ("mg k N", "CLIENT_ERROR bad token in command line format"),
        ("mg k Tx Mxx", "CLIENT_ERROR incorrect length for M token"),
        ("mg k Fx", "CLIENT_ERROR bad command line format"),
        ("mg k Tx Fx", "CLIENT_ERROR bad token in command line format"),
        ("mg k Jx", "CLIENT_ERROR invalid numeric initial value"),
        ("mg k D-1", "CLIENT_ERROR invalid numeric delta value"),
        (&format!("mg k {opaque}"), "CLIENT_ERROR opaque token too long"),
        (&format!("mg k{}", " v".repeat(19)), "CLIENT_ERROR options flags are too long"),
        (&format!("md k{}", " v".repeat(19)), "CLIENT_ERROR options flags too long"),
        ("md k Cx", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma k Mx", "CLIENT_ERROR invalid mode for ma M token"),
        ("ms k", "CLIENT_ERROR bad command line format"),
        ("ms k x", "CLIENT_ERROR bad command line format"),
        ("ms k -1", "CLIENT_ERROR bad command line format"),
    ] {
        assert_eq!(fault(line), (text, 0), "{line:?}");
    }
    assert_eq!(meta("mg k v t s c f h l k q u P L I x R0 F1 J1 D1").flags.count(), 18, "the most flags");
    assert_eq!(store("ms k 3 v t s c f h l k q u P L I x F1 J1").length, 3, "one flag less, for the length");
}

#[test]
fn the_block_of_a_refused_line_is_discarded() {
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    for (line, text) in [
        ("ms k 3 Mz", "CLIENT_ERROR invalid mode for ms M token"),
        ("ms Zm9 3 b", "CLIENT_ERROR error decoding key"),
        ("ms k 3 c c", "CLIENT_ERROR duplicate flag"),
        (&format!("ms k 3 O{}", "o".repeat(32)), "CLIENT_ERROR opaque token too long"),
        (&format!("ms {long} 3"), "CLIENT_ERROR bad command line format"),
        (&format!("ms k 3{}", " v".repeat(18)), "CLIENT_ERROR options flags too long"),
    ] {
        assert_eq!(fault(line), (text, 5), "{line:?}");
        let input = format!("{line}\r\nxyz\r\nversion\r\n");
        let steps = steps([input.as_bytes()]);
        assert_eq!(steps.len(), 2, "{steps:?}");
        assert_eq!(steps[1], "Command(Version)");
    }
}
