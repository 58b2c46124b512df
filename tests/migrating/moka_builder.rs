//! The rows of moka's `CacheBuilder`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lowwater::cache::{CacheBuildError, Eviction, ExpiryEvent, Lifetime, Op};
use lowwater::runtime::ManualClock;
use lowwater::{ByteSize, Cache, RemovalCause, Runtime};

use crate::{runtime, Outcome};

const SECOND: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Returns a runtime whose entries expire by the clock.
fn clocked() -> (Runtime, ManualClock) {
    let clock = ManualClock::new();
    (Runtime::builder().budget(ByteSize::mib(16)).clock(&clock).build().unwrap(), clock)
}

/// Returns the time that the entry of `key` has left.
fn time_left(cache: &Cache<u64, u64>, key: u64) -> Option<Duration> {
    let mut left = None;
    let seen = cache.entry(key).and_compute(|there| {
        left = there.and_then(|there| there.time_left());
        Op::Keep
    });
    seen.map(|_| left).unwrap()
}

#[test]
fn sizes_and_orders() -> Outcome {
    // row: Cache::new(n)
    let runtime = runtime(ByteSize::mib(1));
    let cache = Cache::<u64, String>::builder(&runtime).weigher(|_, text| text.capacity()).build()?;
    assert!(cache.is_empty());
    // row: max_capacity(n)
    assert_eq!(runtime.root().max(), ByteSize::mib(1));
    let limited = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).max(ByteSize::kib(64)).build()?;
    assert_eq!(limited.group().max(), ByteSize::kib(64));
    // row: weigher(fn -> u32)
    let sized = Cache::<u64, String>::builder(&runtime).weigher(|_, text| ByteSize::from(text.capacity())).build()?;
    let long = Cache::<u64, String>::builder(&runtime).weigher(|_, text| text.capacity() as u64).build()?;
    for cache in [cache, sized, long] {
        cache.insert(1, String::with_capacity(1000))?;
        assert_eq!(cache.stats().bytes, Cache::<u64, String>::ENTRY_BYTES + ByteSize::new(1000));
    }
    // row: eviction_policy(tiny_lfu / lru)
    for order in [Eviction::Adaptive, Eviction::S3Fifo, Eviction::Sieve, Eviction::SecondChance, Eviction::Lru] {
        let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).eviction(order).build()?;
        for n in 0..30_000 {
            cache.insert(n, n)?;
        }
        assert!(cache.stats().evictions > 0 && !cache.is_empty());
    }
    Ok(())
}

#[test]
fn listeners() -> Outcome {
    // row: eviction_listener(fn(Arc<K>, V, cause))
    let (runtime, clock) = clocked();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let listener = move |key: &u64, value: &u64, cause| {
        told.lock().unwrap().push((*key, *value, cause));
        assert!(*key != 0, "the listener's own fault");
    };
    let cache =
        Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).eviction_listener(listener).build()?;
    cache.insert(0, 1)?;
    cache.remove(&0);
    assert_eq!(cache.stats().listener_panics, 1);
    cache.insert(1, 1)?;
    cache.insert(1, 2)?;
    cache.remove(&1);
    cache.entry(2).time_to_live(SECOND).insert(3)?;
    clock.advance(2 * SECOND);
    cache.insert(3, 4)?;
    runtime.drop_caches();
    let expected = [
        (0, 1, RemovalCause::Explicit),
        (1, 1, RemovalCause::Replaced),
        (1, 2, RemovalCause::Explicit),
        (2, 3, RemovalCause::Expired),
        (3, 4, RemovalCause::Size),
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
    Ok(())
}

#[test]
fn times() -> Outcome {
    let (runtime, clock) = clocked();
    let builder = || Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO);
    // row: time_to_live(t)
    let cache = builder().time_to_live(60 * SECOND).build()?;
    cache.insert(1, 1)?;
    cache.entry(2).time_to_live(10 * SECOND).insert(2)?;
    cache.entry(3).time_to_live(35 * YEAR).insert(3)?;
    cache.entry(4).time_to_live(33 * YEAR).insert(4)?;
    clock.advance(11 * SECOND);
    assert_eq!((cache.get(&1), cache.get(&2)), (Some(1), None));
    assert_eq!((time_left(&cache, 3), time_left(&cache, 4).is_some()), (None, true));
    clock.advance(50 * SECOND);
    assert_eq!(cache.get(&1), None);
    // row: time_to_idle(t)
    let cache = builder().time_to_idle(80 * SECOND).build()?;
    cache.insert(1, 1)?;
    cache.entry(2).time_to_idle(8 * SECOND).insert(2)?;
    cache.entry(3).time_to_idle(9 * YEAR).insert(3)?;
    clock.advance(Duration::from_millis(9_100));
    assert_eq!((cache.get(&1), cache.get(&2), time_left(&cache, 3)), (Some(1), None, None));
    clock.advance(79 * SECOND);
    assert_eq!(cache.get(&1), Some(1), "the use has extended its time");
    clock.advance(91 * SECOND);
    assert_eq!(cache.get(&1), None, "an eighth late at most");
    // row: both of them
    let cache = builder().time_to_live(60 * SECOND).time_to_idle(20 * SECOND).build()?;
    (0..2).for_each(|n| drop(cache.insert(n, n)));
    for _ in 0..3 {
        clock.advance(15 * SECOND);
        assert_eq!(cache.get(&0), Some(0));
    }
    assert_eq!(cache.get(&1), None, "not used");
    clock.advance(16 * SECOND);
    assert_eq!(cache.get(&0), None, "used, but too old");
    Ok(())
}

#[test]
fn times_by_a_function() -> Outcome {
    let (runtime, clock) = clocked();
    let builder = || Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO);
    // row: expire_after(Expiry): expire_after_create
    let cache = builder()
        .time_to_live(60 * SECOND)
        .expire_after(|_, seconds, event| match event {
            ExpiryEvent::Create => Lifetime::Live(SECOND * *seconds as u32),
            ExpiryEvent::Update { .. } => Lifetime::Unchanged,
            ExpiryEvent::Read { .. } if *seconds == 7 => Lifetime::Idle(90 * SECOND),
            _ => Lifetime::Unchanged,
        })
        .build()?;
    cache.insert(1, 5)?;
    cache.insert(2, 50)?;
    cache.entry(3).time_to_live(100 * SECOND).insert(5)?;
    cache.entry(4).forever().insert(5)?;
    clock.advance(6 * SECOND);
    assert_eq!([1, 2, 3].map(|key| cache.contains_key(&key)), [false, true, true]);
    assert_eq!(time_left(&cache, 4), None);
    // row: expire_after_update
    cache.insert(2, 51)?;
    cache.entry(3).and_compute(|_| Op::Update(6))?;
    assert!(time_left(&cache, 2).is_some_and(|left| left <= 44 * SECOND), "an `Unchanged` time");
    assert!(time_left(&cache, 3).is_some_and(|left| left <= 94 * SECOND), "the time that was left");
    let plain = builder().time_to_live(60 * SECOND).build()?;
    plain.insert(1, 1)?;
    clock.advance(50 * SECOND);
    plain.insert(1, 2)?;
    assert!(time_left(&plain, 1).is_some_and(|left| left > 59 * SECOND), "without a function it starts again");
    // row: expire_after_read
    cache.insert(5, 7)?;
    clock.advance(6 * SECOND);
    cache.get(&5);
    clock.advance(80 * SECOND);
    assert_eq!(cache.peek(&5), Some(7), "the first use has set an idle time");
    cache.entry(6).time_to_idle(90 * SECOND).insert(1)?;
    clock.advance(80 * SECOND);
    assert_eq!(cache.get(&6), Some(1));
    Ok(())
}

#[test]
fn reloads_and_builds() -> Outcome {
    let (runtime, clock) = clocked();
    let builder = || Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO);
    // row: none (refreshAfterWrite in Caffeine)
    let cache =
        builder().time_to_live(60 * SECOND).refresh_ahead(10 * SECOND).stale_while_revalidate(60 * SECOND).build()?;
    cache.insert(1, 1)?;
    clock.advance(45 * SECOND);
    assert_eq!(cache.entry(1).refresh().or_insert_with(|| 2), 1, "before the last part of its time");
    clock.advance(10 * SECOND);
    assert_eq!(cache.entry(1).refresh().or_insert_with(|| 2), 2);
    clock.advance(70 * SECOND);
    let stale = cache.get_or_refresh(&1).expect("stale for a minute");
    assert_eq!((stale.value, stale.is_stale, stale.refresh.map(|refresh| refresh.load_with(|| 3))), (2, true, Some(3)));
    assert_eq!(cache.get(&1), Some(3));
    // row: build(), build_with_hasher(s)
    let cache = builder().hasher(std::collections::hash_map::RandomState::new()).build()?;
    cache.insert(1, 1)?;
    assert_eq!(cache.get(&1), Some(1));
    let foreign = crate::runtime(ByteSize::mib(1)).group("group")?;
    assert!(matches!(builder().group(&foreign).build(), Err(CacheBuildError::ForeignGroup(_))));
    assert!(matches!(builder().max(ByteSize::mib(17)).build(), Err(CacheBuildError::LimitTooLarge { .. })));
    let wrong = builder().time_to_live(SECOND).refresh_ahead(SECOND).build();
    assert!(matches!(wrong, Err(CacheBuildError::RefreshTooEarly { .. })));
    Ok(())
}
