//! The time that `clear` and the drops of caches take on the caller's thread.
//!
//! A cache of a million entries is cleared, then another one is dropped, then a hundred thousand
//! empty caches. Of many entries the runtime's housekeeper removes each, after the call; where it
//! runs on the caller's processor, it may preempt the call.
//!
//! ```text
//! cargo run --release --example clear_and_drop
//! ```
//!
//! A change must keep the removals by the housekeeper out of the measured times, and wait for them
//! between two rounds.

#![forbid(unsafe_code)]

use std::error::Error;
use std::time::{Duration, Instant};

use clap::Parser;
use lowwater::cache::CacheBuildError;
use lowwater::{ByteSize, Cache, Runtime};

/// Measures `clear` and the drops of caches.
#[derive(Debug, Parser)]
struct Args {
    /// Entries of the cleared and of the dropped cache
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 28))]
    entries: u64,
    /// Empty caches
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    caches: u32,
    /// Rounds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// One JSON object for each round instead of text
    #[arg(long)]
    json: bool,
}

fn empty(runtime: &Runtime) -> Result<Cache<u64, u64>, CacheBuildError> {
    Cache::builder(runtime).weigher(|_, _| ByteSize::ZERO).build()
}

fn filled(runtime: &Runtime, entries: u64) -> Result<Cache<u64, u64>, Box<dyn Error>> {
    let cache = empty(runtime)?;
    for key in 0..entries {
        cache.insert(key, key)?;
    }
    Ok(cache)
}

/// Waits until the housekeeper has removed all entries.
fn wait_for_housekeeper(runtime: &Runtime) {
    let is_left = || {
        runtime.tree().drain_stock();
        runtime.root().usage() > ByteSize::ZERO || runtime.stats().retired > ByteSize::ZERO
    };
    while is_left() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let runtime = Runtime::builder().unlimited().build()?;
    for _ in 0..args.rounds {
        let cache = filled(&runtime, args.entries)?;
        let cleared = timed(|| cache.clear());
        drop(cache);
        wait_for_housekeeper(&runtime);
        let cache = filled(&runtime, args.entries)?;
        let dropped = timed(|| drop(cache));
        wait_for_housekeeper(&runtime);
        let caches = (0..args.caches).map(|_| empty(&runtime)).collect::<Result<Vec<_>, _>>()?;
        let ended = timed(|| drop(caches)) / args.caches;
        let us = |time: Duration| time.as_nanos() as f64 / 1_000.0;
        let (cleared, dropped, ended) = (us(cleared), us(dropped), us(ended));
        if args.json {
            println!("{{\"clear_us\":{cleared:.3},\"drop_us\":{dropped:.3},\"drop_of_an_empty_cache_us\":{ended:.3}}}");
        } else {
            println!("clear {cleared:.1} us, drop {dropped:.1} us, drop of an empty cache {ended:.2} us");
        }
    }
    Ok(())
}
