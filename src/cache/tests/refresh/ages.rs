//! The calls that find an entry at each age: fresh, due, stale, gone.
//!
//! Only the clock lets an entry age; a reload or an insert renews it. The times of a cache are in
//! `../refresh.rs` (ten seconds to live, due in the last three, stale for five). A change must
//! ensure that each age is examined just before and at its end.

use super::*;

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
    // At the end of the stale time the entry is removed.
    clock.advance(3 * SECOND);
    assert_eq!((seen(&cache), cache.len()), (None, 0));
    assert_eq!(*causes.lock().unwrap(), [RemovalCause::Expired]);
    // The cause is `Expired` if a new value takes the place of a stale one.
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
    // Without `refresh_ahead` and `stale_while_revalidate` no entry is reloaded.
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
            clock.advance(30 * SECOND);
            cache.entry(1).time_to_live(time).insert(1).unwrap();
            cache.entry(2).time_to_idle(time).insert(2).unwrap();
            if let Some(before) = time.checked_sub(SECOND / 100) {
                clock.advance(before);
                assert_eq!((cache.peek(&1), cache.peek(&2)), (Some(1), Some(2)), "{stale:?} {time:?}");
            }
            // Deadlines of more than 20 days are stored in seconds, which are rounded up.
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
