//! Loads by threads: loaders that need each other's keys, and user code that panics while other
//! threads wait.
//!
//! A deadlock is the failure to expect, so each test has a deadline. Also removals during a load:
//! its value must not reach a later caller.
//!
//! A new way to load needs a test with a panic and one with a cycle.

#![forbid(unsafe_code)]

#[path = "common/deadline.rs"]
mod deadline;

use deadline::in_time;
use lowwater::cache::{Computed, Op};
use lowwater::{ByteSize, Cache, Runtime};
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::Duration;

fn runtime() -> Runtime {
    Runtime::builder().budget(ByteSize::mib(4)).build().unwrap()
}

/// Runs `n` threads. Each loads its key while all others do, and the loader requests the next
/// thread's key: a cycle. At least one thread must load without waiting.
fn ring(caches: &[Cache<u64, u64>], n: u64) {
    let together = Barrier::new(n as usize);
    let loads = AtomicUsize::new(0);
    let cache = |at: u64| &caches[at as usize % caches.len()];
    std::thread::scope(|s| {
        for at in 0..n {
            let (together, loads) = (&together, &loads);
            s.spawn(move || {
                let next = (at + 1) % n;
                let value = cache(at).get_or_insert_with(at, || {
                    together.wait();
                    // A load in between: the cycle is not only of outer loads.
                    cache(at).get_or_insert_with(100 + at, || {
                        cache(next).get_or_insert_with(next, || {
                            loads.fetch_add(1, SeqCst);
                            7
                        })
                    })
                });
                assert_eq!(value, 7);
            });
        }
    });
    assert!((1..=n as usize).contains(&loads.load(SeqCst)));
}

fn numbers(runtime: &Runtime) -> Cache<u64, u64> {
    Cache::builder(runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap()
}

#[test]
fn loads_that_request_each_others_keys_do_not_deadlock() {
    in_time(|| {
        for round in 0..100 {
            ring(&[numbers(&runtime())], 2 + round % 3);
        }
    });
}

#[test]
fn loads_of_two_caches_that_request_each_others_keys_do_not_deadlock() {
    in_time(|| {
        let (a, b) = (runtime(), runtime());
        for _ in 0..50 {
            ring(&[numbers(&a), numbers(&b)], 2);
        }
    });
}

#[test]
fn a_load_waits_for_another_load_without_a_cycle() {
    in_time(|| {
        let cache = numbers(&runtime());
        let loads = AtomicUsize::new(0);
        let entered = Barrier::new(2);
        std::thread::scope(|s| {
            s.spawn(|| {
                cache.get_or_insert_with(1, || {
                    entered.wait();
                    std::thread::sleep(Duration::from_millis(50));
                    loads.fetch_add(1, SeqCst) as u64
                })
            });
            entered.wait();
            let inner = || cache.get_or_insert_with(1, || loads.fetch_add(1, SeqCst) as u64);
            assert_eq!(cache.get_or_insert_with(2, inner), 0);
        });
        assert_eq!(loads.load(SeqCst), 1);
    });
}

#[test]
fn a_call_whose_load_fails_counts_one_miss() {
    const THREADS: u64 = 8;
    in_time(|| {
        let (cache, begin) = (numbers(&runtime()), Barrier::new(THREADS as usize));
        let fail = || {
            begin.wait();
            // The others wait meanwhile, and try again after the failure.
            let load = || {
                (0..10).for_each(|_| std::thread::yield_now());
                Err("away")
            };
            assert_eq!(cache.try_get_or_insert_with(1, load), Err("away"));
        };
        std::thread::scope(|s| (0..THREADS).for_each(|_| drop(s.spawn(fail))));
        assert_eq!((cache.stats().hits, cache.stats().misses, cache.stats().loads), (0, THREADS, 0));
    });
}

#[test]
fn failing_loads_of_a_key_run_one_after_another() {
    const THREADS: usize = 8;
    in_time(|| {
        let (cache, begin) = (numbers(&runtime()), Barrier::new(THREADS));
        let (running, loads) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let fail = || {
            begin.wait();
            let load = || {
                assert_eq!(running.fetch_add(1, SeqCst), 0, "two loads at once");
                std::thread::sleep(Duration::from_millis(5));
                running.fetch_sub(1, SeqCst);
                Err(loads.fetch_add(1, SeqCst))
            };
            assert!(cache.try_get_or_insert_with(1, load).is_err());
        };
        std::thread::scope(|s| (0..THREADS).for_each(|_| drop(s.spawn(fail))));
        assert_eq!(loads.load(SeqCst), THREADS);
    });
}

#[test]
fn an_error_that_is_a_value_goes_to_all_callers() {
    const THREADS: usize = 8;
    in_time(|| {
        let cache = Cache::<u64, Result<u64, usize>>::builder(&runtime()).weigher(|_, _| 0u64).build().unwrap();
        let (begin, loads) = (Barrier::new(THREADS), AtomicUsize::new(0));
        let load = || {
            begin.wait();
            assert_eq!(cache.get_or_insert_with(1, || Err(loads.fetch_add(1, SeqCst))), Err(0));
        };
        std::thread::scope(|s| (0..THREADS).for_each(|_| drop(s.spawn(load))));
        assert_eq!(loads.load(SeqCst), 1);
    });
}

#[test]
fn a_removal_during_a_load_lets_later_callers_load_anew() {
    let removals: [fn(&Cache<u64, u64>); 7] = [
        |cache| assert_eq!(cache.remove(&1), None),
        Cache::clear,
        |cache| {
            cache.insert(1, 5).unwrap();
            cache.retain(|_, _| false);
        },
        |cache| {
            cache.insert(1, 5).unwrap();
            assert_eq!(cache.entry(1).and_compute(|_| Op::Remove), Ok(Computed::Removed(5)));
        },
        |cache| assert_eq!(cache.entry(1).and_compute(|_| Op::Remove), Ok(Computed::Kept)),
        // A younger value that has left again by eviction, or at its deadline.
        |cache| {
            cache.insert(1, 5).unwrap();
            while cache.contains_key(&1) {
                cache.runtime().drop_caches();
            }
        },
        |cache| {
            cache.entry(1).time_to_live(Duration::from_millis(1)).insert(5).unwrap();
            while cache.contains_key(&1) {
                std::thread::sleep(Duration::from_millis(1));
            }
        },
    ];
    for removal in removals {
        in_time(move || {
            let cache = numbers(&runtime());
            let removed = || {
                removal(&cache);
                1
            };
            assert_eq!((cache.get_or_insert_with(1, removed), cache.get(&1)), (1, None));
            // Another thread is no part of the load, so it waits for a load that it may follow.
            let loaded = || {
                removal(&cache);
                let later = std::thread::scope(|s| s.spawn(|| cache.get_or_insert_with(1, || 2)).join());
                assert_eq!(later.unwrap(), 2);
                1
            };
            assert_eq!((cache.get_or_insert_with(1, loaded), cache.get(&1)), (1, Some(2)));
        });
    }
}

#[test]
fn a_computed_removal_is_shown_and_removes_a_value_that_has_entered_since_its_lookup() {
    let enters: [fn(&Cache<u64, u64>); 2] = [
        |cache| assert_eq!(cache.insert(1, 5), Ok(None)),
        // A load that ends before it would be stopped.
        |cache| assert_eq!(cache.get_or_insert_with(1, || 5), 5),
    ];
    for enter in enters {
        let (cache, mut shown) = (numbers(&runtime()), vec![]);
        let removed = cache.entry(1).and_compute(|there| {
            shown.push(there.map(|there| *there.value()));
            if shown.len() == 1 {
                enter(&cache);
            }
            Op::Remove
        });
        assert_eq!((removed, shown, cache.get(&1)), (Ok(Computed::Removed(5)), vec![None, Some(5)], None));
    }
}

#[test]
fn other_removals_do_not_stop_a_load() {
    in_time(|| {
        let cache = numbers(&runtime());
        let load = || {
            assert_eq!(cache.remove(&2), None);
            cache.retain(|_, _| false);
            cache.runtime().drop_caches();
            1
        };
        assert_eq!((cache.get_or_insert_with(1, load), cache.get(&1)), (1, Some(1)));
    });
}

#[test]
fn no_call_after_a_removal_gets_a_value_read_before_it() {
    in_time(|| {
        // A new cache in each round, as the first insert also makes the index.
        for round in 0..50 {
            let (cache, source) = (numbers(&runtime()), AtomicU64::new(0));
            let begin = Barrier::new(3);
            let change = || {
                begin.wait();
                for _ in 0..10 {
                    let written = source.fetch_add(1, SeqCst) + 1;
                    match round % 2 {
                        0 => drop(cache.remove(&1)),
                        _ => cache.clear(),
                    }
                    let seen = cache.get_or_insert_with(1, || {
                        let read = source.load(SeqCst);
                        // The other threads write and remove meanwhile.
                        std::thread::yield_now();
                        read
                    });
                    assert!(seen >= written, "{seen} was read before the removal after {written}");
                }
            };
            std::thread::scope(|s| (0..3).for_each(|_| drop(s.spawn(change))));
            assert!(cache.get(&1).is_none_or(|last| last == 30), "the last removal came after the last write");
        }
    });
}

/// The place where user code panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Load,
    Weigher,
    Listener,
    Hasher,
    Clone,
    KeyDrop,
    ValueDrop,
}

#[derive(Clone)]
struct Trap {
    at: At,
    is_armed: Arc<AtomicBool>,
}

impl Trap {
    fn springs(&self, at: At) {
        if self.at == at && !std::thread::panicking() && self.is_armed.swap(false, SeqCst) {
            panic!("the user's own fault");
        }
    }
}

#[derive(Clone)]
struct Key(u64, Trap);

impl Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Drop for Key {
    fn drop(&mut self) {
        self.1.springs(At::KeyDrop);
    }
}

struct Value(u64, Trap);

impl Clone for Value {
    fn clone(&self) -> Self {
        self.1.springs(At::Clone);
        Self(self.0, self.1.clone())
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.1.springs(At::ValueDrop);
    }
}

struct Hasher(Trap, RandomState);

impl BuildHasher for Hasher {
    type Hasher = <RandomState as BuildHasher>::Hasher;

    fn build_hasher(&self) -> Self::Hasher {
        self.0.springs(At::Hasher);
        self.1.build_hasher()
    }
}

#[test]
fn a_panic_in_a_load_leaves_the_key_to_the_followers() {
    for at in [At::Load, At::Weigher, At::Listener, At::Hasher, At::Clone, At::KeyDrop, At::ValueDrop] {
        in_time(move || {
            let trap = Trap { at, is_armed: Arc::new(AtomicBool::new(false)) };
            let (weighs, hears, hashes) = (trap.clone(), trap.clone(), trap.clone());
            let cache = Cache::<Key, Value>::builder(&runtime())
                .weigher(move |_, _| {
                    weighs.springs(At::Weigher);
                    ByteSize::ZERO
                })
                .eviction_listener(move |_, _, _| hears.springs(At::Listener))
                .hasher(Hasher(hashes, RandomState::new()))
                .build()
                .unwrap();
            let (begun, waiting) = (Barrier::new(5), AtomicUsize::new(0));
            let loaded = std::thread::scope(|s| {
                let first = s.spawn(|| {
                    cache.get_or_insert_with(Key(1, trap.clone()), || {
                        begun.wait();
                        // Until the other threads are about to wait; the sleep covers the rest.
                        while waiting.load(SeqCst) < 4 {
                            std::thread::yield_now();
                        }
                        std::thread::sleep(Duration::from_millis(30));
                        trap.is_armed.store(true, SeqCst);
                        trap.springs(At::Load);
                        Value(1, trap.clone())
                    })
                });
                for _ in 0..4 {
                    let (cache, trap, begun, waiting) = (&cache, &trap, &begun, &waiting);
                    s.spawn(move || {
                        begun.wait();
                        waiting.fetch_add(1, SeqCst);
                        // The thread that springs the trap panics; the others get the value.
                        let ask = || cache.get_or_insert_with(Key(1, trap.clone()), || Value(1, trap.clone())).0;
                        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask));
                        assert!(asked.is_err() || asked.is_ok_and(|value| value == 1));
                    });
                }
                first.join()
            });
            // Disarmed before the drop of the loaded value, whose `Drop` could panic on this
            // thread.
            trap.is_armed.store(false, SeqCst);
            drop(loaded);
            let again = cache.get_or_insert_with(Key(1, trap.clone()), || Value(1, trap.clone()));
            assert_eq!(again.0, 1, "{at:?}");
            let other = cache.get_or_insert_with(Key(2, trap.clone()), || Value(2, trap.clone()));
            assert_eq!(other.0, 2, "{at:?}");
        });
    }
}
