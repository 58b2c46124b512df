//! Readers that stay pinned hold back a bounded amount of memory. In a process of its own: they
//! hold it back everywhere.
//!
//! The runtime has one bound for all its caches: a quarter of the budget, but at least 16 MiB
//! (`src/runtime/retired.rs`).
//!
//! A change must ensure that the test stays in a process of its own.

#[path = "common/wait.rs"]
mod wait;

use lowwater::cache::RejectReason;
use lowwater::{ByteSize, Cache, Runtime};
use std::time::{Duration, Instant};
use wait::until;

#[test]
fn memory_held_back_by_readers_is_bounded() {
    let runtime = Runtime::builder().budget(ByteSize::mib(2)).direct_time_max(Duration::ZERO).build().unwrap();
    let weigher = |_: &u64, value: &Vec<u8>| ByteSize::new(value.capacity() as u64);
    let cache = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(weigher).build().unwrap();
    cache.insert(7, vec![7]).unwrap();
    let pinned = cache.pin();
    let seven = pinned.get(&7).unwrap();
    let refused = (100..100_000).find_map(|key| cache.insert(key, vec![0; 4_000]).err().map(|error| (key, error)));
    let (key, error) = refused.expect("16 MiB wait for us at most");
    assert!(matches!(error.reason, RejectReason::HeldByReaders { .. }) && error.value.len() == 4_000, "{error}");
    // Without time for reclaim an insert waits for readers all the same, as they may be about to
    // leave: `READERS_WAITS_MIN` times `READERS_WAIT` (`src/cache/charge.rs`).
    let begin = Instant::now();
    cache.insert(key, vec![0; 4_000]).expect_err("the reader is still there");
    assert!(begin.elapsed() >= Duration::from_micros(800), "eight waits of 100 us: {:?}", begin.elapsed());
    assert!((4_000..6_000).contains(&key), "{key} values of 4 kB: 2 MiB in the cache, 16 MiB behind it");
    assert!(cache.collect() >= ByteSize::mib(16));
    // An overwrite that needs no more bytes than the old value is held to the same bound.
    let present = (100..key).rev().find(|key| cache.contains_key(key)).expect("the youngest are there");
    let refused = (0..10_000).find_map(|_| cache.insert(present, vec![1; 4_000]).err());
    assert!(matches!(refused.expect("the bound").reason, RejectReason::HeldByReaders { .. }));
    let stats = runtime.stats();
    assert!(stats.retired <= ByteSize::mib(17), "{:?}", stats.retired);
    assert_eq!(seven, &[7]);
    drop(pinned);
    // The reclaimer's thread is a reader, too, while it evicts.
    until("no reader is left", || cache.insert(1, vec![1]).is_ok() && cache.collect() == ByteSize::ZERO);
}
