//! Misuse of public types: leaked, dropped late, mixed up, at the ends of their ranges, called from
//! their own callbacks. docs/HAZARDS.md names the test of each type and misuse, so a renamed test
//! is renamed there (`ci/hazards.sh`).
//!
//! Each file of this folder has one kind of misuse; `assert_whole` checks afterwards that nothing
//! is charged without an entry. Only safe code.
//!
//! A change must ensure that a test of one cache ends with `assert_whole`.

#![forbid(unsafe_code)]

mod callbacks;
#[path = "../../crates/base/tests/hazard/mod.rs"]
mod common;
mod ends;
mod late;
mod leaks;
mod mixed;
mod threads;

use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Runtime};
use std::sync::Arc;

type Numbers = Cache<u64, Vec<u8>>;

fn runtime(budget: ByteSize) -> Runtime {
    Runtime::builder().budget(budget).topology(Arc::new(Fixed::new(1))).build().unwrap()
}

fn cache(runtime: &Runtime) -> Numbers {
    Cache::builder(runtime).weigher(|_, value: &Vec<u8>| ByteSize::new(value.capacity() as u64)).build().unwrap()
}

fn filled(runtime: &Runtime, entries: u64) -> Numbers {
    let cache = cache(runtime);
    for n in 0..entries {
        cache.insert(n, vec![n as u8; 100]).unwrap();
    }
    cache
}

/// Asserts that the cache can be used, and that nothing is charged after the last entry is removed.
fn assert_whole(runtime: &Runtime, cache: &Numbers) {
    for n in 0..10 {
        cache.insert(n, vec![1; 50]).unwrap();
        assert_eq!(cache.get(&n), Some(vec![1; 50]));
    }
    cache.clear();
    assert!(cache.pin().iter().next().is_none());
    // The housekeeper or the reclaimer uncharges objects that it has just isolated.
    let start = std::time::Instant::now();
    while !cache.is_empty() || runtime.root().usage() > ByteSize::ZERO {
        runtime.tree().drain_stock();
        assert!(start.elapsed() < common::PATIENCE / 2, "{} are charged for nothing", runtime.root().usage());
        std::thread::yield_now();
    }
}
