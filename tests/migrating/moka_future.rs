//! The rows of moka's `future::Cache`, and of the builder's asynchronous listener.

use std::time::Duration;

use lowwater::cache::{Computed, Op};
use lowwater::{ByteSize, Cache};

use crate::{numbers, runtime, texts, Outcome};

#[tokio::test]
async fn loads_of_tasks() -> Outcome {
    let cache = texts();
    // row: insert(k, v).await
    cache.insert("k".into(), "v".into())?;
    // row: get(&q).await, remove, invalidate
    assert_eq!((cache.get("k").as_deref(), cache.remove("k").as_deref(), cache.get("k")), (Some("v"), Some("v"), None));
    let cache = numbers(ByteSize::mib(1));
    // row: get_with(k, future), try_get_with(k, future)
    assert_eq!(cache.get_or_insert_with_async(1, async { 1 }).await, 1);
    assert_eq!(cache.try_get_or_insert_with_async(2, async { Err("no") }).await, Err("no"));
    let never = cache.get_or_insert_with_async(2, std::future::pending());
    let (late, other) = tokio::join!(tokio::time::timeout(Duration::from_millis(20), never), async {
        tokio::task::yield_now().await;
        cache.get_or_insert_with_async(2, async { 2 }).await
    });
    assert_eq!((late.is_err(), other), (true, 2), "the load of a dropped task is another's");
    // row: optionally_get_with(k, future)
    let load = async |found: Option<u64>| {
        let future = async { found };
        cache.try_get_or_insert_with_async(3, async { future.await.ok_or(()) }).await.ok()
    };
    assert_eq!((load(None).await, load(Some(3)).await, cache.get(&3)), (None, Some(3), Some(3)));
    // row: .._by_ref, .._if, entry(k).or_..insert_with..
    assert_eq!(cache.entry(4).or_insert_with_async(async { 4 }).await, 4);
    assert_eq!(cache.entry(5).or_try_insert_with_async(async { Err("no") }).await, Err("no"));
    assert_eq!(cache.get_or_insert_with_ref_async(&5, async { 5 }).await, 5);
    assert_eq!(cache.try_get_or_insert_with_ref_async(&5, async { Err("no") }).await, Ok(5));
    // row: run_pending_tasks().await, blocking()
    assert_eq!((cache.stats().loads, cache.footprint() > ByteSize::ZERO), (5, true));
    Ok(())
}

/// A value that is computed by a task from the present one: by `peek`, a wait, and `and_compute`,
/// which changes nothing if another value is there by then.
#[tokio::test]
async fn computations_that_wait() -> Outcome {
    // row: and_compute_with, and_try_compute_with, and_upsert_with
    let cache = numbers(ByteSize::mib(1));
    let next = async |seen: Option<u64>, is_late: bool| {
        if is_late {
            cache.insert(1, 100)?;
        }
        tokio::task::yield_now().await;
        Ok::<_, lowwater::InsertError<u64>>(seen.unwrap_or(0) + 1)
    };
    let compute = async |is_late: bool| -> Result<Computed<u64>, lowwater::InsertError<u64>> {
        let seen = cache.peek(&1);
        let new = next(seen, is_late).await?;
        cache.entry(1).and_compute(|there| match there.map(|there| *there.value()) == seen {
            true => Op::Put(new),
            false => Op::Keep,
        })
    };
    assert_eq!(compute(false).await?, Computed::Inserted);
    assert_eq!(compute(false).await?, Computed::Replaced(1));
    assert_eq!((compute(true).await?, cache.get(&1)), (Computed::Kept, Some(100)));
    // row: and_try_compute_if_nobody_else
    let mut calls = 0;
    cache.entry(1).and_compute(|there| {
        calls += 1;
        if calls == 1 {
            cache.insert(1, 200).unwrap();
        }
        Op::Put(there.map_or(0, |there| *there.value()) + 1)
    })?;
    assert_eq!((calls, cache.get(&1)), (2, Some(201)));
    Ok(())
}

#[tokio::test]
async fn a_listener_sends_to_a_task() -> Outcome {
    // row: async_eviction_listener
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let cache = Cache::<u64, u64>::builder(&runtime(ByteSize::mib(1)))
        .weigher(|_, _| ByteSize::ZERO)
        .eviction_listener(move |key, value, cause| sender.send((*key, *value, cause)).unwrap_or_default())
        .build()?;
    cache.insert(1, 2)?;
    cache.remove(&1);
    assert_eq!(receiver.recv().await, Some((1, 2, lowwater::RemovalCause::Explicit)));
    Ok(())
}
