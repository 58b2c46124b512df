//! The housekeeper rests while a reader holds back the memory of a sparse cache, although it tries
//! again and again to return that memory.
//!
//! In a process of its own, as it measures the processor time of the process. A change must ensure
//! that no other test is added here.

#![cfg(target_os = "linux")]

#[path = "common/wait.rs"]
mod wait;

use lowwater::{ByteSize, Cache, Runtime};
use std::time::Duration;
use wait::until;

/// Returns the processor time of this process, in clock ticks, mostly of 10 ms.
fn ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    after_name.split_whitespace().skip(11).take(2).map(|time| time.parse::<u64>().unwrap()).sum()
}

#[test]
fn the_housekeeper_rests_while_a_reader_holds_back_memory() {
    let runtime = Runtime::builder().budget(ByteSize::mib(512)).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let other = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    for key in 0..400_000 {
        cache.insert(key, key).unwrap();
    }
    for key in (0..400_000).filter(|key| key % 5 < 3) {
        cache.remove(&key);
    }
    let reader = other.pin();
    cache.clear();
    until("the cleared entries are removed", || {
        runtime.tree().drain_stock();
        runtime.stats().usage == ByteSize::ZERO
    });
    let before = ticks();
    std::thread::sleep(Duration::from_secs(2));
    let used = ticks() - before;
    assert!(used < 100, "{used} ticks of processor time in two idle seconds");
    drop(reader);
}
