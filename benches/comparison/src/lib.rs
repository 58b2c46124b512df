//! The programs of docs/MIGRATING.md, including those of the contenders, as tests: `cargo test
//! --doc -- --include-ignored`.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/MIGRATING.md")]
struct Migrating;
