//! Reloads by tasks, and awaited loads that return where each value came from.
//!
//! Time is a [`ManualClock`], so that an entry is due, stale or gone when a test says so. Needs the
//! feature `async`.
//!
//! A new way to reload gets a test in which its future is dropped, and one in which it fails.
#![cfg(feature = "async")]

use std::sync::Arc;
use std::time::Duration;

use lowwater::cache::{Origin, RejectReason, TenantKey};
use lowwater::runtime::ManualClock;
use lowwater::{ByteSize, Cache, Runtime};
use tokio::sync::Notify;

/// A value that the cache of [`refreshing`] rejects.
const TOO_LARGE: u64 = u64::MAX;

/// Returns a cache with entries that are due for a reload after 7 s, stale after 10 s and gone
/// after 15 s.
fn refreshing(clock: &ManualClock) -> Cache<u64, u64> {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).clock(clock).build().unwrap();
    Cache::builder(&runtime)
        .weigher(|_, value| if *value == TOO_LARGE { ByteSize::mib(2) } else { ByteSize::ZERO })
        .time_to_live(Duration::from_secs(10))
        .refresh_ahead(Duration::from_secs(3))
        .stale_while_revalidate(Duration::from_secs(5))
        .build()
        .unwrap()
}

#[tokio::test]
async fn one_task_reloads_and_the_others_get_the_old_value() {
    let clock = ManualClock::new();
    let (cache, go) = (refreshing(&clock), Arc::new(Notify::new()));
    for seconds in [8, 12] {
        cache.insert(1, 1).unwrap();
        clock.advance(Duration::from_secs(seconds));
        let reloads = tokio::spawn({
            let (cache, go) = (cache.clone(), Arc::clone(&go));
            async move {
                let load = async {
                    go.notified().await;
                    2
                };
                cache.entry(1).refresh().or_insert_with_async(load).await
            }
        });
        tokio::task::yield_now().await;
        for _ in 0..10 {
            assert_eq!(cache.entry(1).refresh().or_insert_with_async(async { panic!("a second reload") }).await, 1);
            assert!(cache.get_or_refresh(&1).is_some_and(|hit| hit.value == 1 && hit.refresh.is_none()));
        }
        // A plain load of a stale entry follows the reload.
        let waits = tokio::spawn({
            let cache = cache.clone();
            async move { cache.get_or_insert_with_async(1, async { panic!("a second load") }).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(waits.is_finished(), seconds == 8, "a live entry is no miss");
        go.notify_one();
        assert_eq!(reloads.await.unwrap(), 2);
        assert_eq!(waits.await.unwrap(), if seconds == 8 { 1 } else { 2 });
        assert_eq!(cache.get(&1), Some(2));
    }
}

#[tokio::test]
async fn a_reload_that_is_dropped_or_fails_is_tried_again_a_second_later() {
    let clock = ManualClock::new();
    let cache = refreshing(&clock);
    cache.insert(1, 1).unwrap();
    clock.advance(Duration::from_secs(8));
    let reload = |cache: &Cache<u64, u64>| cache.get_or_refresh(&1).unwrap().refresh;
    // Dropped half way, and before the first poll.
    let half = tokio::spawn(reload(&cache).unwrap().load_with_async(std::future::pending()));
    tokio::task::yield_now().await;
    half.abort();
    assert!(half.await.unwrap_err().is_cancelled());
    assert!(reload(&cache).is_none(), "tried again at once");
    clock.advance(Duration::from_secs(1));
    drop(reload(&cache).unwrap().load_with_async(async { 2 }));
    assert!(reload(&cache).is_none(), "tried again at once");
    clock.advance(Duration::from_secs(1));
    // Stale by now.
    assert_eq!(cache.entry(1).refresh().or_try_insert_with_async(async { Err("away") }).await, Ok(1));
    clock.advance(Duration::from_secs(1));
    assert_eq!(reload(&cache).unwrap().try_load_with_async(async { Err::<u64, _>("away") }).await, Err("away"));
    clock.advance(Duration::from_secs(1));
    // If a reload is dropped, its follower loads.
    let half = tokio::spawn(reload(&cache).unwrap().load_with_async(std::future::pending()));
    tokio::task::yield_now().await;
    let waits = tokio::spawn({
        let cache = cache.clone();
        async move { cache.get_or_insert_with_async(1, async { 3 }).await }
    });
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    half.abort();
    assert_eq!(waits.await.unwrap(), 3);
    assert_eq!(cache.get(&1), Some(3));
}

#[tokio::test]
async fn a_reload_that_panics_leaves_the_old_value_and_the_next_one_tells_why_it_was_rejected() {
    let clock = ManualClock::new();
    let cache = refreshing(&clock);
    cache.insert(1, 1).unwrap();
    clock.advance(Duration::from_secs(8));
    let refresh = |cache: &Cache<u64, u64>| cache.get_or_refresh(&1).unwrap().refresh;
    let panics = async { panic!("the load's own fault") };
    assert!(tokio::spawn(refresh(&cache).unwrap().load_with_async(panics)).await.unwrap_err().is_panic());
    assert!(refresh(&cache).is_none(), "tried again at once");
    assert_eq!(cache.get(&1), Some(1));
    clock.advance(Duration::from_secs(1));
    let reloads = refresh(&cache).unwrap().try_fill_with_async(async { Ok::<_, ()>(TOO_LARGE) });
    let rejected = tokio::spawn(reloads).await.unwrap().unwrap();
    assert!(matches!(rejected.origin, Origin::Rejected(RejectReason::TooLarge { .. })), "{:?}", rejected.origin);
    assert_eq!((rejected.value, cache.get(&1)), (TOO_LARGE, Some(1)));
    clock.advance(Duration::from_secs(1));
    // Stale by now. An entry's reload returns the reason, too.
    clock.advance(Duration::from_secs(1));
    let filled = cache.entry(1).refresh().or_try_fill_with_async(async { Ok::<_, ()>(TOO_LARGE) }).await.unwrap();
    assert!(matches!(filled.origin, Origin::Rejected(_)), "{:?}", filled.origin);
    clock.advance(Duration::from_secs(1));
    let mut is_polled = false;
    let fails = async {
        is_polled = true;
        Err::<u64, _>("away")
    };
    let failed = cache.entry(1).refresh().or_try_fill_with_async(fails).await.unwrap();
    assert_eq!((failed.value, failed.origin, is_polled), (1, Origin::Stale, true));
}

#[tokio::test]
async fn a_task_whose_load_fails_gets_the_value_that_the_entry_has_then() {
    let clock = ManualClock::new();
    let cache = refreshing(&clock);
    let due = || {
        cache.insert(1, 1).unwrap();
        clock.advance(Duration::from_secs(8));
        cache.entry(1).refresh()
    };
    let removed = async {
        cache.remove(&1);
        Err("away")
    };
    assert_eq!(due().or_try_insert_with_async(removed).await, Err("away"));
    clock.advance(Duration::from_secs(1));
    let touched = async {
        assert!(cache.touch(&1, Some(Duration::from_secs(600))));
        clock.advance(Duration::from_secs(20));
        Err::<u64, _>("away")
    };
    let filled = due().or_try_fill_with_async(touched).await.unwrap();
    assert_eq!((filled.value, filled.origin), (1, Origin::Cached));
}

#[tokio::test]
async fn a_stale_entry_that_is_reloaded_counts_as_a_miss() {
    let clock = ManualClock::new();
    let cache = refreshing(&clock);
    let counts = || (cache.stats().hits, cache.stats().misses, cache.stats().loads);
    let stale = || {
        cache.insert(1, 1).unwrap();
        clock.advance(Duration::from_secs(12));
        cache.entry(1).refresh()
    };
    assert_eq!((stale().or_insert_with_async(async { 2 }).await, counts()), (2, (0, 1, 1)));
    assert_eq!(stale().or_try_insert_with_async(async { Err(()) }).await, Ok(1));
    assert_eq!(counts(), (1, 1, 1));
    // Dropped half way.
    clock.advance(Duration::from_secs(1));
    let half = stale().or_insert_with_async(std::future::pending());
    assert!(tokio::time::timeout(Duration::from_millis(1), half).await.is_err());
    assert_eq!(counts(), (1, 2, 1));
}

#[tokio::test]
async fn the_origin_of_an_awaited_value_is_told() {
    let cache = refreshing(&ManualClock::new());
    let load = |value: u64| async move { Ok::<_, &str>(value) };
    let fill = |key, value| cache.entry(key).or_try_fill_with_async(load(value));
    assert_eq!(fill(1, 1).await.unwrap().origin, Origin::Loaded);
    assert_eq!(fill(1, 2).await.unwrap().origin, Origin::Cached);
    let rejected = fill(2, TOO_LARGE).await.unwrap();
    assert!(matches!(rejected.origin, Origin::Rejected(RejectReason::TooLarge { .. })), "{:?}", rejected.origin);
    assert_eq!((rejected.value, cache.get(&2)), (TOO_LARGE, None));
    let outrun = cache.entry(3).or_try_fill_with_async(async {
        cache.insert(3, 3).unwrap();
        Ok::<_, &str>(4)
    });
    assert_eq!((outrun.await.unwrap().origin, cache.get(&3)), (Origin::Outrun, Some(3)));
    assert_eq!(cache.entry(5).or_try_fill_with_async(async { Err::<u64, _>("no") }).await, Err("no"));
    let (go, leads) = (Arc::new(Notify::new()), cache.clone());
    let leader = tokio::spawn({
        let go = Arc::clone(&go);
        async move {
            let load = async {
                go.notified().await;
                Ok::<_, ()>(6)
            };
            leads.entry(6).or_try_fill_with_async(load).await
        }
    });
    tokio::task::yield_now().await;
    let follows = cache.clone();
    let follower = tokio::spawn(async move { follows.entry(6).or_try_fill_with_async(async { Ok::<_, ()>(7) }).await });
    tokio::task::yield_now().await;
    go.notify_one();
    assert_eq!(leader.await.unwrap().unwrap().origin, Origin::Loaded);
    let shared = follower.await.unwrap().unwrap();
    assert_eq!((shared.value, shared.origin), (6, Origin::Shared));
}

#[tokio::test]
async fn absent_keys_are_awaited_by_one_load_each_once() {
    let cache = refreshing(&ManualClock::new());
    cache.insert(2, 2).unwrap();
    let load = |keys: Vec<u64>| async move {
        assert_eq!(keys, [5, 1]);
        tokio::task::yield_now().await;
        Ok::<_, &str>(vec![50, TOO_LARGE])
    };
    // The future may be sent to another thread.
    let task = tokio::spawn({
        let cache = cache.clone();
        async move { cache.get_or_fill_many_async([5, 2, 1, 5], load).await }
    });
    let filled = task.await.unwrap().unwrap();
    assert_eq!([0, 1, 2, 3].map(|at| filled[at].value), [50, 2, TOO_LARGE, 50]);
    assert_eq!([0, 1, 3].map(|at| filled[at].origin.clone()), [Origin::Loaded, Origin::Cached, Origin::Loaded]);
    assert!(matches!(filled[2].origin, Origin::Rejected(_)));
    assert_eq!([5, 1].map(|key| cache.get(&key)), [Some(50), None]);
    let all = cache.get_or_load_many_async([2, 5], |_| async { Err("not called") }).await;
    assert_eq!(all, Ok(vec![2, 50]));
    assert_eq!(cache.get_or_load_many_async([2, 7], |_| async { Err("away") }).await, Err("away"));
    // Dropped half way, nothing is inserted, and the key is free for others.
    let half = cache.get_or_load_many_async([7], |_| std::future::pending::<Result<_, ()>>());
    let is_over = tokio::time::timeout(Duration::from_millis(1), half).await;
    assert!(is_over.is_err());
    assert_eq!((cache.len(), cache.get_or_insert_with_async(7, async { 8 }).await), (2, 8));
}

#[tokio::test]
async fn a_tenants_absent_keys_are_awaited_and_charged_to_the_tenant() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    let cache = Cache::<TenantKey<String>, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let group = runtime.group("tenant").unwrap();
    let tenant = cache.tenant(&group).unwrap();
    tenant.insert("a".into(), 1).unwrap();
    let load = |keys: Vec<String>| async move { Ok::<_, ()>(keys.iter().map(|key| key.len() as u64).collect()) };
    let keys = || ["a", "bb", "ccc"].map(String::from);
    assert_eq!(tenant.get_or_load_many_async(keys(), load).await, Ok(vec![1, 2, 3]));
    let filled = tenant.get_or_fill_many_async(keys(), load).await.unwrap();
    assert!(filled.iter().all(|filled| filled.origin == Origin::Cached));
    assert_eq!(cache.len_of(&group), 3);
}

#[tokio::test]
async fn a_refresh_may_be_sent_to_a_task() {
    let clock = ManualClock::new();
    let cache = refreshing(&clock);
    cache.insert(1, 1).unwrap();
    clock.advance(Duration::from_secs(8));
    let hit = cache.get_or_refresh(&1).unwrap();
    let reloads = tokio::spawn(hit.refresh.unwrap().try_load_with_async(async { Ok::<_, ()>(2) }));
    assert_eq!((hit.value, cache.get(&1)), (1, Some(1)));
    assert_eq!((reloads.await.unwrap(), cache.get(&1)), (Ok(2), Some(2)));
    // A reload on another thread, whose executor ends before the reload does.
    clock.advance(Duration::from_secs(8));
    let refresh = cache.get_or_refresh(&1).unwrap().refresh.unwrap();
    let other = std::thread::spawn(|| {
        let executor = tokio::runtime::Builder::new_current_thread().build().unwrap();
        executor.spawn(refresh.load_with_async(std::future::pending()));
        executor.block_on(tokio::task::yield_now());
    });
    other.join().unwrap();
    clock.advance(Duration::from_secs(3));
    assert_eq!(cache.get_or_insert_with_async(1, async { 3 }).await, 3);
}
