//! The resident memory that the first entry of a cache takes.
//!
//! The only test of its process, as it reads the process's resident memory: the store's chunks come
//! from the system, so a counting allocator (`small_caches.rs`) does not see them.
//!
//! The bound may be lowered; a change that raises it must be explained.

#![cfg(target_os = "linux")]

use lowwater::{ByteSize, Cache, Runtime};

const CACHES: usize = 10_000;
const FIRST_ENTRY_MAX: usize = 1_500;

/// Returns the bytes of the process's resident memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn the_first_entry_of_a_cache_costs_1500_bytes_at_most() {
    if std::env::var_os("LOWWATER_SANITIZER").is_some() {
        return println!("skipped: a sanitizer's own memory is resident, too");
    }
    let runtime = Runtime::builder().budget(ByteSize::gib(1)).build().unwrap();
    let cache = |_| Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let caches: Vec<_> = (0..CACHES).map(cache).collect();
    // The first caches allocate tables of the runtime that the others share.
    let (warm, rest) = caches.split_at(CACHES / 10);
    warm.iter().for_each(|cache| assert!(cache.insert(0, 0).is_ok()));
    let before = resident();
    rest.iter().for_each(|cache| assert!(cache.insert(0, 0).is_ok()));
    let each = (resident() - before) / rest.len();
    println!("{each} bytes the first entry of a cache");
    assert!((1..=FIRST_ENTRY_MAX).contains(&each), "{each} bytes the first entry of a cache");
    assert!(caches.iter().all(|cache| cache.get(&0) == Some(0)));
}
