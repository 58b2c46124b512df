//! One load for many tasks and threads that ask: nobody loads twice, nobody waits for one who gave up.
#![cfg(feature = "async")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use lowwater::{Bytes, Cache, Runtime};
use tokio::sync::{oneshot, Notify};
use tokio::task::JoinSet;

fn cache() -> Cache<u64, u64> {
    let runtime = Runtime::builder().budget(Bytes::mib(1)).build().unwrap();
    Cache::builder(&runtime).weigher(|_, _| Bytes::ZERO).build().unwrap()
}

#[tokio::test]
async fn many_tasks_and_a_thread_share_one_load() {
    let (cache, loads, go) = (cache(), Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    // Half of the tasks run on another thread.
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (here, there) = (tokio::runtime::Handle::current(), other.handle().clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let other = std::thread::spawn(move || other.block_on(stopped).is_err());
    let mut tasks = JoinSet::new();
    for number in 0..50 {
        let (cache, loads, go) = (cache.clone(), Arc::clone(&loads), Arc::clone(&go));
        let task = async move {
            let load = async {
                loads.fetch_add(1, Ordering::Relaxed);
                go.notified().await;
                7
            };
            cache.get_or_insert_with_async(1, load).await
        };
        tasks.spawn_on(task, [&here, &there][number % 2]);
    }
    while loads.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let waits = {
        let (cache, loads) = (cache.clone(), Arc::clone(&loads));
        std::thread::spawn(move || {
            cache.get_or_insert_with(1, || {
                loads.fetch_add(1, Ordering::Relaxed);
                7
            })
        })
    };
    tokio::time::sleep(Duration::from_millis(20)).await;
    go.notify_one();
    assert_eq!(tasks.join_all().await, vec![7; 50]);
    assert_eq!(waits.join().unwrap(), 7);
    assert_eq!(loads.load(Ordering::Relaxed), 1);
    assert_eq!(cache.get(&1), Some(7));
    drop(stop);
    assert!(other.join().unwrap(), "it ran until it was told to stop");
}

#[tokio::test]
async fn a_task_that_is_dropped_while_it_loads_leaves_the_load_to_another() {
    let cache = cache();
    let gone = tokio::spawn({
        let cache = cache.clone();
        async move { cache.get_or_insert_with_async(1, std::future::pending()).await }
    });
    tokio::task::yield_now().await;
    let waits = tokio::spawn({
        let cache = cache.clone();
        async move { cache.get_or_insert_with_async(1, async { 8 }).await }
    });
    tokio::task::yield_now().await;
    assert!(!waits.is_finished(), "it waits for the first");
    gone.abort();
    let value = tokio::time::timeout(Duration::from_secs(10), waits).await.expect("somebody wakes it").unwrap();
    assert_eq!(value, 8);
}

#[tokio::test]
async fn a_load_that_fails_is_told_to_its_own_and_tried_again_by_the_next() {
    let cache = cache();
    let failed = cache.try_get_or_insert_with_async(1, async { "no".parse::<u64>() }).await;
    assert!(failed.is_err());
    assert_eq!(cache.try_get_or_insert_with(1, || "no".parse::<u64>()).ok(), None);
    assert!(cache.is_empty());
    assert_eq!(cache.entry(1).or_try_insert_with_async(async { "9".parse::<u64>() }).await, Ok(9));
    assert_eq!(cache.get(&1), Some(9));
}

#[tokio::test]
async fn a_load_that_panics_is_tried_again_by_one_who_waits() {
    let (cache, go) = (cache(), Arc::new(Notify::new()));
    let fails = tokio::spawn({
        let (cache, go) = (cache.clone(), Arc::clone(&go));
        async move {
            let load = async {
                go.notified().await;
                panic!("its own fault")
            };
            cache.get_or_insert_with_async(1, load).await
        }
    });
    tokio::task::yield_now().await;
    let waits = tokio::spawn({
        let cache = cache.clone();
        async move { cache.get_or_insert_with_async(1, async { 8 }).await }
    });
    tokio::task::yield_now().await;
    go.notify_one();
    assert!(fails.await.unwrap_err().is_panic());
    let value = tokio::time::timeout(Duration::from_secs(10), waits).await.expect("somebody wakes it").unwrap();
    assert_eq!((value, cache.get(&1)), (8, Some(8)));
}
