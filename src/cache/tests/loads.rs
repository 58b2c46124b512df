//! Loads that are started inside of other loads.
//!
//! A deadlock would hang the test, so each runs with a deadline.
//!
//! A new way to load gets a test with a cycle.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;

use crate::{ByteSize, Cache, RemovalCause, Runtime, Watermarks};

/// The key of the load whose publishing evicts entries.
const PUBLISHED: u64 = 1 << 40;
const ELSEWHERE: u64 = 2 << 40;
/// A limit for the test, as a load that waits for itself never ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// A listener that runs while its thread publishes a load loads the keys that it requests itself,
/// even if others are loading them: followers of the published load wait for the listener, and
/// those other loaders may be among them.
#[test]
fn a_listener_of_a_publishing_thread_waits_for_no_load() {
    // The reclaimer starts only at the limit, so this thread evicts.
    let at_the_limit = Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO };
    let runtime = Runtime::builder().budget(ByteSize::kib(64)).watermarks(at_the_limit).build().unwrap();
    let (slot, asked) = (Arc::new(Mutex::new(None::<Cache<u64, Vec<u8>>>)), Arc::new(AtomicUsize::new(0)));
    let (theirs, count) = (Arc::clone(&slot), Arc::clone(&asked));
    let cache = Cache::<u64, Vec<u8>>::builder(&runtime)
        .weigher(|_, value| ByteSize::new(value.capacity() as u64))
        .eviction_listener(move |_, _, cause| {
            let cache = theirs.lock().unwrap().clone();
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
    // Ends when the first load is published.
    let elsewhere = std::thread::spawn(move || {
        elsewhere.get_or_insert_with(ELSEWHERE, || {
            begun.send(()).unwrap();
            may_go.recv().unwrap();
            vec![3]
        })
    });
    has_begun.recv_timeout(PATIENCE).unwrap();

    *slot.lock().unwrap() = Some(cache.clone());
    let (done, is_done) = mpsc::channel();
    let publishing = cache.clone();
    let publishing = std::thread::spawn(move || {
        let loaded = publishing.get_or_insert_with(PUBLISHED, || vec![1; 8_000]);
        done.send(loaded.len()).unwrap();
    });
    assert_eq!(is_done.recv_timeout(PATIENCE), Ok(8_000), "not the value of the own load");
    publishing.join().unwrap();
    assert!(asked.load(Ordering::Relaxed) > 0, "no entry was evicted");
    assert_eq!(cache.stats().listener_panics, 0);
    *slot.lock().unwrap() = None;
    go.send(()).unwrap();
    assert_eq!(elsewhere.join().unwrap(), [3]);
}
