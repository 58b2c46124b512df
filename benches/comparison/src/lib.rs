//! The programs of docs/MIGRATING.md, the contenders' among them: `cargo test --doc --
//! --include-ignored`.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/MIGRATING.md")]
struct Migrating;
