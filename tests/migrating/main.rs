//! Each row of the tables of docs/MIGRATING.md, on lowwater's side.
//!
//! A reader translates a program by that page. So each call that it names is compiled here as it is
//! written there, and has the effect of the row's last column. A file has the rows of a section of
//! the page; `// row:` and the beginning of a first cell name the row. `ci/claims.sh` fails if a
//! row is neither here nor quoted in `ci/claims.md`.
//!
//! A change must ensure that a row's program fails if the row is wrong: a compiled call without an
//! assertion shows only that the name exists.

#![forbid(unsafe_code)]

#[path = "../common/one_processor.rs"]
mod one_processor;
#[path = "../common/wait.rs"]
mod wait;

mod differences;
mod foyer;
mod lru;
mod moka;
mod moka_builder;
mod moka_entry;
#[cfg(feature = "async")]
mod moka_future;
mod quick_cache;
mod quick_cache_builder;
mod quick_cache_unsync;

use std::sync::Arc;

use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Runtime};

/// The result of a test: with `?`, as the page has it.
type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Returns a runtime with one node, so that counts do not depend on the machine.
fn runtime(budget: ByteSize) -> Runtime {
    Runtime::builder().budget(budget).topology(Arc::new(Fixed::new(1))).build().unwrap()
}

/// Returns a cache of texts in a runtime of its own with room for all entries of a test.
fn texts() -> Cache<String, String> {
    let builder = Cache::builder(&runtime(ByteSize::mib(16)));
    builder.weigher(|key: &String, text: &String| key.capacity() + text.capacity()).build().unwrap()
}

/// Returns a cache of numbers in a runtime of its own with this budget.
fn numbers(budget: ByteSize) -> Cache<u64, u64> {
    Cache::builder(&runtime(budget)).weigher(|_, _| ByteSize::ZERO).build().unwrap()
}

/// Returns a cache with the texts "a" to "e", each under its own key.
fn letters() -> Cache<String, String> {
    let cache = texts();
    for letter in ["a", "b", "c", "d", "e"] {
        cache.insert(letter.into(), letter.into()).unwrap();
    }
    cache
}
