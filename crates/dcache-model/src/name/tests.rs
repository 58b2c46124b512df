//! What a name promises:
//!
//! - bytes are a name if and only if invariant 1 holds for them, and come back as they were;
//! - it allocates if and only if it is long (invariant 2);
//! - it is compared and hashed as its bytes;
//! - the directory is a part of its hash.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use proptest::prelude::*;

use super::*;

/// Always the same seed: a test that fails shall fail again.
type Fixed = BuildHasherDefault<DefaultHasher>;

#[test]
fn what_is_not_a_name_is_told_why() {
    let long = [b'x'; Name::BYTES_MAX + 1];
    for (bytes, error, words) in [
        (&b""[..], NameError::Empty, "at least one byte"),
        (b".", NameError::Dots, "ways to walk"),
        (b"..", NameError::Dots, "ways to walk"),
        (b"/", NameError::Slash { at: 0 }, "byte 0 of the name is a `/`"),
        (b"ab/c/d", NameError::Slash { at: 2 }, "byte 2 of the name is a `/`"),
        (b"abc\0", NameError::Nul { at: 3 }, "byte 3 of the name is NUL"),
        (&long, NameError::TooLong { len: 256 }, "at most 255 bytes, this one has 256"),
    ] {
        assert_eq!(Name::new(bytes), Err(error));
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn names_that_look_odd_are_names() {
    for bytes in [&b"..."[..], b".a", b"a.", b" ", b"\n", b"\xff\xfe", b"-rf"] {
        assert_eq!(Name::new(bytes).map(|name| name.as_bytes().to_vec()), Ok(bytes.to_vec()));
    }
}

#[test]
fn only_long_names_are_allocated() {
    for len in 1..=Name::BYTES_MAX {
        let name = Name::new(&vec![b'x'; len]).unwrap();
        assert_eq!(name.heap_bytes(), if len <= 32 { 0 } else { len }, "{len} bytes");
    }
    assert!(size_of::<Name>() <= 40, "a short name is no longer than its bytes and a word");
}

#[test]
fn bytes_that_are_not_text_are_shown_escaped() {
    let name = Name::new(b"a\xff\"").unwrap();
    assert_eq!(format!("{name} {name:?}"), r#"a\xff\" Name("a\xff\"")"#);
}

/// 10,000 directories with a file of one name each, in 1,024 buckets: about 10 in each, and none with more than 40.
#[test]
fn one_name_in_many_directories_spreads() {
    let name = Name::new(b"Makefile").unwrap();
    let mut buckets = BTreeMap::new();
    for parent in 0..10_000 {
        *buckets.entry(name.hash_in(parent, &Fixed::default()) % 1024).or_insert(0) += 1;
    }
    assert!(buckets.values().all(|&n| n <= 40), "{buckets:?}");
}

#[test]
fn a_map_of_names_is_asked_with_bytes() {
    let long = [b'y'; 100];
    let map: HashMap<Name, u32> = [(Name::new(b"short").unwrap(), 1), (Name::new(&long).unwrap(), 2)].into();
    assert_eq!((map.get(&b"short"[..]), map.get(&long[..]), map.get(&b"none"[..])), (Some(&1), Some(&2), None));
}

/// Bytes near all the limits.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![20 => any::<u8>(), 1 => Just(b'/'), 1 => Just(0), 4 => Just(b'.')];
    let len = prop_oneof![0..4_usize, 30..36_usize, 250..260_usize];
    len.prop_flat_map(move |len| proptest::collection::vec(byte.clone(), len))
}

proptest! {
    #[test]
    fn bytes_are_a_name_if_the_rules_say_so(bytes in bytes()) {
        let rules = (1..=255).contains(&bytes.len())
            && !bytes.iter().any(|b| matches!(b, 0 | b'/'))
            && !matches!(&bytes[..], b"." | b"..");
        let name = Name::new(&bytes);
        prop_assert_eq!(name.is_ok(), rules, "{:?}", &name);
        if let Ok(name) = name {
            prop_assert_eq!(name.as_bytes(), &bytes[..]);
            prop_assert_eq!(name.clone(), name);
        }
    }

    #[test]
    fn names_are_compared_and_hashed_as_their_bytes(a in bytes(), b in bytes(), parent: u64) {
        if let (Ok(x), Ok(y)) = (Name::new(&a), Name::new(&b)) {
            prop_assert_eq!(x == y, a == b);
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            prop_assert_eq!(Fixed::default().hash_one(&x), Fixed::default().hash_one(&a[..]));
            prop_assert_eq!(x.hash_in(parent, &Fixed::default()), x.clone().hash_in(parent, &Fixed::default()));
        }
    }
}
