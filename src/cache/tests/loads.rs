//! Loads that are started inside of other loads, as by a listener that runs while a load's value is
//! published.
//!
//! Such loads could wait for each other. A deadlock would hang the tests, so each has a time limit.
//!
//! A change that adds a way to load must add a test in which two loads would wait for each other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;

use super::without_reclaimer;
use crate::{ByteSize, Cache, RemovalCause};

/// The key of the load whose publishing evicts entries.
const PUBLISHED: u64 = 1 << 40;
/// The key that another thread is loading meanwhile.
const ELSEWHERE: u64 = 2 << 40;
/// The time limit: loads that wait for each other never end.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A listener that runs while its thread publishes a loaded value does not wait for other threads'
/// loads: it loads a key by itself, even if another thread is loading that key. That thread may be
/// a follower of the published load, which waits until the listener has returned.
#[test]
fn a_listener_of_a_publishing_thread_waits_for_no_load() {
    // So this thread evicts.
    let runtime = without_reclaimer(ByteSize::kib(64)).build().unwrap();
    // The cache, for its own listener.
    let shared_cache = Arc::new(Mutex::new(None::<Cache<u64, Vec<u8>>>));
    let listener_calls = Arc::new(AtomicUsize::new(0));
    let (listener_cache, count) = (Arc::clone(&shared_cache), Arc::clone(&listener_calls));
    let cache = Cache::<u64, Vec<u8>>::builder(&runtime)
        .weigher(|_, value| ByteSize::new(value.capacity() as u64))
        .eviction_listener(move |_, _, cause| {
            let cache = listener_cache.lock().unwrap().clone();
            let Some(cache) = cache.filter(|_| cause == RemovalCause::Size) else { return };
            for key in [PUBLISHED, ELSEWHERE] {
                assert_eq!(cache.get_or_insert_with(key, || vec![2]), vec![2]);
            }
            count.fetch_add(1, Ordering::Relaxed);
        })
        .build()
        .unwrap();
    (0..1_000).for_each(|key| drop(cache.insert(key, vec![0; 100])));

    let ((begun, has_begun), (go, may_go)) = (mpsc::channel(), mpsc::channel());
    let elsewhere = cache.clone();
    // Ends after the load of `PUBLISHED` is published.
    let elsewhere = std::thread::spawn(move || {
        elsewhere.get_or_insert_with(ELSEWHERE, || {
            begun.send(()).unwrap();
            may_go.recv().unwrap();
            vec![3]
        })
    });
    has_begun.recv_timeout(TIME_LIMIT).unwrap();

    *shared_cache.lock().unwrap() = Some(cache.clone());
    let (done, is_done) = mpsc::channel();
    let publishing = cache.clone();
    let publishing = std::thread::spawn(move || {
        let loaded = publishing.get_or_insert_with(PUBLISHED, || vec![1; 8_000]);
        done.send(loaded.len()).unwrap();
    });
    assert_eq!(is_done.recv_timeout(TIME_LIMIT), Ok(8_000), "not the value of the own load");
    publishing.join().unwrap();
    assert!(listener_calls.load(Ordering::Relaxed) > 0, "no entry was evicted");
    assert_eq!(cache.stats().listener_panics, 0);
    *shared_cache.lock().unwrap() = None;
    go.send(()).unwrap();
    assert_eq!(elsewhere.join().unwrap(), [3]);
}
