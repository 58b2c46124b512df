//! The housekeeper of many small caches, each with an entry that expires in every period of the
//! reaper, takes the processor time that docs/GUIDE.md states.
//!
//! In a process of its own, as it measures the processor time of the housekeeper's threads. A
//! change must ensure that no other test is added here.

#![cfg(target_os = "linux")]

use lowwater::{ByteSize, Cache, Runtime};
use std::fs::read_to_string;
use std::time::{Duration, Instant};

/// A sweep of one cache takes a tenth of a millisecond in release, and several times that in debug.
const CACHES: u64 = if cfg!(debug_assertions) { 200 } else { 400 };
const ENTRIES: u64 = 2_000;

/// Returns the processor time of the housekeeper's threads, in clock ticks, mostly of 10 ms.
fn ticks() -> u64 {
    let is_housekeeper = |name: &str| ["lowwater/maint", "lowwater/standb"].contains(&name.trim());
    let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
    let ticks = threads.filter(|thread| read_to_string(thread.join("comm")).is_ok_and(|name| is_housekeeper(&name)));
    let ticks = ticks.map(|thread| {
        let stat = read_to_string(thread.join("stat")).unwrap();
        let after_name = stat.rsplit(')').next().unwrap();
        after_name.split_whitespace().skip(11).take(2).map(|time| time.parse::<u64>().unwrap()).sum::<u64>()
    });
    ticks.sum()
}

#[test]
fn the_sweeps_of_many_small_caches_take_a_twentieth_of_a_processor() {
    let runtime = Runtime::builder().budget(ByteSize::gib(1)).build().unwrap();
    let caches: Vec<_> = (0..CACHES)
        .map(|_| Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap())
        .collect();
    for key in 0..ENTRIES {
        // An entry of each cache expires every 50 ms, for 100 seconds.
        let time = Duration::from_millis(50 * key);
        for cache in &caches {
            cache.entry(key).time_to_live(time).insert(key).unwrap();
        }
    }
    let (before, start) = (ticks(), Instant::now());
    // Each cache gets an entry with the earliest deadline after each of its sweeps.
    for key in 0..100 {
        let time = Duration::from_millis(20);
        for cache in &caches {
            cache.entry(ENTRIES + key).time_to_live(time).insert(key).unwrap();
        }
        std::thread::sleep(Duration::from_millis(40));
    }
    let (used, elapsed) = (ticks() - before, start.elapsed());
    let percent = 1_000.0 * used as f64 / elapsed.as_millis() as f64;
    let expired: u64 = caches.iter().map(|cache| cache.stats().expired).sum();
    println!("{percent:.1} % of a processor for {expired} expired entries in {elapsed:?}");
    assert!(expired > 0, "no sweep");
    assert!(percent < 15.0, "the housekeeper used {percent:.1} % of a processor");
}
