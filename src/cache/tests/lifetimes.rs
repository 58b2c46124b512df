//! Times of single entries, from the user's function (`CacheBuilder::expire_after`).
//!
//! The function may return any time at any event, and may panic.
//!
//! A change must ensure that time comes from the manual clock alone.

use crate::cache::{Computed, ExpiryEvent, Lifetime, Op};
use crate::runtime::ManualClock;
use crate::{ByteSize, Cache, Runtime};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

type Events = Arc<Mutex<Vec<(u64, u64, ExpiryEvent)>>>;

/// Returns a cache with this function, its clock, and the events for which the function was called.
/// The cache's own time to live is 100 seconds.
fn cache_with(
    lifetime: impl Fn(u64, ExpiryEvent) -> Lifetime + Send + Sync + 'static,
) -> (Cache<u64, u64>, ManualClock, Events) {
    let (clock, events) = (ManualClock::new(), Events::default());
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).clock(&clock).build().unwrap();
    let seen = Arc::clone(&events);
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .time_to_live(SECOND * 100)
        .expire_after(move |key, value, event| {
            seen.lock().push((*key, *value, event));
            lifetime(*value, event)
        })
        .build()
        .unwrap();
    (cache, clock, events)
}

/// Returns the time in whole seconds. `time_left` may be a tick of 4 ms too short, hence the 50 ms.
fn seconds(time: Option<Duration>) -> Option<u64> {
    time.map(|time| (time + Duration::from_millis(50)).as_secs())
}

#[test]
fn each_entry_expires_after_the_time_of_its_value() {
    let (cache, clock, _) = cache_with(|value, _| match value {
        0 => Lifetime::Forever,
        value => Lifetime::Live(SECOND * value as u32),
    });
    for key in 0..4 {
        cache.insert(key, key * 10).unwrap();
    }
    clock.advance(SECOND * 5);
    assert_eq!(cache.len(), 4);
    for (step, left) in [(6, 3), (10, 2), (10, 1), (1_000_000, 1)] {
        clock.advance(SECOND * step);
        assert_eq!(cache.len(), left);
    }
    assert!(cache.contains_key(&0));
}

#[test]
fn the_function_gets_the_event_and_the_time_left() {
    let (cache, clock, events) = cache_with(|_, _| Lifetime::Unchanged);
    cache.insert(1, 10).unwrap();
    clock.advance(SECOND * 30);
    cache.get(&1);
    cache.pin().get(&1);
    cache.peek(&1);
    cache.contains_key(&1);
    cache.insert(1, 11).unwrap();
    cache.get_or_insert_with(2, || 20);
    cache.get_or_insert_with(2, || 21);
    let events = std::mem::take(&mut *events.lock());
    let seen: Vec<_> = events
        .into_iter()
        .map(|(key, value, event)| match event {
            ExpiryEvent::Create => (key, value, "create", None),
            ExpiryEvent::Update { time_left } => (key, value, "update", seconds(time_left)),
            ExpiryEvent::Read { time_left } => (key, value, "read", seconds(time_left)),
        })
        .collect();
    let expected = [
        (1, 10, "create", None),
        (1, 10, "read", Some(70)),
        (1, 10, "read", Some(70)),
        (1, 11, "update", Some(70)),
        (2, 20, "create", None),
        (2, 20, "read", Some(100)),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn an_unchanged_entry_keeps_its_deadline_and_a_new_one_gets_the_caches_time() {
    let (cache, clock, _) = cache_with(|_, _| Lifetime::Unchanged);
    cache.insert(1, 1).unwrap();
    clock.advance(SECOND * 60);
    cache.get(&1);
    cache.insert(1, 2).unwrap();
    clock.advance(SECOND * 39);
    assert_eq!(cache.get(&1), Some(2));
    clock.advance(SECOND * 2);
    assert_eq!(cache.len(), 0);
}

#[test]
fn a_read_can_shorten_extend_and_end_a_deadline() {
    let (cache, clock, _) = cache_with(|value, event| match (value, event) {
        (1, ExpiryEvent::Read { .. }) => Lifetime::Live(SECOND),
        (2, ExpiryEvent::Read { .. }) => Lifetime::Live(SECOND * 500),
        (3, ExpiryEvent::Read { .. }) => Lifetime::Forever,
        (4, ExpiryEvent::Create) => Lifetime::Forever,
        (4, ExpiryEvent::Read { .. }) => Lifetime::Live(SECOND),
        _ => Lifetime::Unchanged,
    });
    (1..6).for_each(|key| drop(cache.insert(key, key)));
    (1..6).for_each(|key| assert_eq!(cache.get(&key), Some(key)));
    clock.advance(SECOND * 2);
    assert_eq!([1, 2, 3, 4, 5].map(|key| cache.contains_key(&key)), [false, true, true, false, true]);
    clock.advance(SECOND * 200);
    assert_eq!([2, 3, 5].map(|key| cache.contains_key(&key)), [true, true, false]);
    clock.advance(SECOND * 400);
    assert_eq!([2, 3].map(|key| cache.contains_key(&key)), [false, true]);
}

#[test]
fn time_to_live_and_idle_time_hold_together_by_the_function() {
    // At most 10 seconds from the insert, and 4 seconds from the last use. The value is the second
    // of the insert.
    let clock = ManualClock::new();
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).clock(&clock).build().unwrap();
    let now = clock.clone();
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .expire_after(move |_, inserted, _| {
            let end = Duration::from_secs(inserted + 10);
            Lifetime::Live(end.saturating_sub(now.elapsed()).min(SECOND * 4))
        })
        .build()
        .unwrap();
    (0..2).for_each(|key| drop(cache.insert(key, 0)));
    for second in 1..10 {
        clock.advance(SECOND);
        assert_eq!(cache.get(&0), Some(0), "used each second, at {second}");
    }
    assert!(!cache.contains_key(&1), "not used for 4 seconds");
    clock.advance(SECOND + Duration::from_millis(10));
    assert_eq!(cache.get(&0), None, "after 10 seconds, although used");
}

#[test]
fn an_idle_lifetime_is_extended_by_uses() {
    let (cache, clock, _) = cache_with(|value, event| match event {
        ExpiryEvent::Create => Lifetime::Idle(SECOND * value as u32),
        _ => Lifetime::Unchanged,
    });
    (1..3).for_each(|key| drop(cache.insert(key, 10)));
    for _ in 0..5 {
        clock.advance(SECOND * 8);
        assert_eq!(cache.get(&1), Some(10));
    }
    assert_eq!(cache.len(), 1);
}

#[test]
fn an_entrys_own_time_counts_instead_of_the_functions() {
    let (cache, clock, events) = cache_with(|_, _| Lifetime::Live(SECOND));
    cache.entry(1).time_to_live(SECOND * 10).insert(1).unwrap();
    cache.entry(2).forever().insert(2).unwrap();
    cache.insert(3, 3).unwrap();
    assert_eq!(events.lock().len(), 1);
    clock.advance(SECOND * 5);
    assert_eq!([1, 2, 3].map(|key| cache.contains_key(&key)), [true, true, false]);
    let put = cache.entry(1).and_compute(|_| Op::Put(7)).unwrap();
    assert_eq!(put, Computed::Replaced(1));
    assert!(matches!(events.lock().last(), Some((1, 7, ExpiryEvent::Update { time_left: Some(_) }))));
    clock.advance(SECOND * 2);
    assert_eq!(cache.len(), 1, "the put has the function's time");
    cache.entry(4).time_to_live(SECOND * 10).insert(4).unwrap();
    cache.entry(4).and_compute(|_| Op::Update(5)).unwrap();
    clock.advance(SECOND * 9);
    assert_eq!(cache.peek(&4), Some(5), "an update keeps the time left");
}

#[test]
fn a_panic_in_the_function_leaves_the_entry_as_it_was() {
    let (cache, _clock, events) = cache_with(|value, event| match (value, event) {
        (7, _) => panic!("of the test"),
        (8, ExpiryEvent::Read { .. }) => panic!("of the test"),
        _ => Lifetime::Unchanged,
    });
    cache.insert(1, 8).unwrap();
    let calls: [&dyn Fn() -> bool; 4] =
        [&|| cache.insert(1, 7).is_ok(), &|| cache.insert(2, 7).is_ok(), &|| cache.get(&1).is_some(), &|| {
            cache.get_or_insert_with(3, || 7) == 7
        }];
    for call in calls {
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
    }
    assert_eq!(events.lock().len(), calls.len() + 1);
    assert_eq!((cache.len(), cache.peek(&1)), (1, Some(8)));
    assert_eq!(cache.get_or_insert_with(3, || 9), 9, "the load was left to the next caller");
}

#[test]
fn the_function_may_use_its_cache() {
    // Taken out at the end: a cache whose function holds the cache would never be dropped.
    let own = Arc::new(Mutex::new(None::<Cache<u64, u64>>));
    let handle = Arc::clone(&own);
    let (cache, ..) = cache_with(move |value, _| {
        let cache = handle.lock().clone();
        if let Some(cache) = cache.filter(|_| value < 100) {
            assert_eq!(cache.get_or_insert_with(value + 100, || value + 100), value + 100);
            cache.remove(&(value + 200));
        }
        Lifetime::Unchanged
    });
    *own.lock() = Some(cache.clone());
    for key in 0..10 {
        cache.insert(key, key).unwrap();
        cache.insert(key, key + 20).unwrap();
        assert_eq!(cache.get(&key), Some(key + 20));
    }
    assert_eq!(cache.len(), 30, "each value below 100 has inserted one");
    *own.lock() = None;
}

#[test]
fn an_unchanged_time_is_that_of_the_entry_at_the_insert() {
    // Taken out at the end, as above.
    let own = Arc::new(Mutex::new(None::<Cache<u64, u64>>));
    let handle = Arc::clone(&own);
    let (cache, clock, _) = cache_with(move |value, _| {
        let cache = handle.lock().clone();
        match (cache, value) {
            (Some(cache), 2) => assert!(cache.touch(&1, Some(SECOND * 1_000))),
            (Some(cache), 3) => drop(cache.remove(&1)),
            _ => {}
        }
        Lifetime::Unchanged
    });
    *own.lock() = Some(cache.clone());
    let insert = |value| cache.insert(1, value).unwrap();
    let put = |value| match cache.entry(1).and_compute(|_| Op::Put(value)).unwrap() {
        Computed::Replaced(value) => Some(value),
        _ => None,
    };
    let calls: [&dyn Fn(u64) -> Option<u64>; 2] = [&insert, &put];
    for call in calls {
        assert_eq!((call(1), call(2)), (None, Some(1)));
        clock.advance(SECOND * 500);
        assert_eq!(cache.peek(&1), Some(2), "the touch counts");
        assert_eq!(call(3), None, "removed by the function");
        clock.advance(SECOND * 99);
        assert_eq!(cache.peek(&1), Some(3));
        clock.advance(SECOND * 2);
        assert_eq!(cache.peek(&1), None, "a new entry has the cache's own time");
    }
    *own.lock() = None;
}

#[test]
fn a_time_is_not_stored_in_a_value_that_replaced_the_one_it_is_for() {
    // Taken out at the end, as above.
    let own = Arc::new(Mutex::new(None::<Cache<u64, u64>>));
    let handle = Arc::clone(&own);
    let (cache, clock, _) = cache_with(move |value, event| match (value, event) {
        (1, ExpiryEvent::Read { .. }) => {
            let cache = handle.lock().clone();
            // Without a deadline, as the value it replaces.
            cache.unwrap().entry(1).forever().insert(2).unwrap();
            Lifetime::Live(SECOND)
        }
        _ => Lifetime::Forever,
    });
    *own.lock() = Some(cache.clone());
    cache.insert(1, 1).unwrap();
    assert_eq!(cache.get(&1), Some(1));
    clock.advance(SECOND * 5);
    assert_eq!(cache.peek(&1), Some(2));
    *own.lock() = None;
}
