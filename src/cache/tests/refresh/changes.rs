//! Calls that change the entry during its reload, and the group and the time of the new value.
//!
//! After 8 seconds an entry is due, after 12 it is stale, and after 20 it is gone
//! (`../refresh.rs`). A new way to remove or replace an entry is added to the ways that stop a
//! reload. A change must ensure that the value of a stopped reload is returned to its caller and
//! not inserted.

use super::*;

#[test]
fn a_call_that_removes_or_replaces_the_entry_stops_the_reload() {
    type Change = fn(&Numbers);
    let changes: [(&str, Change, Option<u64>); 10] = [
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
        // A value that was inserted meanwhile stops the reload even if it has left again.
        (
            "insert and remove",
            |cache| {
                cache.insert(1, 5).unwrap();
                cache.remove(&1).unwrap();
            },
            None,
        ),
        (
            "evict, insert and evict",
            |cache| {
                evict(cache);
                cache.insert(1, 5).unwrap();
                evict(cache);
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
    let changes: [(Change, Option<u64>); 4] = [
        (|cache| assert_eq!(cache.remove(&1), None), None),
        (|cache| assert_eq!(cache.entry(1).and_compute(|_| Op::Remove), Ok(Computed::Kept)), None),
        (|cache| cache.retain(|_, _| panic!("it has expired")), None),
        (|cache| assert_eq!(cache.insert(1, 5), Ok(None)), Some(5)),
    ];
    for (change, expected) in changes {
        let clock = ManualClock::new();
        let cache = cache(&clock);
        let refresh = begun(&cache, &clock, 12);
        change(&cache);
        assert_eq!((refresh.load_with(|| 2), cache.get(&1)), (2, expected));
        assert_eq!(seen(&cache).map(|(value, ..)| value), expected, "the stale value is still there");
    }
}

#[test]
fn a_removal_after_the_old_value_is_gone_stops_the_reload() {
    let changes: [fn(&Numbers); 3] = [
        |cache| assert_eq!(cache.remove(&1), None),
        |cache| assert_eq!(cache.entry(1).and_compute(|_| Op::Remove), Ok(Computed::Kept)),
        Numbers::clear,
    ];
    for change in changes {
        let clock = ManualClock::new();
        let cache = cache(&clock);
        let refresh = begun(&cache, &clock, 8);
        clock.advance(20 * SECOND);
        assert!(cache.is_empty(), "the entry has not expired");
        change(&cache);
        assert_eq!((refresh.load_with(|| 2), cache.get(&1)), (2, None));
        let refresh = begun(&cache, &clock, 8);
        evict(&cache);
        change(&cache);
        assert_eq!((refresh.load_with(|| 2), cache.get(&1)), (2, None));
    }
}

#[test]
fn a_call_after_a_removal_does_not_wait_for_the_reload() {
    let clock = ManualClock::new();
    let cache = cache(&clock);
    let refresh = begun(&cache, &clock, 8);
    let value = refresh.load_with(|| {
        assert_eq!(cache.remove(&1), Some(1));
        let (later, (done, is_done)) = (cache.clone(), mpsc::channel());
        std::thread::spawn(move || done.send(later.get_or_insert_with(1, || 3)).unwrap());
        assert_eq!(is_done.recv_timeout(PATIENCE), Ok(3));
        2
    });
    assert_eq!((value, cache.get(&1)), (2, Some(3)));
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
    // A value that was inserted after the old one has expired stays.
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
fn a_value_whose_entry_was_dropped_with_its_group_goes_to_the_parent() {
    for is_own in [false, true] {
        let clock = ManualClock::new();
        let runtime = runtime(&clock);
        let shop = runtime.group("shop").unwrap();
        let cache = match is_own {
            true => builder_in(&runtime).group(&shop).build().unwrap(),
            false => builder_in(&runtime).build().unwrap(),
        };
        match is_own {
            true => cache.insert(1, 1).unwrap(),
            false => cache.entry(1).group(&shop).insert(1).unwrap(),
        };
        clock.advance(8 * SECOND);
        let refresh = ask(&cache).expect("the entry is due");
        // Bytes that no shrinker frees: the group is being dropped for 100 ms at least.
        let charge = runtime.charge_guard(&shop, ByteSize::kib(1)).unwrap();
        runtime.drop_group(&shop).unwrap();
        let start = Instant::now();
        while !cache.is_empty() {
            assert!(start.elapsed() < PATIENCE, "the group is not emptied");
            std::thread::yield_now();
        }
        let filled = refresh.try_fill_with(|| Ok::<_, ()>(2)).unwrap();
        assert!(matches!(filled.origin, Origin::Loaded), "{:?}", filled.origin);
        assert_eq!((cache.get(&1), cache.len_of(runtime.root())), (Some(2), 1));
        assert_eq!(cache.stats().rejected, 0);
        drop(charge);
    }
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
fn an_entry_that_expires_during_a_computation_is_computed_again() {
    let clock = ManualClock::new();
    let cache = cache(&clock);
    /// Returns an operation for the first call of the closure, during which the entry expires, and
    /// for the second.
    fn compute(
        cache: &Numbers,
        clock: &ManualClock,
        op: impl Fn(Option<u64>) -> Op<u64>,
    ) -> (Computed<u64>, Vec<Option<u64>>) {
        cache.insert(1, 100).unwrap();
        let mut shown = vec![];
        let computed = cache.entry(1).and_compute(|current| {
            let value = current.map(|current| *current.value());
            if shown.is_empty() {
                clock.advance(SECOND * 11);
            }
            shown.push(value);
            op(value)
        });
        (computed.unwrap(), shown)
    }
    let both = vec![Some(100), None];
    let count = |value: Option<u64>| value.map_or(0, |value| value + 1);
    assert_eq!(compute(&cache, &clock, |value| Op::Put(count(value))), (Computed::Inserted, both.clone()));
    assert_eq!(cache.get(&1), Some(0));
    assert_eq!(compute(&cache, &clock, |value| Op::Update(count(value))), (Computed::Inserted, both.clone()));
    assert_eq!(cache.get(&1), Some(0), "a new entry has the cache's own time");
    assert_eq!(compute(&cache, &clock, |_| Op::Remove), (Computed::Kept, both.clone()));
    assert_eq!(compute(&cache, &clock, |_| Op::Touch(None)), (Computed::Kept, both));
}

#[test]
fn a_slow_function_for_the_expiry_brings_no_expired_entry_back() {
    let clock = ManualClock::new();
    let (theirs, is_slow) = (clock.clone(), Arc::new(AtomicBool::new(true)));
    let cache = builder(&clock)
        .expire_after(move |_, _, event| match event {
            ExpiryEvent::Read { .. } if is_slow.swap(false, Ordering::Relaxed) => {
                theirs.advance(SECOND * 11);
                Lifetime::Live(SECOND * 60)
            }
            _ => Lifetime::Unchanged,
        })
        .build()
        .unwrap();
    cache.insert(1, 1).unwrap();
    assert_eq!(cache.get(&1), Some(1), "it was live when it was found");
    assert_eq!(cache.peek(&1), None);
}

#[test]
fn an_entry_that_expires_during_its_update_leaves_no_deadline_to_the_new_value() {
    let clock = ManualClock::new();
    let theirs = clock.clone();
    let expire = move |_: &u64, _: &u64, event| {
        if let ExpiryEvent::Update { .. } = event {
            theirs.advance(SECOND * 11);
        }
        Lifetime::Unchanged
    };
    let cache = builder(&clock).expire_after(expire).build().unwrap();
    cache.insert(1, 1).unwrap();
    assert_eq!(cache.insert(1, 2), Ok(None));
    assert_eq!(cache.peek(&1), Some(2));
    clock.advance(9 * SECOND);
    assert_eq!(cache.peek(&1), Some(2), "the new value has the cache's own time");
    clock.advance(SECOND + Duration::from_millis(5));
    assert_eq!(cache.peek(&1), None);
}

thread_local! {
    /// Called by the next clone of a value on this thread.
    static ON_CLONE: std::cell::RefCell<Option<Box<dyn FnOnce()>>> = const { std::cell::RefCell::new(None) };
}

#[derive(PartialEq, Debug)]
struct Slow(u64);

impl Clone for Slow {
    fn clone(&self) -> Self {
        let on_clone = ON_CLONE.take();
        if let Some(on_clone) = on_clone {
            on_clone();
        }
        Self(self.0)
    }
}

#[test]
fn a_reload_that_did_not_begin_delays_no_other() {
    let clock = ManualClock::new();
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).clock(&clock).build().unwrap();
    let cache = Cache::<u64, Slow>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .time_to_live(SECOND * 10)
        .stale_while_revalidate(SECOND * 5)
        .build()
        .unwrap();
    cache.insert(1, Slow(1)).unwrap();
    clock.advance(SECOND * 11);
    let ((load_begins, begun), (end_load, ends)) = (mpsc::channel(), mpsc::channel::<()>());
    let (other, (done, is_done)) = (cache.clone(), mpsc::channel());
    // The entry is due when it is found, and a load has begun when the reload is to begin.
    ON_CLONE.set(Some(Box::new(move || {
        std::thread::spawn(move || {
            let failed = other.try_get_or_insert_with(1, || {
                load_begins.send(()).unwrap();
                ends.recv().unwrap();
                Err("the database is away")
            });
            done.send(failed.is_err()).unwrap();
        });
        begun.recv_timeout(PATIENCE).unwrap();
    })));
    let hit = cache.get_or_refresh(&1).expect("a stale entry");
    assert!(hit.refresh.is_none(), "a load is in flight");
    end_load.send(()).unwrap();
    assert_eq!(is_done.recv_timeout(PATIENCE), Ok(true));
    assert!(cache.get_or_refresh(&1).expect("a stale entry").refresh.is_some(), "nobody had the right before");
}
