//! Memory of evicted entries returns to the system. In a process of its own: resident memory is
//! that of the process.
//!
//! The measured figure is the system's, so it includes memory that the allocator or a slab keeps.
//!
//! A bound may be made stricter; a change that weakens one must be explained.

#![cfg(target_os = "linux")]

use lowwater::{ByteSize, Cache, Runtime};
use std::time::{Duration, Instant};

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Every tenth entry was read and stays, so the remaining entries are scattered over the whole
/// cache, and compaction must move them: of the cache's memory 70 % must be freed, and 90 % of that
/// must leave the process.
#[test]
fn a_shrink_to_a_tenth_returns_the_memory() {
    const ENTRIES: u64 = 500_000;
    if std::env::var_os("LOWWATER_SANITIZER").is_some() {
        return println!("skipped: a sanitizer has memory of its own");
    }
    // More than the entries need, so that the reclaimer evicts none before the budget is lowered.
    let all = ByteSize::new(ENTRIES * (Cache::<u64, u64>::ENTRY_BYTES.get() + 8));
    let runtime = Runtime::builder().budget(all).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    for key in 0..ENTRIES {
        cache.insert(key, key).unwrap();
    }
    for key in (0..ENTRIES).step_by(10) {
        for _ in 0..3 {
            cache.get(&key);
        }
    }
    let (full, footprint) = (resident(), cache.footprint());
    runtime.set_budget(ByteSize::new(all.get() / 10));
    let began = Instant::now();
    loop {
        let freed = footprint.saturating_sub(cache.footprint()).get();
        let back = full.saturating_sub(resident());
        if freed >= footprint.get() * 7 / 10 && back >= freed * 9 / 10 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(300), "{back} of {freed} bytes went back");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(cache.len() as u64 > ENTRIES / 20, "{} entries are left", cache.len());
}
