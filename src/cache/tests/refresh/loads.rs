//! Reloads and other loads: failures, callers that wait or must not wait, threads, and handles that
//! are dropped late.
//!
//! After 8 seconds an entry is due, after 12 it is stale, and after 20 it is gone
//! (`../refresh.rs`). A change must ensure that each wait that could last for ever has a limit.

use super::*;

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
fn a_reload_tells_whether_the_cache_has_kept_its_value() {
    let clock = ManualClock::new();
    let cache = cache(&clock);
    let fill = |value: u64| move || Ok::<_, &str>(value);
    let kept = begun(&cache, &clock, 8).try_fill_with(fill(2)).unwrap();
    assert_eq!((kept.value, kept.origin, cache.get(&1)), (2, Origin::Loaded, Some(2)));
    let rejected = begun(&cache, &clock, 8).try_fill_with(fill(TOO_LARGE)).unwrap();
    assert!(matches!(rejected.origin, Origin::Rejected(RejectReason::TooLarge { .. })), "{:?}", rejected.origin);
    assert_eq!((rejected.value, cache.get(&1)), (TOO_LARGE, Some(1)));
    clock.advance(SECOND);
    let outrun = begun(&cache, &clock, 8).try_fill_with(|| {
        cache.insert(1, 3).unwrap();
        fill(2)()
    });
    assert_eq!((outrun.unwrap().origin, cache.get(&1)), (Origin::Outrun, Some(3)));
    let removed = begun(&cache, &clock, 8).try_fill_with(|| {
        cache.remove(&1);
        fill(2)()
    });
    assert_eq!((removed.unwrap().origin, cache.get(&1)), (Origin::Outrun, None));
    assert_eq!(begun(&cache, &clock, 8).try_fill_with(|| Err("away")), Err("away"));
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
fn a_caller_whose_load_fails_gets_the_value_that_the_entry_has_then() {
    type Change = fn(&Numbers, &ManualClock);
    type Found = Result<(u64, Origin), &'static str>;
    let changes: [(&str, Change, Found); 11] = [
        ("age", |_, clock| clock.advance(4 * SECOND), Ok((1, Origin::Stale))),
        ("expire", |_, clock| clock.advance(20 * SECOND), Err("away")),
        (
            "touch and advance",
            |cache, clock| {
                assert!(cache.touch(&1, Some(600 * SECOND)));
                clock.advance(20 * SECOND);
            },
            Ok((1, Origin::Cached)),
        ),
        ("insert", |cache, _| assert_eq!(cache.insert(1, 5), Ok(Some(1))), Ok((5, Origin::Cached))),
        ("remove", |cache, _| assert_eq!(cache.remove(&1), Some(1)), Err("away")),
        ("compute", |cache, _| assert!(cache.entry(1).and_compute(|_| Op::Remove).is_ok()), Err("away")),
        ("clear", |cache, _| cache.clear(), Err("away")),
        ("evict", |cache, _| evict(cache), Ok((1, Origin::Cached))),
        (
            "evict and age",
            |cache, clock| {
                evict(cache);
                clock.advance(4 * SECOND);
            },
            Ok((1, Origin::Stale)),
        ),
        (
            "evict and advance",
            |cache, clock| {
                evict(cache);
                clock.advance(20 * SECOND);
            },
            Err("away"),
        ),
        (
            "insert and evict",
            |cache, _| {
                assert_eq!(cache.insert(1, 5), Ok(Some(1)));
                evict(cache);
            },
            Err("away"),
        ),
    ];
    for (name, change, expected) in changes {
        let clock = ManualClock::new();
        let cache = cache(&clock);
        cache.insert(1, 1).unwrap();
        clock.advance(8 * SECOND);
        let found = cache.entry(1).refresh().or_try_fill_with(|| {
            change(&cache, &clock);
            Err("away")
        });
        assert_eq!(found.map(|found| (found.value, found.origin)), expected, "{name}");
    }
}

#[test]
fn a_stale_entry_counts_as_a_hit_only_if_it_is_returned() {
    type Call = fn(&Numbers, &ManualClock);
    /// Hits, misses and loads.
    type Counts = (u64, u64, u64);
    // The counts for an entry that is due, and for a stale one.
    let calls: [(&str, Call, [Counts; 2]); 5] = [
        ("load", |cache, _| assert_eq!(cache.entry(1).refresh().or_insert_with(|| 2), 2), [(1, 0, 1), (0, 1, 1)]),
        (
            "fail",
            |cache, _| assert_eq!(cache.entry(1).refresh().or_try_insert_with(|| Err(())), Ok(1)),
            [(1, 0, 0), (1, 0, 0)],
        ),
        (
            "fail late",
            |cache, clock| {
                let fails = || {
                    clock.advance(20 * SECOND);
                    Err(())
                };
                assert_eq!(cache.entry(1).refresh().or_try_insert_with(fails), Err(()));
            },
            [(1, 0, 0), (0, 1, 0)],
        ),
        (
            "panic",
            |cache, _| {
                let panics = || cache.entry(1).refresh().or_insert_with(|| panic!("the load's own fault"));
                assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
            },
            [(1, 0, 0), (0, 1, 0)],
        ),
        (
            "leave to another",
            |cache, _| {
                let refresh = ask(cache).expect("the entry is due");
                assert_eq!(cache.entry(1).refresh().or_insert_with(|| panic!("another caller reloads")), 1);
                drop(refresh);
            },
            [(2, 0, 0), (2, 0, 0)],
        ),
    ];
    for (name, call, expected) in calls {
        let counted = [8, 12].map(|seconds| {
            let clock = ManualClock::new();
            let cache = cache(&clock);
            cache.insert(1, 1).unwrap();
            clock.advance(SECOND * seconds);
            call(&cache, &clock);
            let stats = cache.stats();
            (stats.hits, stats.misses, stats.loads)
        });
        assert_eq!(counted, expected, "{name}");
    }
}

/// The steps are near those after which the count of a deadline means another time.
#[test]
fn an_old_value_is_not_returned_after_a_pause_of_weeks() {
    for days in [24, 25, 37, 49, 50, 62, 75, 99] {
        let clock = ManualClock::new();
        let cache = cache(&clock);
        cache.insert(1, 1).unwrap();
        clock.advance(9 * SECOND);
        let fails = || {
            clock.advance(SECOND * 86_400 * days);
            Err("away")
        };
        assert_eq!(cache.entry(1).refresh().or_try_insert_with(fails), Err("away"), "{days} days");
    }
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
            // A younger value than that of a reload in progress. Every third round does not wait,
            // so that the next insert meets such a reload.
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
