//! Ghosts of keys that return after their entry would have expired: more memory would bring no hit.
//!
//! Two caches with the same number of requests share a budget: `timed` loops over its keys, and its
//! entries have a deadline; `zipf` has none. A manual clock advances with the requests.
//!
//! A bound may be narrowed; a wider one hides a change of the victim selection.

use std::sync::Arc;
use std::time::Duration;

use super::without_reclaimer;
use crate::cache::Eviction;
use crate::runtime::ManualClock;
use crate::{topology, ByteSize, Cache, Runtime};

#[path = "../../../tests/common/random.rs"]
mod random;

const BUDGET: ByteSize = ByteSize::mib(16);
const VALUE: ByteSize = ByteSize::new(1_000);
const REQUESTS_PER_SECOND: u64 = 800;
const SECOND: Duration = Duration::from_secs(1);

/// The times of the entries of `timed`.
#[derive(Clone, Copy, Debug)]
enum Time {
    ToLive(u64),
    ToIdle(u64),
    /// A time to live and a stale time.
    Stale(u64, u64),
}

fn timed(runtime: &Runtime, time: Time, order: Eviction) -> Cache<u64, ()> {
    let builder = Cache::builder(runtime).eviction(order).weigher(|_, ()| VALUE);
    let builder = match time {
        Time::ToLive(live) => builder.time_to_live(SECOND * live as u32),
        Time::ToIdle(idle) => builder.time_to_idle(SECOND * idle as u32),
        Time::Stale(live, stale) => {
            builder.time_to_live(SECOND * live as u32).stale_while_revalidate(SECOND * stale as u32)
        }
    };
    builder.build().unwrap()
}

fn ask(cache: &Cache<u64, ()>, key: u64) {
    if cache.get(&key).is_none() {
        cache.insert(key, ()).unwrap();
    }
}

/// Returns the hits of `timed`, which asks for each of its keys every `seconds`, and the part of
/// the budget that `zipf` holds, both over the last half of `loops` loops.
fn of_a_loop(seconds: u64, loops: u64, time: Time, order: Eviction) -> (u64, f64) {
    let clock = ManualClock::new();
    let runtime = without_reclaimer(BUDGET).clock(&clock).topology(Arc::new(topology::Fixed::new(1))).build().unwrap();
    let timed = timed(&runtime, time, order);
    let zipf = Cache::builder(&runtime).weigher(|_, ()| VALUE).build().unwrap();
    let (mut random, keys) = (random::Random(1), seconds * REQUESTS_PER_SECOND);
    let (mut hits, mut held, mut counts) = (0, 0.0, 0);
    for n in 0..keys * loops {
        ask(&timed, n % keys);
        ask(&zipf, random.zipf(100_000));
        if n % (REQUESTS_PER_SECOND / 8) == 0 {
            clock.advance(SECOND / 8);
            if n < keys * loops / 2 {
                hits = timed.stats().hits;
                continue;
            }
            held += zipf.stats().bytes.get() as f64 / BUDGET.get() as f64;
            counts += 1;
        }
    }
    let (hits, held) = (timed.stats().hits - hits, held / f64::from(counts));
    println!("{time:?} {order:?}: {hits} hits, the other cache holds {held:.2}");
    (hits, held)
}

#[test]
fn a_loop_longer_than_its_time_gets_no_memory() {
    let orders = [Eviction::Adaptive, Eviction::S3Fifo, Eviction::Lru].map(|order| (Time::ToLive(10), order));
    let times = [Time::ToIdle(8), Time::Stale(5, 5)].map(|time| (time, Eviction::Adaptive));
    let held = orders.into_iter().chain(times).map(|(time, order)| {
        let (hits, held) = of_a_loop(12, 8, time, order);
        assert_eq!(hits, 0, "{time:?} {order:?}");
        held
    });
    let held: Vec<_> = held.collect();
    assert!(held.iter().all(|held| *held >= 0.75), "{held:?}");
}

#[test]
fn a_loop_shorter_than_its_time_gets_memory() {
    for time in [Time::ToLive(60), Time::ToIdle(8), Time::Stale(50, 10)] {
        let (hits, held) = of_a_loop(6, 16, time, Eviction::Adaptive);
        assert!(hits >= 6 * REQUESTS_PER_SECOND * 8 / 2, "{time:?}: {hits} hits, {held}");
    }
}
