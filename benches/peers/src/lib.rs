//! The programs of docs/MIGRATING.md, the peers' among them: `cargo test --doc -- --include-ignored`.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/MIGRATING.md")]
struct Migrating;
