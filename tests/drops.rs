//! Values that remove other entries of their cache, or of another, in `Drop`: the stack stays
//! small, however many entries there are.
//!
//! Recursive drops would overflow the stack after some ten thousand entries; the slab defers nested
//! ones (`store` `slab/nest.rs`).
//!
//! A change must ensure that the small stack stays: a deeper one would hide a recursion.
#![forbid(unsafe_code)]

use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Runtime};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

const ENTRIES: u64 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };

type Values = Cache<u64, Arc<Value>>;

static CACHES: [OnceLock<Values>; 2] = [const { OnceLock::new() }; 2];
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Removes another entry when it is dropped.
struct Value {
    cache: usize,
    key: u64,
}

impl Drop for Value {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Relaxed);
        CACHES[self.cache].get().unwrap().remove(&self.key);
    }
}

/// Inserts itself again when it is dropped, while `is_on`.
#[derive(Clone)]
struct Returning(&'static Returns);

struct Returns {
    cache: OnceLock<Cache<u64, Returning>>,
    is_on: AtomicBool,
    collects: bool,
}

impl Returns {
    const fn new(collects: bool) -> Self {
        Self { cache: OnceLock::new(), is_on: AtomicBool::new(true), collects }
    }
}

thread_local! {
    /// Those that this thread has dropped; the housekeeper drops others.
    static RETURNED: Cell<u64> = const { Cell::new(0) };
}

impl Drop for Returning {
    fn drop(&mut self) {
        let Returns { cache, is_on, collects } = self.0;
        RETURNED.set(RETURNED.get() + 1);
        if is_on.load(Relaxed) {
            let cache = cache.get().unwrap();
            cache.entry(1).set(self.clone()).unwrap();
            if *collects {
                cache.collect();
            }
        }
    }
}

/// Each drop retires the value that it replaces, so there is always one more to drop.
#[test]
fn values_that_return_when_they_are_dropped_do_not_keep_their_thread() {
    static RETURNS: [Returns; 2] = [Returns::new(false), Returns::new(true)];
    for returns in &RETURNS {
        let runtime = Runtime::builder().budget(ByteSize::mib(64)).topology(Arc::new(Fixed::new(1))).build().unwrap();
        let new = Cache::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
        returns.cache.set(new).ok().unwrap();
        let cache = returns.cache.get().unwrap();
        RETURNED.set(0);
        for n in 1..=1_000_u64 {
            cache.entry(1).set(Returning(returns)).unwrap();
            // A few for each retired one.
            let dropped = RETURNED.get();
            assert!(dropped <= 200 * n, "{dropped} values were dropped by {n} inserts");
        }
        assert!(RETURNED.get() > 0 && cache.stats().drop_panics == 0, "{:?}", cache.stats());
        returns.is_on.store(false, Relaxed);
        cache.clear();
        let start = std::time::Instant::now();
        while cache.collect() > ByteSize::ZERO {
            assert!(start.elapsed().as_secs() < 60, "{} stay", cache.collect());
        }
    }
}

/// Runs `f` on a small stack in a process of its own, because a stack overflow ends the process.
fn on_a_small_stack(test: &str, f: impl FnOnce() + Send + 'static) {
    // Not 0, with which a process ends that has run no test.
    const DONE: i32 = 77;
    if std::env::var("LOWWATER_ON_A_SMALL_STACK").is_ok_and(|of| of == test) {
        std::thread::Builder::new().stack_size(256 << 10).spawn(f).unwrap().join().unwrap();
        std::process::exit(DONE);
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("LOWWATER_ON_A_SMALL_STACK", test)
        .output()
        .unwrap();
    assert_eq!(child.status.code(), Some(DONE), "{}: {}", child.status, String::from_utf8_lossy(&child.stderr));
}

/// Fills `caches` caches with values that remove an entry of the next cache (of their own, if there
/// is only one), and removes all entries.
fn fill_and_remove_all(caches: usize) {
    let runtime = Runtime::builder().budget(ByteSize::mib(1024)).topology(Arc::new(Fixed::new(1))).build().unwrap();
    let caches = &CACHES[..caches];
    for cache in caches {
        let new = Cache::builder(&runtime).weigher(|_, _| ByteSize::new(16)).build().unwrap();
        cache.set(new).ok().unwrap();
    }
    for (nr, cache) in caches.iter().enumerate() {
        for key in 0..ENTRIES {
            // The next entry, or the one as far from the other end: half of the latter are earlier
            // ones.
            let other = if key % 2 == 0 { key + 1 } else { ENTRIES - key };
            let value = Value { cache: (nr + 1) % caches.len(), key: other };
            cache.get().unwrap().insert(key, Arc::new(value)).unwrap();
        }
    }
    let first = caches[0].get().unwrap();
    // Entries that are removed inside a read-side critical section are dropped after its end.
    let mut keys = 0..ENTRIES / 4;
    first.visit(&mut Default::default(), |_, _| keys.by_ref().for_each(|key| drop(first.remove(&key))));
    (0..ENTRIES).for_each(|key| drop(first.remove(&key)));
    let start = std::time::Instant::now();
    while DROPPED.load(Relaxed) < ENTRIES * caches.len() as u64 {
        for cache in caches {
            cache.get().unwrap().clear();
        }
        assert!(start.elapsed().as_secs() < 60, "{} values were dropped", DROPPED.load(Relaxed));
    }
    assert!(caches.iter().all(|cache| cache.get().unwrap().is_empty()));
}

#[test]
fn values_that_remove_entries_of_their_cache_need_little_stack() {
    on_a_small_stack("values_that_remove_entries_of_their_cache_need_little_stack", || fill_and_remove_all(1));
}

#[test]
fn values_that_remove_entries_of_another_cache_need_little_stack() {
    on_a_small_stack("values_that_remove_entries_of_another_cache_need_little_stack", || fill_and_remove_all(2));
}
