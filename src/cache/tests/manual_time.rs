//! Expiry on a clock that the test advances, by steps up to years.
//!
//! `jump` advances the clock without the sweeps of `advance`: as real time passes while no thread
//! of the runtime runs.
//!
//! A change must ensure that no result depends on the real time: it only limits a wait.

use crate::cache::{Computed, Op, RemovalCause};
use crate::runtime::{Maintenance, ManualClock, NextRun};
use crate::{ByteSize, Cache, Runtime};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// Steps around the ranges of stored counts, and around half of them: the ranges are 140 minutes
/// for idle times below 256 ms, and 49 days.
fn steps() -> impl Iterator<Item = Duration> {
    let days = [1, 24, 25, 37, 49, 50, 62, 75, 99, 365, 5 * 365];
    let minutes = [69, 70, 100, 139, 140, 141, 210].map(|minutes| SECOND * 60 * minutes);
    minutes.into_iter().chain(days.map(|days| DAY * days))
}

/// Inserts the keys below 5, one of each kind of deadline. Each expires within a minute.
fn insert_short(cache: &Cache<u64, u64>) {
    cache.entry(0).time_to_live(Duration::ZERO).insert(0).unwrap();
    cache.entry(1).time_to_live(SECOND * 50).insert(1).unwrap();
    cache.entry(2).time_to_idle(Duration::from_millis(10)).insert(2).unwrap();
    cache.entry(3).time_to_idle(SECOND).insert(3).unwrap();
    cache.entry(4).time_to_idle(SECOND * 50).insert(4).unwrap();
}

fn cache_with(clock: &ManualClock) -> Cache<u64, u64> {
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).clock(clock).build().unwrap();
    Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap()
}

/// Returns a cache that the housekeeper does not visit: only the test's thread sweeps.
fn swept_by_hand(clock: &ManualClock) -> Cache<u64, u64> {
    let cache = cache_with(clock);
    cache.runtime().housekeeper().remove(cache.inner.maintenance);
    cache
}

fn time_left(cache: &Cache<u64, u64>, key: u64) -> Option<Duration> {
    let mut left = None;
    let look = |current: Option<crate::cache::Current<'_, u64, u64>>| {
        left = current.expect("the entry is present").time_left();
        Op::Keep
    };
    cache.entry(key).and_compute(look).unwrap();
    left
}

#[test]
fn an_advance_expires_entries_at_their_deadline_and_not_before() {
    let clock = ManualClock::new();
    let cache = cache_with(&clock);
    cache.entry(1).time_to_live(SECOND * 10).insert(1).unwrap();
    cache.entry(2).time_to_idle(SECOND * 10).insert(2).unwrap();
    cache.insert(3, 3).unwrap();
    clock.advance(SECOND * 9);
    assert_eq!((cache.len(), cache.get(&2)), (3, Some(2)));
    clock.advance(SECOND + Duration::from_millis(5));
    assert_eq!([1, 2, 3].map(|key| cache.contains_key(&key)), [false, true, true]);
    assert_eq!((cache.len(), cache.stats().expired), (2, 1));
    clock.advance(SECOND * 20);
    assert_eq!([1, 2, 3].map(|key| cache.contains_key(&key)), [false, false, true]);
    assert_eq!(clock.elapsed(), SECOND * 30 + Duration::from_millis(5));
}

#[test]
fn an_advance_of_any_step_revives_no_entry() {
    for step in steps() {
        let clock = ManualClock::new();
        let cache = cache_with(&clock);
        for round in 1..4 {
            insert_short(&cache);
            cache.entry(5).time_to_live(step * 2 + SECOND * 100).insert(5).unwrap();
            clock.advance(step);
            assert_eq!((cache.len(), cache.contains_key(&5)), (1, true), "{step:?} {round}");
            assert_eq!(cache.stats().expired, 10 * round - 5, "{step:?}");
            // Entries of all kinds have their whole time after the step.
            insert_short(&cache);
            assert_eq!((1..5).filter(|key| cache.contains_key(key)).count(), 4, "{step:?} {round}");
            clock.advance(SECOND * 60);
            assert_eq!(cache.len(), 1, "{step:?} {round}");
            assert_eq!(cache.stats().expired, 10 * round, "{step:?}");
        }
    }
}

#[test]
fn an_entry_that_no_thread_looks_at_stays_expired_without_a_sweep() {
    for step in steps() {
        let clock = ManualClock::new();
        let cache = swept_by_hand(&clock);
        insert_short(&cache);
        clock.jump(step);
        assert_eq!((0..5).filter(|key| cache.peek(key).is_some()).count(), 0, "{step:?}");
        assert_eq!((cache.stats().expired, cache.len()), (5, 0), "{step:?}");
        // The floor has not followed, and entries live for their whole time all the same.
        insert_short(&cache);
        assert_eq!((1..5).filter(|key| cache.contains_key(key)).count(), 4, "{step:?}");
        assert_eq!(cache.get(&3), Some(3));
        clock.jump(SECOND / 2);
        assert_eq!(cache.get(&3), Some(3), "{step:?}");
        clock.jump(SECOND * 60);
        assert_eq!((0..5).filter(|key| cache.contains_key(key)).count(), 0, "{step:?}");
    }
}

#[test]
fn an_entry_that_expires_while_a_closure_sees_it_has_no_time_left() {
    for step in steps() {
        let clock = ManualClock::new();
        let cache = cache_with(&clock);
        insert_short(&cache);
        for key in 1..5 {
            let mut shown = Vec::new();
            let look = |current: Option<crate::cache::Current<'_, u64, u64>>| {
                shown.extend(current.map(|current| {
                    clock.advance(step);
                    current.time_left()
                }));
                Op::Keep
            };
            cache.entry(key).and_compute(look).unwrap();
            assert_eq!(shown, [Some(Duration::ZERO)], "{step:?} {key}");
            insert_short(&cache);
        }
    }
}

#[test]
fn a_sweep_after_a_pause_raises_the_floor_although_nothing_is_due() {
    let clock = ManualClock::new();
    let cache = swept_by_hand(&clock);
    cache.entry(1).time_to_live(DAY * 400).insert(1).unwrap();
    clock.jump(DAY * 60);
    cache.entry(2).time_to_idle(SECOND / 10).insert(2).unwrap();
    assert_eq!(cache.inner.core.clock.floor().0, 0, "no sweep has passed");
    // Encoded as fixed, in whole seconds.
    let left = time_left(&cache, 2).unwrap();
    assert!(left < SECOND * 2, "{left:?}");
    while let NextRun::Now { .. } = Maintenance::reap_expired(&*cache.inner.core) {}
    assert_eq!(u64::from(cache.inner.core.clock.floor().0), 60 * 86_400);
    assert_eq!(cache.len(), 2, "nothing was due");
    cache.entry(3).time_to_idle(SECOND / 10).insert(3).unwrap();
    clock.jump(SECOND / 20);
    assert_eq!(cache.get(&3), Some(3));
    clock.jump(SECOND / 15);
    assert_eq!(cache.get(&3), Some(3), "a use did not extend the idle time");
    assert!(time_left(&cache, 1).unwrap() > DAY * 339);
}

#[test]
fn a_deadline_registered_long_after_it_was_encoded_is_kept() {
    for (step, ttl) in steps().flat_map(|step| [(step, SECOND), (step, step * 3)]) {
        let clock = ManualClock::new();
        let cache = swept_by_hand(&clock);
        let core = &cache.inner.core;
        cache.entry(1).forever().insert(1).unwrap();
        // As by a thread that is held up in an insert, while the clock advances and a sweep passes.
        let expires = core.clock.after(ttl);
        clock.advance(step);
        let guard = lowwater_rcu::pin();
        let entry = core.index.get(core.hash(&1), &guard, |entry| entry.key == 1).expect("the entry was inserted");
        entry.set_deadline(expires.at);
        core.register_deadline(expires, core.hash(&1));
        let is_expired = step > ttl;
        assert_eq!(core.is_expired(entry), is_expired, "{step:?} {ttl:?}");
        drop(guard);
        clock.advance(ttl);
        clock.advance(SECOND);
        assert!(!cache.contains_key(&1), "{step:?} {ttl:?}");
    }
}

#[test]
fn entries_of_threads_that_insert_during_advances_expire() {
    let clock = ManualClock::new();
    let cache = cache_with(&clock);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (cache, stop) = (&cache, &stop);
            scope.spawn(move || {
                // Relaxed: the flag orders nothing.
                for key in (0_u64..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let entry = cache.entry(key % 500 + thread * 500);
                    let entry = if key % 2 == 0 { entry.time_to_idle(SECOND / 20) } else { entry.time_to_live(SECOND) };
                    entry.insert(key).unwrap();
                    cache.get(&(key % 500));
                }
            });
        }
        for step in steps().chain(steps()) {
            clock.advance(step);
        }
        stop.store(true, Ordering::Relaxed);
    });
    clock.advance(SECOND * 4);
    assert_eq!(cache.len(), 0, "an entry was revived");
}

#[test]
fn a_listener_may_advance_the_clock() {
    let clock = ManualClock::new();
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).clock(&clock).build().unwrap();
    let (advanced, calls) = (clock.clone(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&calls);
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .eviction_listener(move |_, _, cause| {
            assert_eq!(cause, RemovalCause::Expired);
            counted.fetch_add(1, Ordering::Relaxed);
            advanced.advance(DAY * 30);
        })
        .build()
        .unwrap();
    for key in 0..3 {
        cache.entry(key).time_to_live(DAY * 29 * key as u32).insert(key).unwrap();
    }
    clock.advance(SECOND);
    assert_eq!((cache.len(), calls.load(Ordering::Relaxed)), (0, 3));
}

#[test]
fn a_clock_serves_caches_of_several_runtimes_and_survives_them() {
    let clock = ManualClock::new();
    clock.advance(DAY);
    let caches = [cache_with(&clock), cache_with(&clock)];
    for cache in &caches {
        cache.entry(1).time_to_live(SECOND).insert(1).unwrap();
    }
    clock.advance(SECOND / 2);
    assert!(caches.iter().all(|cache| cache.len() == 1), "the time before a cache was made counted");
    clock.advance(SECOND);
    assert!(caches.iter().all(|cache| cache.is_empty()));
    drop(caches);
    clock.advance(SECOND);
}

#[test]
fn a_clock_is_not_advanced_beyond_thirty_years() {
    let clock = ManualClock::new();
    clock.advance(DAY * 365 * 30);
    for step in [Duration::from_nanos(1), Duration::MAX] {
        assert!(std::panic::catch_unwind(AssertUnwindSafe(|| clock.advance(step))).is_err());
        assert_eq!(clock.elapsed(), DAY * 365 * 30);
    }
}

#[test]
fn expired_entries_are_absent_for_lookups_and_walks() {
    let clock = ManualClock::new();
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).clock(&clock).build().unwrap();
    let causes = Arc::new(Mutex::new(Vec::new()));
    let seen = causes.clone();
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .time_to_live(Duration::from_millis(5))
        .eviction_listener(move |k, _, cause| seen.lock().unwrap().push((*k, cause)))
        .build()
        .unwrap();
    // Only the test's own calls remove entries.
    runtime.housekeeper().remove(cache.inner.maintenance);
    cache.insert(1, 1).unwrap();
    cache.insert(2, 2).unwrap();
    cache.entry(3).forever().insert(3).unwrap();
    cache.entry(4).time_to_live(Duration::from_secs(100)).insert(4).unwrap();
    assert!(cache.touch(&2, None) && !cache.touch(&9, None));
    clock.jump(Duration::from_millis(10));
    assert_eq!((cache.get(&1), cache.get(&2), cache.get(&3), cache.get(&4)), (None, Some(2), Some(3), Some(4)));
    assert_eq!(*causes.lock().unwrap(), [(1, RemovalCause::Expired)]);
    cache.insert(5, 5).unwrap();
    clock.jump(Duration::from_millis(10));
    assert_eq!(cache.insert(5, 6).unwrap(), None, "an expired value is not returned as replaced");
    assert_eq!(cache.stats().expired, 2);
    clock.jump(Duration::from_millis(10));
    assert_eq!(cache.remove(&5), None);
    let left = cache.entry(4).and_compute(|current| {
        assert!(current.unwrap().time_left().unwrap() > Duration::from_secs(90));
        Op::Keep
    });
    assert_eq!(left.unwrap(), Computed::Kept);
}

/// A value that advances the clock when it is dropped.
struct Advances(ManualClock);

impl Drop for Advances {
    fn drop(&mut self) {
        self.0.advance(Duration::ZERO);
    }
}

/// A removal drops values that were removed before, on the thread that removes.
#[test]
fn a_value_may_advance_the_clock_when_it_is_dropped() {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let clock = ManualClock::new();
        let runtime = Runtime::builder().unlimited().clock(&clock).build().unwrap();
        let cache = Cache::<u64, Arc<Advances>>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
        for key in 0..5_000 {
            cache.entry(key).time_to_live(SECOND).insert(Arc::new(Advances(clock.clone()))).unwrap();
        }
        clock.advance(SECOND * 2);
        assert!(cache.is_empty());
        drop((cache, runtime));
        done.send(()).unwrap();
    });
    assert!(ended.recv_timeout(SECOND * 60).is_ok(), "the clock's advance does not return");
}
