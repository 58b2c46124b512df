//! Times to idle and to live: which calls extend a deadline, and what happens at the deadline.
//!
//! Times are short and real, so a thread that is suspended may find an entry expired.
//! [`use_for_twice_as_long`] allows this, and fails only if an entry expires early. The tests that
//! compare the time left have a `ManualClock`, or allow for the time that has passed.
//!
//! A change must ensure that an early expiry fails a test, and that no suspension does.

use crate::cache::{Computed, Eviction, Op};
use crate::runtime::ManualClock;
use crate::{ByteSize, Cache, Runtime};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

const IDLE: Duration = Duration::from_millis(400);
/// More than the two ticks of 4 ms by which a deadline is late at most, so that one of "now" has
/// passed.
const PAST: Duration = Duration::from_millis(9);

fn idling() -> Cache<u64, u64> {
    idling_in(&Runtime::builder().budget(ByteSize::mib(16)).build().unwrap())
}

/// Returns a cache whose time passes by [`ManualClock::jump`] only.
fn idling_by_hand(clock: &ManualClock) -> Cache<u64, u64> {
    idling_in(&Runtime::builder().budget(ByteSize::mib(16)).clock(clock).build().unwrap())
}

fn idling_in(runtime: &Runtime) -> Cache<u64, u64> {
    Cache::<u64, u64>::builder(runtime).weigher(|_, _| ByteSize::ZERO).time_to_idle(IDLE).build().unwrap()
}

/// Returns the time that the entry has left.
fn left(cache: &Cache<u64, u64>, key: u64) -> Option<Duration> {
    let mut left = None;
    let look = |current: Option<crate::cache::Current<'_, u64, u64>>| {
        left = current.expect("the entry is present").time_left();
        Op::Keep
    };
    cache.entry(key).and_compute(look).unwrap();
    left
}

#[test]
fn used_entries_stay_and_idle_ones_expire() {
    let cache = idling();
    (0..4).for_each(|key| drop(cache.insert(key, key)));
    let uses: [&dyn Fn() -> bool; 2] = [&|| cache.get(&0).is_some(), &|| cache.pin().get(&1).is_some()];
    use_for_twice_as_long(&cache, &uses, || {
        cache.peek(&2);
    });
    assert_eq!([2, 3].map(|key| cache.contains_key(&key)), [false; 2], "a peek extended the deadline");
}

/// Uses the entry of key `n` by `uses[n]` for twice the idle time, often enough that it stays, and
/// calls `f` in between. An entry that has expired because this thread was suspended for longer
/// than the idle time is inserted again.
fn use_for_twice_as_long(cache: &Cache<u64, u64>, uses: &[&dyn Fn() -> bool], f: impl Fn()) {
    let start = Instant::now();
    // The time of the first insert is not known, so a miss at the first use is allowed.
    let mut used = vec![start - IDLE; uses.len()];
    while start.elapsed() < 2 * IDLE {
        for ((key, is_there), used) in (0..).zip(uses).zip(&mut used) {
            let before = std::mem::replace(used, Instant::now());
            if !is_there() {
                assert!(before.elapsed() >= IDLE, "{key} was used {:?} ago", before.elapsed());
                cache.entry(key).time_to_idle(IDLE).insert(key).unwrap();
            }
        }
        f();
        std::thread::sleep(IDLE / 20);
    }
}

#[test]
fn a_use_stores_a_new_deadline_only_after_a_part_of_the_idle_time() {
    // Idle deadlines are stored with a resolution of an eighth of the idle time or finer.
    let clock = ManualClock::new();
    let cache = idling_by_hand(&clock);
    cache.insert(1, 1).unwrap();
    let before = left(&cache, 1).unwrap();
    assert!(before > IDLE * 7 / 8 && before <= IDLE);
    cache.get(&1);
    assert!(left(&cache, 1).unwrap() <= before, "extended without elapsed time");
    clock.jump(IDLE / 4);
    let after = left(&cache, 1).unwrap();
    assert!(after <= before - IDLE / 8);
    cache.get(&1);
    let extended = left(&cache, 1).unwrap();
    assert!(extended > IDLE * 7 / 8 && extended > after, "not extended by a use");
}

#[test]
fn uses_extend_an_entrys_own_idle_time() {
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).build().unwrap();
    // With no default time in the cache, and with another one.
    for cache in [Cache::<u64, u64>::builder(&runtime), Cache::builder(&runtime).time_to_live(IDLE * 100)] {
        let cache = cache.weigher(|_, _| ByteSize::ZERO).build().unwrap();
        for key in 0..3 {
            cache.entry(key).time_to_idle(IDLE).insert(key).unwrap();
        }
        cache.entry(1).time_to_idle(IDLE).forever().insert(1).unwrap();
        let start = Instant::now();
        cache.entry(3).time_to_idle(IDLE * 200).insert(3).unwrap();
        use_for_twice_as_long(&cache, &[&|| cache.get(&0).is_some()], || {});
        let present = [1, 2, 3].map(|key| cache.contains_key(&key));
        assert_eq!(present, [true, false, true]);
        let left_of_3 = left(&cache, 3).unwrap();
        // An idle time is rounded by up to an eighth.
        let used = start.elapsed();
        assert!(left_of_3 <= IDLE * 200 - IDLE && left_of_3 + used > IDLE * 175, "{left_of_3:?} after {used:?}");
        // Entries expire without a lookup: 0, 2 and 4.
        cache.entry(4).time_to_idle(IDLE).insert(4).unwrap();
        super::eventually(Duration::from_secs(60), "two entries are left", || cache.len() == 2);
        assert!(cache.contains_key(&1) && cache.contains_key(&3));
    }
}

#[test]
fn uses_do_not_extend_an_entrys_time_to_live() {
    let cache = idling_by_hand(&ManualClock::new());
    let hour = Duration::from_secs(3_600);
    let time_to_live = IDLE * 3 / 4;
    cache.entry(1).time_to_live(time_to_live).insert(1).unwrap();
    cache.entry(2).forever().insert(2).unwrap();
    cache.insert(3, 3).unwrap();
    assert!(cache.touch(&3, Some(hour)));
    (1..4).for_each(|key| assert_eq!(cache.get(&key), Some(key)));
    assert!(left(&cache, 1).unwrap() <= time_to_live);
    assert_eq!(left(&cache, 2), None);
    assert!(left(&cache, 3).unwrap() > hour / 2);
    assert!(cache.touch(&3, None));
    assert_eq!(left(&cache, 3), None);
    cache.entry(1).and_compute(|_| Op::Update(9)).unwrap();
    cache.get(&1);
    assert!(left(&cache, 1).unwrap() <= time_to_live, "an update changed the deadline");
}

#[test]
fn an_update_keeps_the_time_of_a_touch_in_between() {
    const HOUR: Duration = Duration::from_secs(3_600);
    // In place of the old record, and as a new record.
    for eviction in [Eviction::Adaptive, Eviction::Lru] {
        let clock = ManualClock::new();
        let runtime = Runtime::builder().unlimited().clock(&clock).build().unwrap();
        // Taken out at the end: a cache whose weigher holds the cache would never be dropped.
        let own = Arc::new(Mutex::new(None::<Cache<u64, u64>>));
        let handle = Arc::clone(&own);
        let touch = move |key: &u64, value: &u64| {
            let cache = handle.lock().clone();
            if let Some(cache) = cache.filter(|_| *value == 2) {
                assert!(cache.touch(key, Some(HOUR)));
            }
            ByteSize::ZERO
        };
        let builder = Cache::<u64, u64>::builder(&runtime).weigher(touch).eviction(eviction);
        let cache = builder.time_to_live(HOUR / 60).build().unwrap();
        *own.lock() = Some(cache.clone());
        cache.insert(1, 1).unwrap();
        let mut calls = 0;
        let update = cache.entry(1).and_compute(|_| {
            calls += 1;
            Op::Update(2)
        });
        assert_eq!((update, calls), (Ok(Computed::Replaced(1)), 1), "{eviction:?}");
        clock.advance(HOUR / 2);
        assert_eq!(cache.get(&1), Some(2), "{eviction:?}");
        clock.advance(HOUR / 2 + PAST);
        assert_eq!(cache.get(&1), None, "{eviction:?}");
        *own.lock() = None;
    }
}

#[test]
fn an_update_does_not_extend_an_idle_time() {
    let clock = ManualClock::new();
    let cache = idling_by_hand(&clock);
    cache.insert(1, 1).unwrap();
    clock.jump(IDLE / 2);
    assert_eq!(cache.entry(1).and_compute(|_| Op::Update(2)), Ok(Computed::Replaced(1)));
    // An idle time ends up to an eighth late.
    let left_of_1 = left(&cache, 1).unwrap();
    assert!(left_of_1 > IDLE * 3 / 8 && left_of_1 <= IDLE * 5 / 8, "{left_of_1:?}");
}

#[test]
fn a_computation_may_set_the_time_to_live() {
    let clock = ManualClock::new();
    let cache = idling_by_hand(&clock);
    let hour = Duration::from_secs(3_600);
    let compute = |op: Op<u64>| cache.entry(1).time_to_live(hour * 9).and_compute(|_| op).unwrap();
    assert_eq!(compute(Op::Touch(Some(hour))), Computed::Kept);
    assert!(!cache.contains_key(&1), "without a value, nothing is touched");
    assert_eq!(compute(Op::PutFor(1, Some(hour))), Computed::Inserted);
    assert!(left(&cache, 1).unwrap() <= hour && left(&cache, 1).unwrap() > hour / 2);
    assert_eq!(compute(Op::Touch(Some(hour * 2))), Computed::Kept);
    assert!(left(&cache, 1).unwrap() > hour);
    assert_eq!(compute(Op::PutFor(2, None)), Computed::Replaced(1));
    assert_eq!((left(&cache, 1), cache.get(&1)), (None, Some(2)));
    assert_eq!(compute(Op::Touch(Some(hour))), Computed::Kept);
    assert_eq!(compute(Op::Touch(None)), Computed::Kept);
    assert_eq!((left(&cache, 1), cache.get(&1)), (None, Some(2)));
    assert_eq!(compute(Op::Touch(Some(Duration::MAX))), Computed::Kept);
    assert_eq!((left(&cache, 1), cache.get(&1)), (None, Some(2)), "longer than any time that can be stored");
    for op in [Op::Touch(Some(Duration::ZERO)), Op::PutFor(3, Some(Duration::ZERO))] {
        compute(op);
        clock.advance(Duration::from_secs(1));
        assert!(!cache.contains_key(&1), "no time is left after {op:?}");
    }
}

#[test]
fn a_computed_touch_is_of_the_shown_value() {
    let cache = idling_by_hand(&ManualClock::new());
    cache.insert(1, 1).unwrap();
    let mut shown = Vec::new();
    let touch = |current: Option<crate::cache::Current<'_, u64, u64>>| {
        shown.extend(current.map(|current| *current.value()));
        if shown.len() == 1 {
            // As by another thread.
            cache.entry(1).forever().insert(2).unwrap();
        }
        Op::Touch(Some(Duration::from_secs(3_600)))
    };
    cache.entry(1).and_compute(touch).unwrap();
    assert_eq!((shown, left(&cache, 1).is_some()), (vec![1, 2], true));
}

/// A thread that has found an entry expired must not remove it if another thread has touched it
/// successfully in between.
#[test]
fn a_touched_entry_is_not_removed_as_expired() {
    let cache = idling();
    let core = &cache.inner.core;
    cache.entry(1).time_to_live(Duration::from_secs(3_600)).insert(1).unwrap();
    let (hash, guard) = (core.hash(&1), lowwater_rcu::pin());
    let entry = core.index.get(hash, &guard, |entry| entry.key == 1).expect("the entry was inserted");
    // Stored directly, so that the housekeeper is not notified.
    entry.set_deadline(core.clock.after(Duration::ZERO).at);
    std::thread::sleep(PAST);
    assert!(core.is_expired(entry));
    // As by a `touch` that has looked the entry up before.
    entry.set_deadline(core.clock.after(Duration::from_secs(3_600)).at);
    assert!(core.unlink_expired(hash, &guard, entry).is_none());
    assert_eq!(cache.peek(&1), Some(1));
    entry.set_deadline(core.clock.after(Duration::ZERO).at);
    std::thread::sleep(PAST);
    assert!(core.unlink_expired(hash, &guard, entry).is_some());
    assert_eq!(cache.peek(&1), None);
}

/// As above, for `retain`, which asks `keep` about the entries that were extended meanwhile.
#[test]
fn retain_asks_about_an_expired_entry_that_was_touched_meanwhile() {
    const EXPIRED: u64 = 64;
    let cache = idling();
    let core = &cache.inner.core;
    (0..=EXPIRED).for_each(|key| assert_eq!(cache.entry(key).forever().insert(key), Ok(None)));
    // Stored directly, so that the housekeeper is not notified.
    let expire_in = |time: Duration| {
        let guard = lowwater_rcu::pin();
        for key in 0..EXPIRED {
            let entry = core.index.get(core.hash(&key), &guard, |entry| entry.key == key).expect("it was inserted");
            entry.set_deadline(core.clock.after(time).at);
        }
    };
    expire_in(Duration::ZERO);
    std::thread::sleep(PAST);
    let mut shown = Vec::new();
    cache.retain(|key, _| {
        // The first call is for the last key: the others have expired until then.
        if shown.is_empty() {
            assert_eq!(*key, EXPIRED);
            expire_in(Duration::from_secs(3_600));
        }
        shown.push(*key);
        key % 2 == 0
    });
    shown.sort_unstable();
    assert!(shown.into_iter().eq(0..=EXPIRED));
    assert!((0..=EXPIRED).all(|key| cache.contains_key(&key) == (key % 2 == 0)));
}

#[test]
fn a_loaded_value_does_not_replace_a_younger_entry_that_has_expired() {
    let cache = idling();
    let load = || {
        // Inserted during the load, and expired before the load is published. Stored directly, so
        // that the housekeeper is not notified.
        cache.entry(1).forever().insert(1).unwrap();
        let core = &cache.inner.core;
        let guard = lowwater_rcu::pin();
        let entry = core.index.get(core.hash(&1), &guard, |entry| entry.key == 1).expect("the entry was inserted");
        entry.set_deadline(core.clock.after(Duration::ZERO).at);
        std::thread::sleep(PAST);
        assert!(core.is_expired(entry));
        2
    };
    assert_eq!(cache.get_or_insert_with(1, load), 2);
    assert_eq!((cache.get(&1), cache.stats().expired), (None, 1));
}
