//! Values of an `RcuCell` that panic when they are dropped, in a process with a cache.
//!
//! A guard's drop frees the retired values of the whole process, and evictions drop guards: a panic
//! that passed through one quarantined the cache's shrinker, and nothing was evicted any more.
//!
//! In a process of its own: readers of other tests would hold the values back.
#![forbid(unsafe_code)]

#[path = "common/deadline.rs"]
mod deadline;
#[path = "common/usage.rs"]
mod usage;

use deadline::in_time;
use lowwater::{ByteSize, Cache, Runtime};
use lowwater_rcu::{pin, RcuCell};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc::channel;
use std::thread;

/// A value whose `Drop` panics.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("a destructor's");
    }
}

/// Retires a value while a reader is inside, so that a later drop of a guard frees it.
fn retire_behind_a_reader() {
    let cell = RcuCell::new();
    let (tell, told) = channel();
    let (end, ended) = channel::<()>();
    let reader = thread::spawn(move || {
        let _guard = pin();
        tell.send(()).unwrap();
        // An error: the other thread's guard has dropped an earlier value.
        let _ = ended.recv();
    });
    told.recv().unwrap();
    let guard = pin();
    assert!(cell.replace(None, Panics, &guard));
    cell.clear(&guard);
    drop(guard);
    end.send(()).unwrap();
    reader.join().unwrap();
}

#[test]
fn a_cache_evicts_after_the_destructor_of_an_rcu_value_has_panicked() {
    in_time(|| {
        let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
        let cache = Cache::<u64, u64>::builder(&runtime)
            .weigher(|key, _| if *key < 100 { ByteSize::kib(64) } else { ByteSize::ZERO })
            .build()
            .unwrap();
        for round in 0..8 {
            (0..32).for_each(|key| drop(catch_unwind(AssertUnwindSafe(|| cache.insert(key, 0)))));
            drop(catch_unwind(retire_behind_a_reader));
            for key in 0..2_500 {
                let key = 100 + round * 2_500 + key;
                drop(catch_unwind(AssertUnwindSafe(|| cache.insert(key, 0))));
            }
        }
        let shrinkers = runtime.stats().registry.shrinkers;
        assert!(shrinkers.iter().all(|shrinker| shrinker.panics == 0 && !shrinker.quarantined), "{shrinkers:?}");
        cache.clear();
        cache.collect();
        assert_eq!(usage::used(&runtime), 0);
    });
}
