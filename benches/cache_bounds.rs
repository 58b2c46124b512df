//! The memory overhead of the keyed cache, and the latency of its calls at their worst.
//!
//! | `cargo bench --bench cache_bounds -- ..` | measurement |
//! |---|---|
//! | `memory [N]` | resident bytes per entry of u64 to u64, including the allocator, with N entries (10,000,000) |
//! | `insert` | the latency of inserts of new keys into a full cache of 1,000,000 |
//! | `shrink` | 2,000,000 entries are shrunk to a tenth while a thread reads those that will stay: the latency of its gets, from 50 ms before the shrink on, and the share of the freed memory that is returned to the system |
//! | `shrink random` | the same, but the thread reads random entries of all, from a second before the shrink on, so that the entries that stay are scattered |
//!
//! Latencies are wall-clock times: on a machine with other work, the largest are those of threads
//! that were not running.
//!
//! A change must ensure that only the named calls are timed, and that a cache is full before the
//! timed inserts.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lowwater::{ByteSize, Cache, Runtime};

type Numbers = Cache<u64, u64>;

/// Returns a cache with a budget for `entries` entries. With a tenth more than will be inserted,
/// nothing is evicted.
fn cache(entries: u64) -> Numbers {
    let budget = ByteSize::new(Numbers::ENTRY_BYTES.get() * entries);
    let runtime = Runtime::builder().budget(budget).build().expect("a budget that is not 0");
    Cache::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().expect("a shrinker id is free")
}

/// Returns the key of a number: no hardware prefetcher predicts the keys of successive numbers.
fn key(n: u64) -> u64 {
    n.wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// Returns the resident bytes, on a system with pages of 4 KiB.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux reports the resident pages");
    pages.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("statm has a second number")
        * 4096
}

fn fill(cache: &Numbers, keys: std::ops::Range<u64>) {
    keys.for_each(|n| drop(cache.insert(key(n), n)));
}

fn print_times(what: &str, mut times: Vec<u64>) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() as f64 * part) as usize).min(times.len() - 1)];
    let (half, most, tail, last) = (at(0.5), at(0.99), at(0.999), at(1.0));
    println!("{what}: {half} ns, 99 % {most}, 99.9 % {tail}, largest {last} (of {})", times.len());
}

fn memory(entries: u64) {
    let cache = cache(entries / 10 * 11);
    // So that allocations with the first entry do not count.
    fill(&cache, 0..1);
    let before = resident();
    fill(&cache, 1..entries);
    let an_entry = (resident() - before) as f64 / entries as f64;
    println!("{} entries: {an_entry:.2} bytes each, {:.2} beyond the payload of 16", cache.len(), an_entry - 16.0);
}

fn insert() {
    const ENTRIES: u64 = 1_000_000;
    let cache = cache(ENTRIES);
    fill(&cache, 0..2 * ENTRIES);
    let timed = |n: u64| {
        let begin = Instant::now();
        drop(cache.insert(key(n), n));
        begin.elapsed().as_nanos() as u64
    };
    print_times("insert into a full cache", (2 * ENTRIES..6 * ENTRIES).map(timed).collect());
}

/// Shrinks a cache to a tenth while a thread reads the entries that stay, or with `random` all
/// entries; prints the latencies of the reads, and the share of the memory that was returned.
fn shrink(random: bool) {
    const ENTRIES: u64 = 2_000_000;
    const LOOKS_MAX: usize = 20_000_000;
    let empty = resident();
    let cache = cache(ENTRIES / 10 * 11);
    fill(&cache, 0..ENTRIES);
    let full = resident();
    let stop = AtomicBool::new(false);
    // Without `random`, the youngest tenth is read, which stays.
    let (first, pause) = if random { (0, 1_000) } else { (ENTRIES / 10 * 9, 50) };
    thread::scope(|s| {
        let reader = s.spawn(|| {
            let (mut times, mut n) = (Vec::with_capacity(LOOKS_MAX), 1_u64);
            while !stop.load(Ordering::Relaxed) && times.len() < LOOKS_MAX {
                n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let wanted = key(first + (n >> 33) % (ENTRIES - first));
                let begin = Instant::now();
                black_box(cache.get(&wanted));
                times.push(begin.elapsed().as_nanos() as u64);
            }
            times
        });
        thread::sleep(Duration::from_millis(pause));
        let target = ByteSize::new(Numbers::ENTRY_BYTES.get() * ENTRIES / 10);
        let begin = Instant::now();
        cache.runtime().set_budget(target);
        while cache.runtime().root().usage() > target {
            thread::sleep(Duration::from_millis(1));
        }
        println!("shrunk in {:?}", begin.elapsed());
        stop.store(true, Ordering::Relaxed);
        print_times("a get meanwhile", reader.join().expect("the reader does not panic"));
    });
    // For compaction, which begins when the number of entries has been stable for 50 ms (`QUIET` in
    // src/cache/compaction.rs); the rest of the time is for the copies.
    thread::sleep(Duration::from_millis(300));
    let (left, now) = (cache.len() as u64, resident());
    let freed = (full - empty) as f64 * (ENTRIES - left) as f64 / ENTRIES as f64;
    let back = (full as f64 - now as f64) / freed * 100.0;
    println!("{left} entries left; of {:.0} MB that they leave {back:.0} % are the system's", freed / 1e6);
    println!("the cache's own account: {}", cache.footprint());
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["memory"] => memory(10_000_000),
        ["memory", entries] => memory(entries.parse().expect("memory N: a number of entries")),
        ["insert"] => insert(),
        ["shrink"] => shrink(false),
        ["shrink", "random"] => shrink(true),
        _ => println!("cargo bench --bench cache_bounds -- memory [N] | insert | shrink [random]"),
    }
}
