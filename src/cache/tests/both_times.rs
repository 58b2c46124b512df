//! A time to live and an idle time together: whichever ends first.
//!
//! Time is a `ManualClock`.
//!
//! A change must ensure that an entry's age depends on the manual clock alone.

use crate::cache::{ExpiryEvent, Lifetime, Meta, Op};
use crate::runtime::{Maintenance, ManualClock, NextRun};
use crate::{ByteSize, Cache, Runtime};
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

type NumbersBuilder = crate::cache::CacheBuilder<u64, u64, Box<dyn Fn(&u64, &u64) -> ByteSize + Send + Sync>>;

fn builder(clock: &ManualClock, live: Duration, idle: Duration) -> NumbersBuilder {
    let runtime = Runtime::builder().budget(ByteSize::mib(64)).clock(clock).build().unwrap();
    let builder = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO);
    builder.time_to_live(live).time_to_idle(idle)
}

fn cache(clock: &ManualClock, live: Duration, idle: Duration) -> Cache<u64, u64> {
    builder(clock, live, idle).build().unwrap()
}

#[test]
fn an_unused_entry_ends_by_its_idle_time_and_a_used_one_by_its_time_to_live() {
    // In seconds; a day, and times on both sides of 20 days, from which on deadlines are in
    // seconds.
    for (live, idle) in
        [(10, 4), (86_400, 3_600), (7 * 86_400, 86_400), (60 * 86_400, 86_400), (60 * 86_400, 30 * 86_400)]
    {
        let clock = ManualClock::new();
        let (live, idle) = (SECOND * live, SECOND * idle);
        let cache = cache(&clock, live, idle);
        (0..2).for_each(|key| drop(cache.insert(key, key)));
        let step = idle / 4;
        let mut now = Duration::ZERO;
        while now + step < live {
            clock.advance(step);
            now += step;
            assert_eq!(cache.get(&0), Some(0), "{live:?} {idle:?}: used, at {now:?}");
            let is_there = cache.contains_key(&1);
            assert!(is_there || now > idle, "{live:?} {idle:?}: expired at {now:?}");
            assert!(!is_there || now < idle + idle / 8 + SECOND / 10, "{live:?} {idle:?}: unused, at {now:?}");
        }
        // Two ticks of 4 ms, or a second where deadlines are in seconds.
        let late = Duration::from_millis(10).max(if live > 20 * DAY { SECOND } else { Duration::ZERO });
        clock.advance(live - now - Duration::from_millis(1));
        assert_eq!(cache.get(&0), Some(0), "{live:?} {idle:?}: before its end");
        clock.advance(Duration::from_millis(1) + late);
        assert_eq!((cache.get(&0), cache.len()), (None, 0), "{live:?} {idle:?}");
    }
}

#[test]
fn entries_end_in_the_order_of_their_deadlines() {
    let clock = ManualClock::new();
    let cache = cache(&clock, 100 * SECOND, 40 * SECOND);
    cache.insert(1, 1).unwrap();
    clock.advance(30 * SECOND);
    cache.insert(2, 2).unwrap();
    cache.get(&1);
    clock.advance(30 * SECOND);
    // 1 ends at 100 by its time to live; 2 at 70 by its idle time, or up to an eighth of the idle
    // time later; 3 at 116 by its idle time, as it is used at 76.
    cache.insert(3, 3).unwrap();
    cache.get(&1);
    let there = || [1, 2, 3].map(|key| cache.contains_key(&key));
    assert_eq!(there(), [true, true, true]);
    clock.advance(16 * SECOND);
    assert_eq!(there(), [true, false, true], "at 76");
    cache.get(&1);
    cache.get(&3);
    clock.advance(23 * SECOND);
    assert_eq!(there(), [true, false, true], "at 99");
    clock.advance(SECOND + Duration::from_millis(8));
    assert_eq!(there(), [false, false, true], "just after 100");
    // The overwritten entry begins anew.
    cache.insert(3, 4).unwrap();
    for _ in 0..9 {
        clock.advance(11 * SECOND);
        assert_eq!(cache.get(&3), Some(4));
    }
    clock.advance(SECOND + Duration::from_millis(8));
    assert_eq!(there(), [false; 3]);
}

#[test]
fn a_time_of_the_entry_counts_instead_of_both() {
    let clock = ManualClock::new();
    let cache = cache(&clock, 10 * SECOND, 4 * SECOND);
    cache.entry(1).time_to_idle(4 * SECOND).insert(1).unwrap();
    cache.entry(2).time_to_live(30 * SECOND).insert(2).unwrap();
    cache.entry(3).forever().insert(3).unwrap();
    cache.insert(4, 4).unwrap();
    assert!(cache.touch(&4, Some(30 * SECOND)));
    for _ in 0..25 {
        clock.advance(SECOND);
        assert_eq!([1, 3].map(|key| cache.get(&key)), [Some(1), Some(3)]);
    }
    assert_eq!([2, 4].map(|key| cache.peek(&key)), [Some(2), Some(4)]);
    clock.advance(6 * SECOND);
    assert_eq!([1, 2, 3, 4].map(|key| cache.contains_key(&key)), [false, false, true, false]);
}

#[test]
fn an_update_and_compaction_keep_the_end_of_the_time_to_live() {
    let clock = ManualClock::new();
    let cache = cache(&clock, 100 * SECOND, 40 * SECOND);
    (0..20_000).for_each(|key| drop(cache.insert(key, key)));
    clock.advance(30 * SECOND);
    cache.entry(100).and_compute(|_| Op::Update(7)).unwrap();
    (0..20_000).filter(|key| key % 100 != 0).for_each(|key| assert!(cache.remove(&key).is_some()));
    let slab = cache.inner.core.index.slab();
    super::eventually(SECOND * 60, "removed records are freed", || slab.collect() == ByteSize::ZERO);
    super::compaction::compact_all(&cache);
    let keys = || (0..20_000).step_by(100);
    for _ in 0..6 {
        assert!(keys().all(|key| cache.get(&key).is_some()), "extended by uses");
        clock.advance(SECOND * 23 / 2);
    }
    // Others take the slots of the removed ones.
    (20_000..25_000).for_each(|key| drop(cache.insert(key, key)));
    assert!(keys().all(|key| cache.get(&key).is_some()), "at 99");
    clock.advance(SECOND * 2);
    assert!(keys().all(|key| cache.get(&key).is_none()), "at 101");
    assert!((20_000..25_000).all(|key| cache.get(&key) == Some(key)));
}

#[test]
fn saved_entries_keep_both_times() {
    let clock = ManualClock::new();
    let before = cache(&clock, 100 * SECOND, 40 * SECOND);
    before.insert(1, 1).unwrap();
    clock.advance(35 * SECOND);
    before.get(&1);
    clock.advance(10 * SECOND);
    let mut saved = Vec::new();
    let save = |key: &u64, value: &u64, meta: &Meta| {
        saved.push((*key, *value, meta.clone()));
        Ok::<_, ()>(())
    };
    before.save(save).unwrap();
    let Meta { time_left, time_to_idle, live_left, .. } = saved[0].2.clone();
    let near = |time: Option<Duration>, seconds: u64| {
        let time = time.unwrap().as_secs_f64();
        assert!(time > seconds as f64 * 0.85 && time <= seconds as f64 * 1.04, "{time} {seconds}");
    };
    near(time_left, 30);
    near(time_to_idle, 40);
    near(live_left, 55);
    for (after, lives) in [(cache(&clock, DAY, DAY), [true, false]), (builder_of_one(&clock), [true, false])] {
        assert_eq!(after.load(saved.clone()).put, 1);
        for _ in 0..5 {
            clock.advance(9 * SECOND);
            assert_eq!(after.get(&1), Some(1), "used");
        }
        clock.advance(9 * SECOND);
        assert_eq!(after.contains_key(&1), lives[0], "54 seconds later");
        clock.advance(2 * SECOND);
        assert_eq!(after.contains_key(&1), lives[1], "56 seconds later");
    }
}

/// A cache with an idle time only.
fn builder_of_one(clock: &ManualClock) -> Cache<u64, u64> {
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).clock(clock).build().unwrap();
    Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).time_to_idle(DAY).build().unwrap()
}

#[test]
fn a_function_of_times_has_both_as_its_default() {
    let clock = ManualClock::new();
    let function = |_: &u64, value: &u64, event| match (value, event) {
        (1, ExpiryEvent::Create) => Lifetime::Idle(4 * SECOND),
        (2, ExpiryEvent::Read { .. }) => Lifetime::Idle(4 * SECOND),
        _ => Lifetime::Unchanged,
    };
    let cache = builder(&clock, 10 * SECOND, 4 * SECOND).expire_after(function).build().unwrap();
    (0..3).for_each(|key| drop(cache.insert(key, key)));
    for second in 1..30 {
        clock.advance(SECOND);
        assert_eq!(cache.get(&0).is_some(), second < 10, "{second}");
        assert_eq!([1, 2].map(|key| cache.get(&key)), [Some(1), Some(2)], "{second}: an idle time alone");
    }
}

/// The function's answer counts although the idle deadline stays the same.
#[test]
fn an_idle_time_by_the_function_replaces_both() {
    let clock = ManualClock::new();
    let reads = AtomicU64::new(0);
    let function = move |_: &u64, _: &u64, event| match event {
        ExpiryEvent::Read { .. } if reads.fetch_add(1, Ordering::Relaxed) == 0 => Lifetime::Idle(4 * SECOND),
        _ => Lifetime::Unchanged,
    };
    let cache = builder(&clock, 10 * SECOND, 4 * SECOND).expire_after(function).build().unwrap();
    cache.insert(1, 1).unwrap();
    for n in 0..10 {
        assert_eq!(cache.get(&1), Some(1), "used {n} times, {:?} after the insert", clock.elapsed());
        clock.advance(2 * SECOND);
    }
}

#[test]
fn an_entry_at_its_end_is_loaded_with_the_earlier_time() {
    let clock = ManualClock::new();
    let cache = cache(&clock, 100 * SECOND, 50 * SECOND);
    let meta = |time_left, live_left| Meta { group: "/".into(), time_left, live_left, ..Meta::default() };
    cache.load([
        (1, 1, meta(Some(20 * SECOND), Some(10 * SECOND))),
        (2, 2, meta(None, Some(10 * SECOND))),
        (3, 3, meta(Some(20 * SECOND), None)),
    ]);
    clock.advance(11 * SECOND);
    assert_eq!([1, 2, 3].map(|key| cache.contains_key(&key)), [false, false, true]);
    clock.advance(10 * SECOND);
    assert!(cache.is_empty());
}

#[test]
fn an_entry_is_reloaded_once_uses_do_not_extend_it_any_more() {
    let clock = ManualClock::new();
    let builder = builder(&clock, 10 * SECOND, 4 * SECOND).refresh_ahead(2 * SECOND);
    let cache = builder.stale_while_revalidate(5 * SECOND).build().unwrap();
    (0..2).for_each(|key| drop(cache.insert(key, key)));
    let ask = |key| cache.get_or_refresh(&key).map(|hit| (hit.is_stale, hit.refresh.is_some()));
    for second in 1..8 {
        clock.advance(SECOND);
        assert_eq!(ask(0), Some((false, false)), "{second}");
    }
    assert_eq!(ask(1), None, "unused, and never stale");
    clock.advance(SECOND * 3 / 2);
    assert_eq!(ask(0), Some((false, true)), "ahead");
    clock.advance(2 * SECOND);
    assert_eq!((cache.get(&0), ask(0)), (None, Some((true, true))), "stale");
    clock.advance(5 * SECOND);
    assert_eq!((ask(0), cache.len()), (None, 0));
}

#[test]
fn the_memory_of_the_ends_is_freed_with_the_entries() {
    let clock = ManualClock::new();
    let cache = cache(&clock, 10 * SECOND, 4 * SECOND);
    let ends = || cache.inner.core.clock.footprint();
    let empty = ends();
    (0..50_000).for_each(|key| drop(cache.insert(key, key)));
    // A few more ends than records: a chunk of the slab begins with a header, and its last slots
    // may be free.
    assert!((50_000 * 4..50_000 * 5).contains(&(ends() - empty)), "{}", ends());
    clock.advance(SECOND);
    clock.advance(SECOND);
    assert!(ends() - empty > 50_000 * 4, "freed under its entries: {}", ends());
    assert!((0..50_000).all(|key| cache.get(&key) == Some(key)));
    for _ in 0..3 {
        clock.advance(20 * SECOND);
    }
    super::eventually(SECOND * 60, "entries leave", || (cache.len(), ends()) == (0, empty));
}

/// Without another deadline no further sweep follows.
#[test]
fn one_sweep_frees_the_ends_of_the_entries_that_it_removes() {
    let clock = ManualClock::new();
    let cache = cache(&clock, 10 * SECOND, 4 * SECOND);
    cache.runtime().housekeeper().remove(cache.inner.maintenance);
    let core = &cache.inner.core;
    let empty = core.clock.footprint();
    (0..1_000).for_each(|key| drop(cache.insert(key, key)));
    clock.jump(20 * SECOND);
    while !matches!(core.reap_expired(), NextRun::WhenNotified) {}
    assert_eq!((cache.len(), core.clock.footprint()), (0, empty));
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Get(u64),
    Remove(u64),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u64..6).prop_map(Step::Insert),
        (0_u64..6).prop_map(Step::Get),
        (0_u64..6).prop_map(Step::Remove),
        (1_u64..12).prop_map(Step::Advance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    /// Each entry is there until the first of its times has passed, and not much longer.
    #[test]
    fn a_random_history_follows_both_times(steps in prop::collection::vec(step(), 1..80)) {
        let clock = ManualClock::new();
        let (live, idle) = (40 * SECOND, 16 * SECOND);
        let cache = cache(&clock, live, idle);
        // By key: the times of the insert and of the last use.
        let mut model: [Option<(Duration, Duration)>; 6] = [None; 6];
        for step in steps {
            let now = clock.elapsed();
            match step {
                Step::Insert(key) => {
                    cache.insert(key, key).unwrap();
                    model[key as usize] = Some((now, now));
                }
                Step::Remove(key) => {
                    cache.remove(&key);
                    model[key as usize] = None;
                }
                Step::Advance(seconds) => clock.advance(SECOND * seconds as u32),
                Step::Get(key) => {
                    let found = cache.get(&key).is_some();
                    let Some((inserted, used)) = model[key as usize] else {
                        prop_assert!(!found);
                        continue;
                    };
                    let (end, idles) = (inserted + live, used + idle);
                    prop_assert!(found || now >= end.min(idles), "early: {now:?} {end:?} {idles:?}");
                    let late = end + Duration::from_millis(8);
                    prop_assert!(!found || now <= late.min(idles + idle / 8), "late: {now:?} {end:?} {idles:?}");
                    model[key as usize] = found.then_some((inserted, now));
                }
            }
        }
    }
}
