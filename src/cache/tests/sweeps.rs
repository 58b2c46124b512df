//! Single steps of the reaper (`expiry/reaper.rs`), without the housekeeper: when a sweep begins,
//! how long it rests, and when the next one is due.
//!
//! A change must ensure that each step is called by hand: beside a housekeeper, the number of steps
//! and the rests would depend on when its thread runs.

use super::cache_of;
use crate::runtime::{Maintenance, NextRun};
use crate::{ByteSize, Cache};
use std::time::Duration;

/// The reaper's `PERIOD`, written out: the least time between the starts of two sweeps.
const PERIOD: Duration = Duration::from_millis(250);

/// Returns a cache that the housekeeper does not visit: only the test's thread sweeps.
fn swept_by_hand() -> Cache<u64, Vec<u8>> {
    let cache = cache_of(ByteSize::mib(16));
    cache.runtime().housekeeper().remove(cache.inner.maintenance);
    cache
}

fn step(cache: &Cache<u64, Vec<u8>>) -> NextRun {
    Maintenance::reap_expired(&*cache.inner.core)
}

/// Inserts `expired` entries whose deadline has passed, and `live` entries without a deadline.
fn fill(cache: &Cache<u64, Vec<u8>>, expired: u64, live: u64) {
    for key in 0..expired {
        cache.entry(key).time_to_live(Duration::ZERO).insert(vec![]).unwrap();
    }
    for key in expired..expired + live {
        cache.insert(key, vec![]).unwrap();
    }
    // Longer than a tick of 4 ms, by which a deadline is rounded up.
    std::thread::sleep(Duration::from_millis(5));
}

/// Runs one whole sweep. Returns the rests after its parts, and the step that follows the sweep.
fn sweep(cache: &Cache<u64, Vec<u8>>) -> (Vec<u32>, NextRun) {
    let mut rests = Vec::new();
    loop {
        match step(cache) {
            NextRun::Now { rest } => rests.push(rest),
            next => return (rests, next),
        }
    }
}

/// As [`sweep`], and repeats the step until the memory that readers of other tests may hold back is
/// freed.
fn sweep_and_collect(cache: &Cache<u64, Vec<u8>>) -> (Vec<u32>, NextRun) {
    let (rests, mut next) = sweep(cache);
    while next == NextRun::In(PERIOD) {
        std::thread::sleep(Duration::from_millis(1));
        next = step(cache);
    }
    (rests, next)
}

#[test]
fn a_sweep_rests_less_where_a_quarter_of_the_entries_has_expired() {
    // The rests are `REST_MANY` (3) and `REST_FEW` (19).
    for (expired, live, rest) in [(25, 75, 3), (24, 76, 19), (100, 0, 3), (1, 99, 19)] {
        let cache = swept_by_hand();
        fill(&cache, expired, live);
        // 100 entries are one part of the index.
        assert_eq!(sweep_and_collect(&cache), (vec![rest], NextRun::WhenNotified), "{expired} of 100 have expired");
        assert_eq!((cache.stats().expired, cache.len() as u64), (expired, live));
    }
}

#[test]
fn a_sweep_of_a_larger_cache_has_several_parts() {
    let cache = swept_by_hand();
    fill(&cache, 2_000, 2_000);
    let (rests, next) = sweep_and_collect(&cache);
    assert!(rests.len() > 2 && rests.iter().all(|rest| *rest == 3), "{rests:?}");
    assert_eq!((next, cache.stats().expired, cache.len()), (NextRun::WhenNotified, 2_000, 2_000));
}

#[test]
fn the_next_sweep_begins_a_period_after_the_last_one_began() {
    let cache = swept_by_hand();
    fill(&cache, 10, 0);
    let begin = std::time::Instant::now();
    assert_eq!(sweep_and_collect(&cache).1, NextRun::WhenNotified);
    cache.entry(1).time_to_live(Duration::ZERO).insert(vec![]).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    let mut waits = 0;
    while let NextRun::In(time) = step(&cache) {
        assert!(!time.is_zero() && time <= PERIOD, "{time:?}");
        assert_eq!(cache.stats().expired, 10);
        waits += 1;
        std::thread::sleep(time);
    }
    // If this thread did not run for a whole period, the second sweep is due at once.
    assert!(waits > 0 || begin.elapsed() > PERIOD, "a second sweep began at once");
    assert!(begin.elapsed() >= PERIOD);
    assert_eq!(cache.stats().expired, 11);
}

#[test]
fn a_sweep_finds_the_earliest_remaining_deadline() {
    let cache = swept_by_hand();
    let (hour, day) = (Duration::from_secs(3_600), Duration::from_secs(86_400));
    for (key, time) in [(1_000, day), (1_001, hour), (1_002, 2 * day)] {
        cache.entry(key).time_to_live(time).insert(vec![]).unwrap();
    }
    fill(&cache, 10, 10);
    let (rests, next) = sweep_and_collect(&cache);
    assert!(!rests.is_empty(), "no sweep");
    let NextRun::In(time) = next else { panic!("{next:?}: an entry expires in an hour") };
    assert!(time > hour / 2 && time <= hour + Duration::from_secs(1), "{time:?}");
    assert_eq!((cache.stats().expired, cache.len()), (10, 13));
}

#[test]
fn memory_that_a_reader_holds_back_is_asked_for_each_period() {
    let cache = swept_by_hand();
    let waiting = || cache.inner.core.index.slab().waiting();
    let reader = cache.pin();
    fill(&cache, 1_000, 0);
    let (rests, next) = sweep(&cache);
    assert!(!rests.is_empty(), "no sweep");
    assert_eq!(next, NextRun::In(PERIOD));
    assert!(waiting() > ByteSize::ZERO);
    assert_eq!(step(&cache), NextRun::In(PERIOD), "the reader is still there");
    drop(reader);
    // Other tests' threads may be readers for a moment.
    super::eventually(Duration::from_secs(60), "the memory is freed", || {
        step(&cache);
        waiting() == ByteSize::ZERO
    });
    super::eventually(Duration::from_secs(60), "nothing is left to ask for", || step(&cache) == NextRun::WhenNotified);
}
