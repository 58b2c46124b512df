//! Values of an `RcuCell` that panic when they are dropped, in a process with a cache.
//!
//! A guard's drop frees the retired values of the whole process, and evictions drop guards: a panic
//! that passed through one quarantined the cache's shrinker, and nothing was evicted any more.
//!
//! In a process of its own: readers of other tests would hold the values back.
#![forbid(unsafe_code)]

#[path = "common/deadline.rs"]
mod deadline;
#[path = "common/reader.rs"]
mod reader;
#[path = "common/usage.rs"]
mod usage;

use deadline::in_time;
use lowwater::{ByteSize, Cache, Runtime};
use lowwater_rcu::{flush, pin, RcuCell};
use reader::beside_a_reader;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// A value with a `Drop` that panics.
struct Panics;

const ROUNDS: u32 = 8;
static DROPPED: AtomicU32 = AtomicU32::new(0);

impl Drop for Panics {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        panic!("a destructor's");
    }
}

/// Retires a value beside a reader, so that a later drop of a guard frees it.
fn retire() {
    let cell = RcuCell::new();
    beside_a_reader(|| {
        let guard = pin();
        assert!(cell.replace(None, Panics, &guard));
        cell.clear(&guard);
    });
}

#[test]
#[cfg_attr(panic = "abort", ignore = "a panic is caught")]
fn a_cache_evicts_after_the_destructor_of_an_rcu_value_has_panicked() {
    in_time(|| {
        let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
        let cache = Cache::<u64, u64>::builder(&runtime)
            .weigher(|key, _| if *key < 100 { ByteSize::kib(64) } else { ByteSize::ZERO })
            .build()
            .unwrap();
        for round in 0..ROUNDS {
            (0..32).for_each(|key| drop(cache.insert(key, 0)));
            retire();
            for key in 0..2_500 {
                drop(cache.insert(100 + u64::from(round) * 2_500 + key, 0));
            }
        }
        // Without a limit: `in_time` has one.
        while DROPPED.load(Ordering::Relaxed) < ROUNDS {
            flush();
            thread::sleep(Duration::from_millis(1));
        }
        let shrinkers = runtime.stats().registry.shrinkers;
        assert!(shrinkers.iter().all(|shrinker| shrinker.panics == 0 && !shrinker.quarantined), "{shrinkers:?}");
        cache.clear();
        cache.collect();
        assert_eq!(usage::used(&runtime), 0);
    });
}
