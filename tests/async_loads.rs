//! One load for many concurrent tasks and threads: no key is loaded twice, and no caller waits for
//! a load that was abandoned.
//!
//! Each test uses its own executor or polls by hand, so that the order of the polls is chosen.
//! Needs the feature `async`.
//!
//! A new kind of waiting gets a test in which its future is dropped.
#![cfg(feature = "async")]

#[path = "common/deadline.rs"]
mod deadline;

use deadline::in_time;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use lowwater::cache::TenantKey;
use lowwater::{ByteSize, Cache, Runtime};
use tokio::sync::{oneshot, Notify};
use tokio::task::JoinSet;

fn cache() -> Cache<u64, u64> {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    Cache::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap()
}

#[tokio::test]
async fn a_tenants_load_by_reference_is_charged_to_the_tenant_and_counted_once() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    let cache = Cache::<TenantKey<String>, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let group = runtime.group("tenant").unwrap();
    let tenant = cache.tenant(&group).unwrap();
    for _ in 0..3 {
        assert_eq!(tenant.get_or_insert_with_ref_async("a", async { 7 }).await, 7);
    }
    assert_eq!(tenant.try_get_or_insert_with_ref_async("b", async { Err("no") }).await, Err("no"));
    assert_eq!(tenant.try_get_or_insert_with_ref_async("b", async { Ok::<_, &str>(8) }).await, Ok(8));
    assert_eq!((cache.stats().hits, cache.stats().misses, cache.len_of(&group)), (2, 3, 2));
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
    assert!(other.join().unwrap(), "it ran until it was stopped");
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
    let value = tokio::time::timeout(Duration::from_secs(60), waits).await.expect("the waiter is woken").unwrap();
    assert_eq!(value, 8);
}

#[tokio::test]
async fn a_load_by_reference_is_awaited_only_if_the_key_is_absent() {
    let cache = cache();
    assert_eq!(cache.get_or_insert_with_ref_async(&1, async { 7 }).await, 7);
    assert_eq!(cache.get_or_insert_with_ref_async(&1, async { panic!("it is there") }).await, 7);
    let failed = cache.try_get_or_insert_with_ref_async(&2, async { Err("no") }).await;
    assert_eq!((failed, cache.get(&2)), (Err("no"), None));
    assert_eq!(cache.try_get_or_insert_with_ref_async(&2, async { Ok::<_, &str>(8) }).await, Ok(8));
    let there = cache.try_get_or_insert_with_ref_async::<_, &str>(&2, async { panic!("it is there") }).await;
    assert_eq!((there, cache.len()), (Ok(8), 2));
}

#[tokio::test]
async fn a_failed_load_returns_its_error_and_the_next_caller_loads() {
    let cache = cache();
    let failed = cache.try_get_or_insert_with_async(1, async { "no".parse::<u64>() }).await;
    assert!(failed.is_err());
    assert_eq!(cache.try_get_or_insert_with(1, || "no".parse::<u64>()).ok(), None);
    assert!(cache.is_empty());
    assert_eq!(cache.entry(1).or_try_insert_with_async(async { "9".parse::<u64>() }).await, Ok(9));
    assert_eq!(cache.get(&1), Some(9));
}

#[tokio::test]
async fn a_panicking_load_is_repeated_by_a_follower() {
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
    let value = tokio::time::timeout(Duration::from_secs(60), waits).await.expect("the waiter is woken").unwrap();
    assert_eq!((value, cache.get(&1)), (8, Some(8)));
}

type Task = std::pin::Pin<Box<dyn std::future::Future<Output = u64> + Send>>;

/// An executor without a queue: a waker polls its task at once, on the waking thread.
struct Inline {
    task: std::sync::Mutex<Option<Task>>,
    done: Arc<AtomicUsize>,
}

impl Inline {
    fn spawn(task: Task, done: &Arc<AtomicUsize>) -> Arc<Self> {
        let inline = Arc::new(Self { task: std::sync::Mutex::new(Some(task)), done: Arc::clone(done) });
        Arc::clone(&inline).poll();
        inline
    }

    fn poll(self: Arc<Self>) {
        let Some(mut task) = self.task.lock().unwrap().take() else { return };
        let waker = std::task::Waker::from(Arc::clone(&self));
        if task.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending() {
            *self.task.lock().unwrap() = Some(task);
        } else {
            self.done.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl std::task::Wake for Inline {
    fn wake(self: Arc<Self>) {
        self.poll();
    }
}

/// Returns a load that blocks its thread until something is sent, and the sender.
fn told() -> (std::sync::mpsc::Sender<()>, impl FnOnce() -> u64 + Send) {
    let (tell, wait) = std::sync::mpsc::channel::<()>();
    (tell, move || {
        wait.recv().unwrap();
        7
    })
}

/// Starts a load of key 1 on a thread, and returns when it is in flight.
fn load_on_a_thread(cache: &Cache<u64, u64>) -> (std::sync::mpsc::Sender<()>, std::thread::JoinHandle<u64>) {
    let (tell, load) = told();
    let (cache, (begin, begun)) = (cache.clone(), std::sync::mpsc::channel());
    let thread = std::thread::spawn(move || {
        cache.get_or_insert_with(1, || {
            begin.send(()).unwrap();
            load()
        })
    });
    begun.recv().unwrap();
    (tell, thread)
}

#[test]
fn wakers_that_poll_at_once_do_not_deadlock() {
    in_time(|| {
        let (cache, done) = (cache(), Arc::new(AtomicUsize::new(0)));
        let (tell, thread) = load_on_a_thread(&cache);
        for _ in 0..10 {
            let cache = cache.clone();
            let task = async move {
                let value = cache.get_or_insert_with_async(1, async { 8 }).await;
                cache.remove(&1);
                value.min(cache.get_or_insert_with_async(1, async { 9 }).await)
            };
            let _task = Inline::spawn(Box::pin(task), &done);
        }
        assert_eq!(done.load(Ordering::SeqCst), 0);
        tell.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), 7);
        assert_eq!(done.load(Ordering::SeqCst), 10, "all were woken");
    });
}

/// A waker that panics when it is woken, and that uses the cache when it is dropped: no lock of the
/// load may be held in either call.
struct Rude(Cache<u64, u64>, AtomicUsize);

impl std::task::Wake for Rude {
    fn wake(self: Arc<Self>) {
        panic!("the waker's own fault");
    }
}

impl Drop for Rude {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.remove(&1);
        assert_eq!(self.0.get_or_insert_with(2, || 2), 2);
    }
}

#[test]
fn a_panicking_waker_affects_no_other_follower_or_the_leader() {
    in_time(|| {
        let (cache, done) = (cache(), Arc::new(AtomicUsize::new(0)));
        let (tell, thread) = load_on_a_thread(&cache);
        let mut rude: Vec<Task> = Vec::new();
        for _ in 0..3 {
            let (theirs, waits) = (cache.clone(), cache.clone());
            let mut task: Task = Box::pin(async move { waits.get_or_insert_with_async(1, async { 8 }).await });
            let waker = std::task::Waker::from(Arc::new(Rude(theirs, AtomicUsize::new(0))));
            assert!(task.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
            rude.push(task);
            let cache = cache.clone();
            let polite = async move { cache.get_or_insert_with_async(1, async { 8 }).await };
            let _task = Inline::spawn(Box::pin(polite), &done);
        }
        tell.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), 7, "the loader is not to blame");
        assert_eq!(done.load(Ordering::SeqCst), 3, "the others are woken");
        drop(rude);
    });
}

#[test]
fn a_waiting_task_has_one_waker_and_none_after_its_drop() {
    in_time(|| {
        let cache = cache();
        let (tell, thread) = load_on_a_thread(&cache);
        let waits = cache.clone();
        let mut task: Task = Box::pin(async move { waits.get_or_insert_with_async(1, async { 8 }).await });
        let wakers: Vec<_> = (0..5).map(|_| Arc::new(Rude(cache.clone(), AtomicUsize::new(0)))).collect();
        for waker in &wakers {
            let waker = std::task::Waker::from(Arc::clone(waker));
            for _ in 0..3 {
                assert!(task.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
            }
        }
        let kept = |wakers: &[Arc<Rude>]| wakers.iter().map(|waker| Arc::strong_count(waker) - 1).sum::<usize>();
        assert_eq!((kept(&wakers), kept(&wakers[4..])), (1, 1), "the last one");
        // Another thread drops the task, during unwinding.
        let dropped = std::thread::spawn(move || {
            let _task = task;
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(dropped.join().is_err());
        assert_eq!(kept(&wakers), 0);
        tell.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), 7);
    });
}

#[tokio::test]
async fn a_task_that_requests_its_own_key_loads_alone() {
    let cache = cache();
    let load = async {
        let inner = cache.get_or_insert_with_async(1, async { 1 }).await;
        inner + cache.get_or_insert_with(1, || 100) + 1
    };
    let loaded = tokio::time::timeout(Duration::from_secs(60), cache.get_or_insert_with_async(1, load)).await;
    assert!(loaded.expect("the load does not wait for itself") > 1);
    assert!(cache.get(&1).is_some());
}

#[tokio::test]
async fn tasks_that_request_each_others_keys_do_not_deadlock() {
    let cache = cache();
    let together = Arc::new(tokio::sync::Barrier::new(3));
    let mut tasks = JoinSet::new();
    for at in 0..3_u64 {
        let (cache, together) = (cache.clone(), Arc::clone(&together));
        tasks.spawn(async move {
            let load = async {
                together.wait().await;
                // The other task's key is requested inside a second load, so that the cycle goes
                // through two loads of each task.
                cache
                    .get_or_insert_with_async(10 + at, async {
                        cache.get_or_insert_with_async((at + 1) % 3, async { 5 }).await
                    })
                    .await
            };
            cache.get_or_insert_with_async(at, load).await
        });
    }
    let values = tokio::time::timeout(Duration::from_secs(60), tasks.join_all()).await.expect("no deadlock");
    assert_eq!(values, [5; 3]);
}

#[tokio::test]
async fn a_thread_and_a_task_that_request_each_others_keys_do_not_deadlock() {
    let cache = cache();
    // Each side requests the other's key when both are inside their loads.
    let ((first, first_begun), (second, second_begun)) = (oneshot::channel(), oneshot::channel());
    let thread = {
        let cache = cache.clone();
        std::thread::spawn(move || {
            cache.get_or_insert_with(1, || {
                first.send(()).unwrap();
                second_begun.blocking_recv().unwrap();
                cache.get_or_insert_with(2, || 20)
            })
        })
    };
    first_begun.await.unwrap();
    let load = async {
        second.send(()).unwrap();
        cache.get_or_insert_with_async(1, async { 10 }).await
    };
    let value = tokio::time::timeout(Duration::from_secs(60), cache.get_or_insert_with_async(2, load)).await;
    assert!(value.is_ok(), "no deadlock");
    tokio::task::spawn_blocking(move || thread.join().unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_task_whose_load_fails_counts_one_miss() {
    let (cache, mut tasks) = (cache(), JoinSet::new());
    for at in 0..8 {
        let cache = cache.clone();
        tasks.spawn(async move {
            // All other tasks follow the first one, then the second one, and so on; the last one's
            // value is shared.
            let load = async {
                tokio::task::yield_now().await;
                if at < 5 {
                    Err("away")
                } else {
                    Ok(at)
                }
            };
            cache.try_get_or_insert_with_async(1, load).await
        });
    }
    let results = tokio::time::timeout(Duration::from_secs(60), tasks.join_all()).await.expect("each one is woken");
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 5);
    assert_eq!((cache.stats().hits, cache.stats().misses, cache.stats().loads), (0, 8, 1));
}

#[tokio::test]
async fn a_removal_leaves_the_value_to_the_callers_that_wait_already() {
    let (cache, go) = (&cache(), &Notify::new());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let load = async {
        go.notified().await;
        1
    };
    let mut leads = std::pin::pin!(cache.get_or_insert_with_async(1, load));
    let mut waits = std::pin::pin!(cache.get_or_insert_with_async(1, async { 2 }));
    assert!(leads.as_mut().poll(&mut context).is_pending());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    assert_eq!(cache.remove(&1), None);
    let later = tokio::time::timeout(Duration::from_secs(60), cache.get_or_insert_with_async(1, async { 3 })).await;
    assert_eq!(later, Ok(3));
    go.notify_one();
    assert_eq!((leads.await, waits.await, cache.get(&1)), (1, 1, Some(3)));
}

/// Polls a task once, outside of all loads.
fn poll_once(task: &mut Task) -> std::task::Poll<u64> {
    task.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
}

/// Polls a task once, in the load of another key, and returns it from there.
async fn poll_in_a_load(mut task: Task) -> Task {
    std::future::poll_fn(|context| std::task::Poll::Ready(task.as_mut().poll(context).is_pending())).await;
    task
}

#[test]
fn a_cycle_through_a_future_that_was_polled_elsewhere_is_detected() {
    // The load of 1 is begun outside, and awaited by the load of 2 then.
    let first = cache();
    let (one, two) = (first.clone(), first.clone());
    let mut prefetch: Task = Box::pin(async move {
        let load = async {
            tokio::task::yield_now().await;
            one.get_or_insert_with_async(2, async { 20 }).await + 1
        };
        one.get_or_insert_with_async(1, load).await
    });
    assert!(poll_once(&mut prefetch).is_pending());
    let mut awaits: Task = Box::pin(async move { two.get_or_insert_with_async(2, prefetch).await });
    assert_eq!((0..10).find_map(|_| ready(poll_once(&mut awaits))), Some(21));
    assert_eq!((first.get(&1), first.get(&2)), (Some(21), Some(20)), "the value that was inserted first stays");

    // The load of 1 waits for the load of 2 before that one awaits it.
    let second = cache();
    let (one, two) = (second.clone(), second.clone());
    let (give, given) = oneshot::channel::<Task>();
    let mut awaits: Task =
        Box::pin(async move { two.get_or_insert_with_async(2, async { given.await.unwrap().await }).await });
    assert!(poll_once(&mut awaits).is_pending());
    let mut waits: Task = Box::pin(async move {
        let load = async { one.get_or_insert_with_async(2, async { 20 }).await + 1 };
        one.get_or_insert_with_async(1, load).await
    });
    assert!(poll_once(&mut waits).is_pending());
    assert!(give.send(waits).is_ok());
    assert_eq!((0..10).find_map(|_| ready(poll_once(&mut awaits))), Some(21));
}

#[test]
fn a_future_that_has_left_a_load_closes_no_cycle() {
    // Whether the future that the load of 1 polls leads the load of 2, or follows it.
    for leads in [true, false] {
        let cache = cache();
        let go = Arc::new(Notify::new());
        let (inner, asks, goes) = (cache.clone(), cache.clone(), Arc::clone(&go));
        let two = move || -> Task {
            let (cache, go) = (inner.clone(), Arc::clone(&goes));
            Box::pin(async move {
                let load = async {
                    go.notified().await;
                    cache.get_or_insert_with_async(1, async { panic!("loads alone needlessly") }).await + 1
                };
                cache.get_or_insert_with_async(2, load).await
            })
        };
        let mut leader = (!leads).then(&two);
        if let Some(leader) = &mut leader {
            assert!(poll_once(leader).is_pending());
        }
        let (give, mut given) = oneshot::channel::<Task>();
        let (done, is_done) = oneshot::channel();
        let leaves = two();
        let mut one: Task = Box::pin(async move {
            let load = async {
                assert!(give.send(poll_in_a_load(leaves).await).is_ok());
                is_done.await.unwrap()
            };
            asks.get_or_insert_with_async(1, load).await
        });
        assert!(poll_once(&mut one).is_pending());
        let mut left = given.try_recv().unwrap();
        assert!(poll_once(&mut left).is_pending());
        go.notify_one();
        // The load of 2 waits for the load of 1.
        assert!(poll_once(leader.as_mut().unwrap_or(&mut left)).is_pending());
        done.send(10).unwrap();
        assert_eq!(ready(poll_once(&mut one)), Some(10));
        assert_eq!(leader.as_mut().and_then(|leader| ready(poll_once(leader))), leader.is_some().then_some(11));
        assert_eq!(ready(poll_once(&mut left)), Some(11));
    }
}

/// Returns the value of a poll, if it is ready.
fn ready(poll: std::task::Poll<u64>) -> Option<u64> {
    match poll {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn a_leaked_load_blocks_only_its_key() {
    let cache = cache();
    let leaked = cache.clone();
    let mut task: Task = Box::pin(async move { leaked.get_or_insert_with_async(1, std::future::pending()).await });
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(task.as_mut().poll(&mut context).is_pending());
    std::mem::forget(task);
    assert_eq!(cache.get_or_insert_with_async(2, async { 2 }).await, 2);
    // A waiting caller may give up, and an insert supplies the value for all later callers.
    let waits = tokio::time::timeout(Duration::from_millis(50), cache.get_or_insert_with_async(1, async { 1 })).await;
    assert!(waits.is_err());
    cache.insert(1, 3).unwrap();
    assert_eq!(cache.get_or_insert_with_async(1, async { 1 }).await, 3);
}

#[tokio::test]
async fn a_load_may_move_between_threads_and_be_dropped_by_another() {
    let cache = cache();
    let (loads, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    for is_dropped in [true, false] {
        let (theirs, loads, goes) = (cache.clone(), Arc::clone(&loads), Arc::clone(&go));
        let mut task: Task = Box::pin(async move {
            theirs
                .get_or_insert_with_async(1, async {
                    loads.fetch_add(1, Ordering::SeqCst);
                    goes.notified().await;
                    4
                })
                .await
        });
        let begun = std::thread::spawn(move || {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(task.as_mut().poll(&mut context).is_pending());
            task
        });
        let task = begun.join().unwrap();
        if is_dropped {
            std::thread::spawn(move || drop(task)).join().unwrap();
            continue;
        }
        // A task on this thread, which is in no load of its own, waits.
        let waits = tokio::spawn({
            let cache = cache.clone();
            async move { cache.get_or_insert_with_async(1, async { 5 }).await }
        });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        go.notify_one();
        assert_eq!(
            tokio::time::timeout(Duration::from_secs(60), task).await.expect("the load continues on this thread"),
            4
        );
        assert_eq!(waits.await.unwrap(), 4);
    }
}

/// Requests key 1 when it is dropped, as a part of the future that loads key 1.
struct UsesItsKey(Cache<u64, u64>);

impl Drop for UsesItsKey {
    fn drop(&mut self) {
        assert_eq!(self.0.get_or_insert_with(1, || 5), 5);
    }
}

#[test]
fn a_load_that_is_dropped_may_use_its_key() {
    in_time(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let cache = cache();
            let uses = UsesItsKey(cache.clone());
            let load = async move {
                let _uses = uses;
                std::future::pending().await
            };
            let asks = tokio::spawn(async move { cache.get_or_insert_with_async(1, load).await });
            tokio::task::yield_now().await;
            asks.abort();
            assert!(asks.await.unwrap_err().is_cancelled());
        });
    });
}
