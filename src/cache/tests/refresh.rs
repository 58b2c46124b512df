//! Reloads ahead of a deadline and while stale: the caller that reloads, the value that stays, and
//! what the other calls see.
//!
//! Time is a `ManualClock`. A cache here has a time to live of ten seconds, is reloaded in the last
//! three, and keeps stale entries for five.
//!
//! A new way to remove or replace an entry is added to the ways that stop a reload, and to the model.

use crate::cache::{
    CacheBuildError, CacheBuilder, Computed, ExpiryEvent, Hit, Lifetime, Op, Origin, Refresh, RemovalCause,
};
use crate::runtime::ManualClock;
use crate::{ByteSize, Cache, Runtime};
use proptest::prelude::*;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
/// A limit for the test, as a load that waits for itself never ends.
const PATIENCE: Duration = Duration::from_secs(60);

type Numbers = Cache<u64, u64>;
type NumbersBuilder = CacheBuilder<u64, u64, Box<dyn Fn(&u64, &u64) -> ByteSize + Send + Sync>>;

fn builder(clock: &ManualClock) -> NumbersBuilder {
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).clock(clock).build().unwrap();
    Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, value| if *value == TOO_LARGE { ByteSize::mib(20) } else { ByteSize::ZERO })
        .time_to_live(10 * SECOND)
        .refresh_ahead(3 * SECOND)
        .stale_while_revalidate(5 * SECOND)
}

/// A value that the cache rejects.
const TOO_LARGE: u64 = u64::MAX;

fn cache(clock: &ManualClock) -> Numbers {
    builder(clock).build().unwrap()
}

/// Inserts the value 1 for the key 1, advances the clock by seconds, and begins a reload.
fn begun(cache: &Numbers, clock: &ManualClock, seconds: u32) -> Refresh<u64, u64> {
    cache.insert(1, 1).unwrap();
    clock.advance(SECOND * seconds);
    ask(cache).expect("the entry is due")
}

fn ask(cache: &Numbers) -> Option<Refresh<u64, u64>> {
    cache.get_or_refresh(&1).expect("a live or stale entry").refresh
}

fn seen(cache: &Numbers) -> Option<(u64, bool, bool)> {
    cache.get_or_refresh(&1).map(|Hit { value, is_stale, refresh }| (value, is_stale, refresh.is_some()))
}

/// Evicts all entries, each after as many walks as it was used.
fn evict(cache: &Numbers) {
    for _ in 0..10 {
        cache.runtime().drop_caches();
    }
    assert!(cache.is_empty(), "the entry was not evicted");
}

/// Inserts the value 1 for the key 1 between others, of which most are removed, so that compaction copies
/// it.
fn insert_among_others(cache: &Numbers) {
    let insert = |keys: std::ops::Range<u64>| keys.for_each(|key| assert!(cache.entry(key).forever().set(0).is_ok()));
    insert(1_000..15_000);
    cache.insert(1, 1).unwrap();
    insert(15_000..30_000);
    for key in (1_000..30_000).filter(|key| key % 100 != 0) {
        cache.remove(&key);
    }
    let slab = cache.inner.core.index.slab();
    super::eventually(PATIENCE, "removed records are freed", || slab.collect() == ByteSize::ZERO);
}

/// Lets compaction copy the entry of the key 1.
fn copy_entry(cache: &Numbers) {
    let core = &cache.inner.core;
    let address = || {
        let guard = lowwater_rcu::pin();
        let record = core.index.get(core.hash(&1), &guard, |record| record.key == 1);
        std::ptr::from_ref(record.expect("the entry is present")).addr()
    };
    let before = address();
    super::compaction::compact_all(cache);
    assert_ne!(address(), before, "the entry was not copied");
}

#[test]
fn an_entry_is_reloaded_by_one_caller_in_its_last_part() {
    let clock = ManualClock::new();
    let cache = cache(&clock);
    cache.insert(1, 1).unwrap();
    clock.advance(7 * SECOND);
    assert_eq!(seen(&cache), Some((1, false, false)), "three seconds are left");
    clock.advance(Duration::from_millis(4));
    let refresh = ask(&cache).expect("less than three seconds are left");
    assert_eq!([seen(&cache), seen(&cache)], [Some((1, false, false)); 2], "a second caller was chosen");
    assert_eq!(cache.entry(1).refresh().or_insert_with(|| panic!("another caller reloads")), 1);
    assert_eq!(refresh.load_with(|| 2), 2);
    assert_eq!(seen(&cache), Some((2, false, false)));
    // The new value has the whole time.
    clock.advance(7 * SECOND);
    assert_eq!(seen(&cache), Some((2, false, false)));
    clock.advance(SECOND);
    assert_eq!(cache.entry(1).refresh().or_insert_with(|| 3), 3);
    assert_eq!((cache.get(&1), cache.stats().loads, cache.stats().replaced), (Some(3), 2, 2));
}

#[test]
fn a_stale_entry_is_found_only_by_calls_that_reload() {
    let clock = ManualClock::new();
    let causes = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&causes);
    let cache =
        builder(&clock).eviction_listener(move |_, _, cause| noted.lock().unwrap().push(cause)).build().unwrap();
    cache.insert(1, 1).unwrap();
    clock.advance(12 * SECOND);
    assert_eq!((cache.get(&1), cache.peek(&1), cache.contains_key(&1)), (None, None, false));
    assert_eq!((cache.pin().get(&1), cache.pin().peek(&1), cache.pin().iter().count()), (None, None, 0));
    assert_eq!(cache.get_many([1].iter()), [None]);
    assert!(!cache.touch(&1, Some(SECOND)), "a stale entry was touched");
    cache.visit(&mut crate::cache::Visit::new(), |_, _| panic!("a stale entry was visited"));
    assert_eq!(cache.save(|_, _, _| Err(())), Ok(0));
    assert!(cache.entry(1).and_compute(|there| if there.is_none() { Op::Keep } else { panic!("shown") }).is_ok());
    assert_eq!((cache.len(), cache.stats().expired), (1, 0), "a lookup has removed it");
    assert_eq!(cache.entry(1).refresh().or_try_fill_with(|| Err(())).map(|found| found.origin), Ok(Origin::Stale));
    assert_eq!(seen(&cache), Some((1, true, false)));
    // Until its time is over.
    clock.advance(3 * SECOND);
    assert_eq!((seen(&cache), cache.len()), (None, 0));
    assert_eq!(*causes.lock().unwrap(), [RemovalCause::Expired]);
    // A new value takes the place of a stale one, which has expired.
    cache.insert(1, 2).unwrap();
    clock.advance(12 * SECOND);
    assert_eq!(cache.entry(1).refresh().or_insert_with(|| 3), 3);
    clock.advance(12 * SECOND);
    assert_eq!(cache.insert(1, 4), Ok(None), "a stale value was returned");
    assert_eq!(cache.remove(&1), Some(4));
    cache.insert(1, 5).unwrap();
    clock.advance(12 * SECOND);
    assert_eq!((cache.remove(&1), cache.len()), (None, 0));
    let expired = [RemovalCause::Expired; 3];
    assert_eq!(causes.lock().unwrap()[1..], [&expired[..2], &[RemovalCause::Explicit], &expired[..1]].concat());
}

#[test]
fn entries_without_a_deadline_or_with_an_idle_time_are_not_reloaded() {
    let clock = ManualClock::new();
    let cache = cache(&clock);
    cache.entry(1).forever().insert(1).unwrap();
    clock.advance(1_000 * SECOND);
    assert_eq!(seen(&cache), Some((1, false, false)));
    cache.entry(1).time_to_idle(2 * SECOND).insert(1).unwrap();
    for _ in 0..10 {
        assert_eq!(seen(&cache), Some((1, false, false)));
        clock.advance(SECOND);
    }
    clock.advance(2 * SECOND);
    assert_eq!((seen(&cache), cache.len()), (None, 0), "an idle entry was kept as a stale one");
    // Without the options, no entry is.
    let runtime = Runtime::builder().unlimited().clock(&clock).build().unwrap();
    let plain = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    plain.entry(1).time_to_live(SECOND).insert(1).unwrap();
    clock.advance(SECOND - Duration::from_millis(4));
    assert_eq!(seen(&plain), Some((1, false, false)));
    clock.advance(Duration::from_millis(4));
    assert_eq!((seen(&plain), plain.len()), (None, 0));
}

#[test]
fn an_entry_of_any_time_lives_as_long_with_a_stale_time_as_without() {
    let hour = 3_600 * SECOND;
    for stale in [SECOND, 5 * hour, 24 * 365 * hour, Duration::MAX] {
        for time in [Duration::ZERO, SECOND, 50 * hour, 24 * 30 * hour, 24 * 365 * 2 * hour] {
            let clock = ManualClock::new();
            let cache = builder(&clock).stale_while_revalidate(stale).build().unwrap();
            // Some of these are stored in seconds, as the clock's floor is far behind.
            clock.advance(30 * SECOND);
            cache.entry(1).time_to_live(time).insert(1).unwrap();
            cache.entry(2).time_to_idle(time).insert(2).unwrap();
            if let Some(before) = time.checked_sub(SECOND / 100) {
                clock.advance(before);
                assert_eq!((cache.peek(&1), cache.peek(&2)), (Some(1), Some(2)), "{stale:?} {time:?}");
            }
            clock.advance(time / 4 + 2 * SECOND);
            assert_eq!((cache.get(&1), cache.get(&2)), (None, None), "{stale:?} {time:?}");
            assert_eq!(seen(&cache).is_some(), time / 4 + 2 * SECOND < stale, "{stale:?} {time:?}");
            clock.advance(24 * 366 * hour);
            assert_eq!(cache.len(), 0, "{stale:?} {time:?}");
        }
    }
}

#[test]
fn an_idle_time_that_a_lagging_clock_stores_as_a_fixed_one_is_not_cut_by_the_stale_time() {
    let clock = ManualClock::new();
    let cache = builder(&clock).build().unwrap();
    cache.runtime().housekeeper().remove(cache.inner.maintenance);
    clock.jump(60 * 86_400 * SECOND);
    for round in 0..3 {
        cache.entry(1).time_to_idle(SECOND / 10).insert(1).unwrap();
        assert_eq!(cache.get(&1), Some(1), "{round}");
        clock.jump(SECOND / 20);
        assert_eq!(cache.get(&1), Some(1), "{round}");
        clock.jump(20 * SECOND);
        assert_eq!(cache.get(&1), None, "{round}");
    }
}

#[test]
fn the_time_left_and_saved_entries_do_not_include_the_stale_time() {
    let clock = ManualClock::new();
    let (cache, other) = (cache(&clock), cache(&clock));
    cache.insert(1, 1).unwrap();
    clock.advance(4 * SECOND);
    let mut left = None;
    let look = |there: Option<crate::cache::Current<'_, u64, u64>>| {
        left = there.and_then(|there| there.time_left());
        Op::Keep
    };
    cache.entry(1).and_compute(look).unwrap();
    let at_most = |left: Option<Duration>| left.is_some_and(|left| left <= 6 * SECOND && left > 5 * SECOND);
    assert!(at_most(left), "{left:?}");
    let mut saved = Vec::new();
    cache
        .save(|key, value, meta| {
            saved.push((*key, *value, meta.clone()));
            Ok::<_, ()>(())
        })
        .unwrap();
    assert!(at_most(saved[0].2.time_left), "{saved:?}");
    other.load(saved);
    clock.advance(6 * SECOND);
    assert_eq!((other.get(&1), seen(&other)), (None, Some((1, true, true))));
    // `Update` keeps the time.
    let renewed = cache.insert(1, 2).unwrap();
    assert_eq!(renewed, None);
    clock.advance(4 * SECOND);
    cache.entry(1).and_compute(|_| Op::Update(3)).unwrap();
    clock.advance(5 * SECOND);
    assert_eq!(cache.get(&1), Some(3));
    clock.advance(2 * SECOND);
    assert_eq!((cache.get(&1), seen(&cache)), (None, Some((3, true, true))));
}

#[test]
fn a_failed_reload_is_tried_again_a_second_later() {
    let clock = ManualClock::new();
    let cache = cache(&clock);
    let ends: [&dyn Fn(Refresh<u64, u64>); 4] = [
        &drop,
        &|refresh| assert_eq!(refresh.try_load_with(|| Err("away")), Err("away")),
        &|refresh| {
            assert!(catch_unwind(AssertUnwindSafe(|| refresh.load_with(|| panic!("the load's own fault")))).is_err())
        },
        // The value is returned, and the cache has no room for it.
        &|refresh| assert_eq!(refresh.load_with(|| TOO_LARGE), TOO_LARGE),
    ];
    for end in ends {
        end(begun(&cache, &clock, 8));
        for _ in 0..2 {
            assert_eq!([seen(&cache), seen(&cache)], [Some((1, false, false)); 2], "tried again on each hit");
            clock.advance(SECOND / 2 + Duration::from_millis(1));
        }
        // The caller of a failed load gets the old value.
        assert_eq!(cache.entry(1).refresh().or_try_insert_with(|| Err("away")), Ok(1));
        assert_eq!(cache.entry(1).refresh().or_insert_with(|| panic!("tried again on each hit")), 1);
        clock.advance(SECOND);
        assert_eq!(cache.entry(1).refresh().or_insert_with(|| 9), 9);
        assert_eq!(cache.get(&1), Some(9));
    }
}

#[test]
fn an_error_is_returned_when_the_old_value_may_not_be_used_any_more() {
    let clock = ManualClock::new();
    let cache = cache(&clock);
    cache.insert(1, 1).unwrap();
    clock.advance(9 * SECOND);
    let fails = |seconds: u32| {
        clock.advance(SECOND * seconds);
        Err("away")
    };
    assert_eq!(cache.entry(1).refresh().or_try_insert_with(|| fails(3)), Ok(1), "stale by now");
    assert_eq!(cache.entry(1).refresh().or_try_insert_with(|| fails(3)), Err("away"), "gone by now");
}

#[test]
fn a_call_that_removes_or_replaces_the_entry_stops_the_reload() {
    type Change = fn(&Numbers);
    let changes: [(&str, Change, Option<u64>); 9] = [
        ("remove", |cache| assert_eq!(cache.remove(&1), Some(1)), None),
        ("clear", |cache| cache.clear(), None),
        ("retain", |cache| cache.retain(|_, _| false), None),
        ("compute", |cache| assert_eq!(cache.entry(1).and_compute(|_| Op::Remove), Ok(Computed::Removed(1))), None),
        ("insert", |cache| assert_eq!(cache.insert(1, 5), Ok(Some(1))), Some(5)),
        ("put", |cache| assert_eq!(cache.entry(1).and_compute(|_| Op::Put(5)), Ok(Computed::Replaced(1))), Some(5)),
        (
            "update",
            |cache| assert_eq!(cache.entry(1).and_compute(|_| Op::Update(5)), Ok(Computed::Replaced(1))),
            Some(5),
        ),
        // A value that has left again is younger, too.
        (
            "insert and remove",
            |cache| {
                cache.insert(1, 5).unwrap();
                cache.remove(&1).unwrap();
            },
            None,
        ),
        (
            "remove, insert and evict",
            |cache| {
                cache.remove(&1).unwrap();
                cache.insert(1, 5).unwrap();
                evict(cache);
            },
            None,
        ),
    ];
    for (name, change, expected) in changes {
        let clock = ManualClock::new();
        let cache = cache(&clock);
        let refresh = begun(&cache, &clock, 8);
        let value = refresh.load_with(|| {
            change(&cache);
            2
        });
        assert_eq!((value, cache.get(&1)), (2, expected), "{name}");
        // And before the load has begun.
        let refresh = begun(&cache, &clock, 8);
        change(&cache);
        assert_eq!((refresh.load_with(|| 2), cache.get(&1)), (2, expected), "{name}");
        assert_eq!(cache.entry(1).refresh().or_try_fill_with(|| Ok::<_, ()>(3)).unwrap().value, expected.unwrap_or(3));
    }
}

#[test]
fn a_stale_entry_that_a_call_removes_or_replaces_stops_the_reload() {
    type Change = fn(&Numbers);
    let changes: [(Change, Option<u64>); 3] = [
        (|cache| assert_eq!(cache.remove(&1), None), None),
        (|cache| cache.retain(|_, _| panic!("it has expired")), None),
        (|cache| assert_eq!(cache.insert(1, 5), Ok(None)), Some(5)),
    ];
    for (change, expected) in changes {
        let clock = ManualClock::new();
        let cache = cache(&clock);
        let refresh = begun(&cache, &clock, 12);
        change(&cache);
        assert_eq!((refresh.load_with(|| 2), cache.get(&1)), (2, expected));
    }
}

#[test]
fn a_reloaded_value_is_inserted_if_the_old_one_was_evicted_or_has_expired() {
    let clock = ManualClock::new();
    let cache = cache(&clock);
    let refresh = begun(&cache, &clock, 8);
    evict(&cache);
    assert_eq!((refresh.load_with(|| 2), cache.get(&1)), (2, Some(2)));
    let refresh = begun(&cache, &clock, 8);
    clock.advance(20 * SECOND);
    assert!(cache.is_empty(), "the entry has not expired");
    assert_eq!((refresh.load_with(|| 3), cache.get(&1)), (3, Some(3)));
    // A value that was inserted after that stays.
    let refresh = begun(&cache, &clock, 8);
    clock.advance(20 * SECOND);
    cache.insert(1, 4).unwrap();
    assert_eq!((refresh.load_with(|| 5), cache.get(&1)), (5, Some(4)));
}

#[test]
fn a_touched_or_copied_entry_is_still_reloaded() {
    let clock = ManualClock::new();
    for is_removed in [true, false] {
        let cache = cache(&clock);
        insert_among_others(&cache);
        clock.advance(8 * SECOND);
        let refresh = ask(&cache).expect("the entry is due");
        assert!(cache.touch(&1, Some(100 * SECOND)));
        copy_entry(&cache);
        if is_removed {
            assert_eq!(cache.remove(&1), Some(1));
        }
        assert_eq!((refresh.load_with(|| 2), cache.get(&1)), (2, (!is_removed).then_some(2)));
        clock.advance(11 * SECOND);
        assert_eq!(cache.get(&1), None, "the new value has the old deadline");
    }
}

#[test]
fn the_group_of_the_entry_is_charged_for_the_new_value() {
    let clock = ManualClock::new();
    let cache = cache(&clock);
    let (shop, blog) = (cache.runtime().group("shop").unwrap(), cache.runtime().group("blog").unwrap());
    let len = |cache: &Numbers| (cache.len_of(&shop), cache.len_of(&blog), cache.len_of(cache.group()));
    // Live, stale, and evicted.
    for (seconds, evicted) in [(8, false), (12, false), (8, true)] {
        cache.entry(1).group(&shop).insert(1).unwrap();
        clock.advance(SECOND * seconds);
        let refresh = ask(&cache).expect("the entry is due");
        if evicted {
            evict(&cache);
        }
        assert_eq!((refresh.load_with(|| 2), cache.get(&1)), (2, Some(2)));
        assert_eq!(len(&cache), (1, 0, 0), "{seconds} {evicted}");
    }
    // A group that is named takes the entry over.
    clock.advance(8 * SECOND);
    assert_eq!(cache.entry(1).group(&blog).refresh().or_insert_with(|| 3), 3);
    assert_eq!(len(&cache), (0, 1, 0));
    // A group that ends meanwhile leaves the entry to its parent.
    clock.advance(8 * SECOND);
    let refresh = ask(&cache).expect("the entry is due");
    cache.runtime().end_group(&blog).unwrap();
    assert_eq!((refresh.load_with(|| 4), cache.get(&1)), (4, Some(4)));
    assert_eq!(len(&cache), (0, 0, 1));
    cache.clear();
    cache.runtime().tree().drain_stock();
    assert_eq!(cache.runtime().root().usage(), ByteSize::ZERO);
}

#[test]
fn tenants_reload_entries_of_their_own() {
    let clock = ManualClock::new();
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).clock(&clock).build().unwrap();
    let cache = Cache::<crate::cache::TenantKey<u64>, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .time_to_live(10 * SECOND)
        .refresh_ahead(3 * SECOND)
        .build()
        .unwrap();
    let (shop, blog) = (runtime.group("shop").unwrap(), runtime.group("blog").unwrap());
    let (ours, theirs) = (cache.tenant(&shop).unwrap(), cache.tenant(&blog).unwrap());
    ours.insert(1, 1).unwrap();
    theirs.insert(1, 2).unwrap();
    clock.advance(8 * SECOND);
    let refresh = cache.get_or_refresh(&ours.key_ref(&1)).unwrap().refresh.expect("the entry is due");
    assert_eq!(theirs.entry(1).refresh().or_insert_with(|| 4), 4, "the tenants share a reload");
    assert_eq!(refresh.load_with(|| 3), 3);
    assert_eq!((ours.get(&1), theirs.get(&1)), (Some(3), Some(4)));
    assert_eq!((cache.len_of(&shop), cache.len_of(&blog)), (1, 1));
}

#[test]
fn a_reloaded_value_has_the_time_of_its_caller() {
    let clock = ManualClock::new();
    let cache = cache(&clock);
    let _new = begun(&cache, &clock, 8).lifetime(Lifetime::Live(100 * SECOND)).load_with(|| 2);
    clock.advance(90 * SECOND);
    assert_eq!(cache.get(&1), Some(2));
    clock.advance(9 * SECOND);
    let _new = cache.entry(1).time_to_live(50 * SECOND).refresh().or_insert_with(|| 3);
    clock.advance(49 * SECOND);
    let _new = ask(&cache).unwrap().lifetime(Lifetime::Forever).load_with(|| 4);
    clock.advance(1_000 * SECOND);
    assert_eq!(cache.get(&1), Some(4));
    let _new = begun(&cache, &clock, 8).lifetime(Lifetime::Unchanged).load_with(|| 5);
    clock.advance(9 * SECOND);
    assert_eq!(cache.get(&1), Some(5));
    clock.advance(SECOND);
    assert_eq!(cache.get(&1), None);
}

#[test]
fn a_function_of_times_gets_a_reloaded_value_as_a_new_one() {
    let clock = ManualClock::new();
    let events = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&events);
    let expire = move |_: &u64, value: &u64, event| {
        noted.lock().unwrap().push((*value, matches!(event, ExpiryEvent::Read { .. })));
        match event {
            ExpiryEvent::Create => Lifetime::Live(10 * SECOND),
            // Would let a stale entry live on, if a use of it were reported.
            ExpiryEvent::Read { time_left } if time_left == Some(Duration::ZERO) => Lifetime::Forever,
            _ => Lifetime::Unchanged,
        }
    };
    let cache = builder(&clock).expire_after(expire).build().unwrap();
    let refresh = begun(&cache, &clock, 8);
    assert_eq!(refresh.load_with(|| 2), 2);
    clock.advance(9 * SECOND);
    assert_eq!(cache.get(&1), Some(2), "the new value has the old deadline");
    clock.advance(3 * SECOND);
    let refresh = ask(&cache).unwrap();
    assert_eq!(seen(&cache), Some((2, true, false)));
    assert_eq!(refresh.load_with(|| 3), 3);
    assert_eq!(seen(&cache), Some((3, false, false)));
    assert_eq!(*events.lock().unwrap(), [(1, false), (1, true), (2, false), (2, true), (3, false), (3, true)]);
    // A use that extends the deadline leaves nothing to reload.
    let extend = |_: &u64, _: &u64, _| Lifetime::Live(10 * SECOND);
    let cache = builder(&clock).expire_after(extend).build().unwrap();
    cache.insert(1, 1).unwrap();
    clock.advance(8 * SECOND);
    assert_eq!(seen(&cache), Some((1, false, false)));
    clock.advance(8 * SECOND);
    assert_eq!(cache.get(&1), Some(1));
}

#[test]
fn a_load_that_misses_waits_for_a_reload_that_has_begun() {
    let clock = ManualClock::new();
    let cache = cache(&clock);
    let refresh = begun(&cache, &clock, 8);
    let ((begin, has_begun), (go, may_go)) = (mpsc::channel(), mpsc::channel::<()>());
    let reloads = std::thread::spawn(move || {
        refresh.load_with(|| {
            begin.send(()).unwrap();
            may_go.recv().unwrap();
            2
        })
    });
    has_begun.recv_timeout(PATIENCE).unwrap();
    // Stale: a call that reloads does not wait, a plain load does.
    clock.advance(3 * SECOND);
    assert_eq!(seen(&cache), Some((1, true, false)));
    let (asks, (done, is_done)) = (cache.clone(), mpsc::channel());
    let waits = std::thread::spawn(move || {
        done.send(asks.get_or_insert_with(1, || panic!("two loads at once"))).unwrap();
    });
    assert_eq!(is_done.recv_timeout(Duration::from_millis(20)), Err(mpsc::RecvTimeoutError::Timeout));
    go.send(()).unwrap();
    assert_eq!((is_done.recv_timeout(PATIENCE), reloads.join().unwrap()), (Ok(2), 2));
    waits.join().unwrap();
    assert_eq!((cache.get(&1), cache.stats().loads), (Some(2), 1));
}

#[test]
fn a_load_that_misses_does_not_wait_for_a_reload_that_has_not_begun() {
    let clock = ManualClock::new();
    let cache = cache(&clock);
    let refresh = begun(&cache, &clock, 8);
    clock.advance(4 * SECOND);
    assert_eq!(cache.get_or_insert_with(1, || 3), 3);
    // Another reload may begin, beside the one that is late, and the late value is not inserted.
    clock.advance(8 * SECOND);
    let again = ask(&cache).expect("the late reload blocks the key");
    assert_eq!((refresh.load_with(|| 2), cache.get(&1)), (2, Some(3)));
    assert!(cache.get_or_refresh(&1).unwrap().refresh.is_none(), "the end of the late one ended the other");
    assert_eq!((again.load_with(|| 4), cache.get(&1)), (4, Some(4)));
    // Nor for one that was leaked.
    std::mem::forget(begun(&cache, &clock, 8));
    clock.advance(20 * SECOND);
    assert_eq!((cache.get_or_insert_with(1, || 5), cache.get(&1)), (5, Some(5)));
    clock.advance(8 * SECOND);
    assert_eq!(cache.entry(1).refresh().or_insert_with(|| 6), 6);
}

#[test]
fn a_reload_may_request_its_own_key() {
    let clock = ManualClock::new();
    let cache = cache(&clock);
    for (seconds, own) in [(8, 1), (12, 7)] {
        cache.insert(1, 1).unwrap();
        clock.advance(SECOND * seconds);
        let cache = cache.clone();
        let (done, is_done) = mpsc::channel();
        let reload = move || {
            let value = cache.entry(1).refresh().or_insert_with(|| {
                let old = cache.entry(1).refresh().or_insert_with(|| panic!("the old value is usable"));
                // A stale value is none for a plain load, which would wait for itself.
                let plain = cache.get_or_insert_with(1, || 7);
                10 * old + plain
            });
            done.send((value, cache.get(&1))).unwrap();
        };
        let reload = std::thread::spawn(reload);
        // A value that was inserted meanwhile stays.
        let there = if seconds == 12 { 7 } else { 11 };
        assert_eq!(is_done.recv_timeout(PATIENCE), Ok((10 + own, Some(there))));
        reload.join().unwrap();
    }
}

#[test]
fn reloads_that_request_each_others_keys_do_not_deadlock() {
    let clock = ManualClock::new();
    let cache = cache(&clock);
    for key in 1..3 {
        cache.insert(key, key).unwrap();
    }
    clock.advance(12 * SECOND);
    let both = Arc::new(Barrier::new(2));
    let (done, is_done) = mpsc::channel();
    let threads = [(1, 2), (2, 1)].map(|(key, other)| {
        let (cache, both, done) = (cache.clone(), Arc::clone(&both), done.clone());
        std::thread::spawn(move || {
            let refresh = cache.get_or_refresh(&key).unwrap().refresh.unwrap();
            let value = refresh.load_with(|| {
                both.wait();
                100 + cache.get_or_insert_with(other, || 10)
            });
            done.send(value).unwrap();
        })
    });
    for _ in 0..2 {
        assert!(is_done.recv_timeout(PATIENCE).is_ok_and(|value| value >= 110));
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn of_many_threads_one_reloads_at_a_time_and_no_value_becomes_older() {
    let clock = ManualClock::new();
    let cache = cache(&clock);
    let (source, in_progress, reloads, is_over) =
        (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    cache.insert(1, 0).unwrap();
    let load = || {
        assert_eq!(in_progress.fetch_add(1, Ordering::SeqCst), 0, "two reloads at once");
        let value = source.load(Ordering::SeqCst);
        std::thread::yield_now();
        in_progress.fetch_sub(1, Ordering::SeqCst);
        reloads.fetch_add(1, Ordering::SeqCst);
        value
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut newest = 0;
                while !is_over.load(Ordering::SeqCst) {
                    let Some(hit) = cache.get_or_refresh(&1) else { continue };
                    assert!(hit.value >= newest, "{} after {newest}", hit.value);
                    newest = hit.value;
                    if let Some(refresh) = hit.refresh {
                        refresh.load_with(load);
                    }
                }
            });
        }
        let is_reloaded = (1..30).all(|round| {
            // A younger value than that of a reload in progress.
            let value = source.fetch_add(1, Ordering::SeqCst) + 1;
            cache.insert(1, value).unwrap();
            let (before, start) = (reloads.load(Ordering::SeqCst), Instant::now());
            clock.advance(8 * SECOND);
            while round % 3 != 0 && reloads.load(Ordering::SeqCst) == before && start.elapsed() < PATIENCE {
                std::thread::yield_now();
            }
            start.elapsed() < PATIENCE
        });
        is_over.store(true, Ordering::SeqCst);
        assert!(is_reloaded, "nothing was reloaded");
    });
}

#[test]
fn a_refresh_keeps_its_cache_and_may_be_the_last_handle() {
    let clock = ManualClock::new();
    let gone = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&gone);
    let listener = move |_: &u64, _: &u64, _| {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    for is_dropped in [true, false] {
        let cache = builder(&clock).eviction_listener(listener.clone()).build().unwrap();
        let refresh = begun(&cache, &clock, 8);
        drop(cache);
        match is_dropped {
            true => drop(refresh),
            false => assert_eq!(refresh.load_with(|| 2), 2),
        }
    }
    assert_eq!(gone.load(Ordering::Relaxed), 1, "the replaced value");
    assert_eq!(Arc::strong_count(&gone), 2, "a cache was kept");
}

#[test]
fn a_refresh_may_be_dropped_in_a_listener() {
    let clock = ManualClock::new();
    let slot: Arc<Mutex<Vec<Refresh<u64, u64>>>> = Arc::default();
    let held = Arc::clone(&slot);
    let listener = move |_: &u64, _: &u64, cause| {
        let all = std::mem::take(&mut *held.lock().unwrap());
        for (at, refresh) in all.into_iter().enumerate() {
            match at % 2 {
                0 => drop(refresh),
                _ => assert_eq!(refresh.load_with(|| 7), 7, "{cause:?}"),
            }
        }
    };
    let cache = builder(&clock).eviction_listener(listener).build().unwrap();
    for key in 0..4 {
        cache.insert(key, key).unwrap();
    }
    clock.advance(8 * SECOND);
    slot.lock().unwrap().extend((0..3).filter_map(|key| cache.get_or_refresh(&key)?.refresh));
    assert_eq!(slot.lock().unwrap().len(), 3);
    // While another reloaded value is published.
    assert_eq!(cache.entry(3).refresh().or_insert_with(|| 8), 8);
    assert_eq!([0, 1, 2, 3].map(|key| cache.get(&key)), [Some(0), Some(7), Some(2), Some(8)]);
    assert_eq!(cache.stats().listener_panics, 0);
}

#[test]
fn a_part_as_long_as_the_time_to_live_is_refused() {
    let clock = ManualClock::new();
    for part in [10 * SECOND, Duration::MAX] {
        let error = builder(&clock).refresh_ahead(part).build().unwrap_err();
        assert_eq!(error, CacheBuildError::RefreshTooEarly { refresh_ahead: part, time_to_live: 10 * SECOND });
        assert!(error.to_string().contains("time_to_live (10s)"), "{error}");
    }
    let none = builder(&clock).refresh_ahead(Duration::ZERO).time_to_live(Duration::ZERO);
    assert!(none.build().is_ok(), "no part was set");
}

/// The entry and its reloads, by the documented rules.
#[derive(Default)]
struct Model {
    now: u32,
    /// The value, when it expires, and whether a reload of it has begun.
    entry: Option<(u64, u32, bool)>,
    /// For each reload: whether it was stopped.
    stopped: Vec<bool>,
    /// The reload that other callers find in progress.
    current: Option<usize>,
    retry: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Insert,
    Remove,
    Clear,
    Get,
    Load,
    Ask,
    Finish(usize),
    Fail(usize),
    Advance(u32),
    Touch,
    Evict,
}

impl Model {
    fn live(&self) -> Option<u64> {
        self.entry.filter(|(_, end, _)| self.now < *end).map(|(value, _, _)| value)
    }

    fn stop(&mut self) {
        if let (Some((_, _, true)), Some(current)) = (self.entry, self.current) {
            self.stopped[current] = true;
        }
    }

    fn put(&mut self, value: u64) {
        self.entry = Some((value, self.now + 10, false));
    }

    fn end(&mut self, number: usize) {
        self.current = self.current.filter(|current| *current != number);
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Insert),
        1 => Just(Step::Remove),
        1 => Just(Step::Clear),
        2 => Just(Step::Get),
        2 => Just(Step::Load),
        6 => Just(Step::Ask),
        4 => (0..4_usize).prop_map(Step::Finish),
        2 => (0..4_usize).prop_map(Step::Fail),
        6 => (1..5_u32).prop_map(Step::Advance),
        1 => Just(Step::Touch),
        1 => Just(Step::Evict),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_random_history_of_reloads_follows_the_rules(steps in prop::collection::vec(step(), 1..120)) {
        let clock = ManualClock::new();
        let cache = cache(&clock);
        let mut model = Model::default();
        let mut open: Vec<(usize, Refresh<u64, u64>)> = Vec::new();
        for (value, step) in (1..).zip(steps) {
            match step {
                Step::Insert => {
                    prop_assert_eq!(cache.insert(1, value).unwrap(), model.live());
                    model.stop();
                    model.put(value);
                }
                Step::Remove => {
                    prop_assert_eq!(cache.remove(&1), model.live());
                    model.stop();
                    model.entry = None;
                }
                Step::Clear => {
                    cache.clear();
                    model.stop();
                    model.entry = None;
                }
                Step::Get => prop_assert_eq!(cache.get(&1), model.live()),
                Step::Load => {
                    let live = model.live();
                    prop_assert_eq!(cache.get_or_insert_with(1, || value), live.unwrap_or(value));
                    if live.is_none() {
                        // It takes the place of a reload whose load has not begun.
                        if let Some(current) = model.current.take() {
                            model.stopped[current] = true;
                        }
                        model.put(value);
                    }
                }
                Step::Ask => {
                    let hit = cache.get_or_refresh(&1);
                    let is_chosen = model.entry.is_some_and(|(_, end, _)| end < model.now + 3)
                        && model.current.is_none() && model.retry <= model.now;
                    let seen = hit.as_ref().map(|hit| (hit.value, hit.is_stale, hit.refresh.is_some()));
                    let expected = model.entry.map(|(value, end, _)| (value, end <= model.now, is_chosen));
                    prop_assert_eq!(seen, expected);
                    if let Some(refresh) = hit.and_then(|hit| hit.refresh) {
                        model.current = Some(model.stopped.len());
                        open.push((model.stopped.len(), refresh));
                        model.stopped.push(false);
                        model.retry = model.now + 1;
                        model.entry = model.entry.map(|(value, end, _)| (value, end, true));
                    }
                }
                Step::Finish(at) if !open.is_empty() => {
                    let (number, refresh) = open.swap_remove(at % open.len());
                    prop_assert_eq!(refresh.load_with(|| value), value);
                    if !model.stopped[number] && model.entry.is_none_or(|(_, _, is_reloading)| is_reloading) {
                        model.put(value);
                        model.retry = 0;
                    }
                    model.end(number);
                }
                Step::Fail(at) if !open.is_empty() => {
                    let (number, refresh) = open.swap_remove(at % open.len());
                    prop_assert!(refresh.try_load_with(|| Err(())).is_err());
                    model.end(number);
                }
                Step::Finish(_) | Step::Fail(_) => {}
                Step::Advance(seconds) => {
                    clock.advance(SECOND * seconds);
                    model.now += seconds;
                    model.entry = model.entry.filter(|(_, end, _)| model.now < end + 5);
                }
                Step::Touch => {
                    let live = model.live();
                    prop_assert_eq!(cache.touch(&1, Some(4 * SECOND)), live.is_some());
                    if live.is_some() {
                        model.entry = model.entry.map(|(value, _, is_reloading)| (value, model.now + 4, is_reloading));
                    }
                }
                Step::Evict => {
                    evict(&cache);
                    model.entry = None;
                }
            }
            prop_assert_eq!(cache.len(), usize::from(model.entry.is_some()));
            cache.inner.core.queues.assert_valid();
        }
        cache.clear();
        cache.runtime().tree().drain_stock();
        prop_assert_eq!(cache.runtime().root().usage(), ByteSize::ZERO);
    }
}
