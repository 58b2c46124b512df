//! Readers that stay pinned hold back a bounded amount of memory. In a process of its own: they
//! hold it back everywhere.

use lowwater::cache::RejectReason;
use lowwater::{ByteSize, Cache, Runtime};
use std::time::Duration;

#[test]
fn what_readers_hold_back_is_bounded() {
    let runtime =
        Runtime::builder().budget(ByteSize::mib(2)).direct_time_max(Duration::from_millis(2)).build().unwrap();
    let weigher = |_: &u64, value: &Vec<u8>| ByteSize::new(value.capacity() as u64);
    let cache = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(weigher).build().unwrap();
    cache.insert(7, vec![7]).unwrap();
    let pinned = cache.pin();
    let seven = pinned.get(&7).unwrap();
    let refused = (100..100_000).find_map(|key| cache.insert(key, vec![0; 4_000]).err().map(|error| (key, error)));
    let (key, error) = refused.expect("16 MiB wait for us at most");
    assert!(matches!(error.reason, RejectReason::HeldByReaders { .. }) && error.value.len() == 4_000, "{error}");
    assert!((4_000..6_000).contains(&key), "{key} values of 4 kB: 2 MiB in the cache, 16 MiB behind it");
    assert!(cache.collect() >= ByteSize::mib(16));
    assert_eq!(seven, &[7]);
    drop(pinned);
    cache.insert(1, vec![1]).unwrap();
    assert!(cache.collect() == ByteSize::ZERO);
}
