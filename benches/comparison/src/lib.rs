//! The programs of docs/MIGRATING.md, including moka's, as tests: `cargo test
//! --doc -- --include-ignored`.
//!
//! A program of the page that does not compile any more is found by `ci/comparison.sh`.
//!
//! A change must ensure that the page is included as a whole: a program that is left out is not
//! compiled.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/MIGRATING.md")]
struct Migrating;
