//! Faults of user code in a cache: keys, values, weighers, loaders and listeners that panic, block
//! or return wrong answers; tenants with limits that are lowered below their usage. The caller gets
//! the fault; bytes stay exact, and everything else continues.
//!
//! `src/cache/tests/behave.rs` has the other faults: a loader, weigher, listener or drop that
//! panics, and a listener that re-enters.
//!
//! A change must ensure that the charged bytes are compared after each fault.

#[path = "common/one_node.rs"]
mod one_node;
#[path = "common/usage.rs"]
mod usage;
#[path = "common/wait.rs"]
mod wait;

use lowwater::cache::Op;
use lowwater::{ByteSize, Cache};
use lowwater_rcu::start_poll;
use one_node::runtime;
use std::hash::{Hash, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};
use usage::used;
use wait::{until, PATIENCE};

/// Panics at the `n`-th use of a key or value from now on; 0: never.
static BOMB: AtomicU64 = AtomicU64::new(0);

fn tick() {
    if BOMB.load(Relaxed) > 0 && BOMB.fetch_sub(1, Relaxed) == 1 {
        std::panic::panic_any("the key's or value's own fault");
    }
}

#[derive(Clone, Debug)]
struct Key(u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        tick();
        (self.0 % 7).hash(state); // Collisions, so that keys are compared.
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        tick();
        self.0 == other.0
    }
}

impl Eq for Key {}

#[derive(Debug)]
struct Value(u64);

impl Clone for Value {
    fn clone(&self) -> Self {
        tick();
        Self(self.0)
    }
}

#[test]
fn a_panicking_key_or_value_leaves_the_cache_consistent() {
    const KEYS: u64 = 40;
    const EACH: u64 = 100;
    let runtime = runtime(ByteSize::mib(1));
    let cache = Cache::<Key, Value>::builder(&runtime).weigher(|_, _| ByteSize::new(EACH)).build().unwrap();
    let each = EACH + Cache::<Key, Value>::ENTRY_BYTES.get();
    let operations: [&dyn Fn(u64); 7] = [
        &|n| assert!(cache.insert(Key(n), Value(n)).is_ok()),
        &|n| assert!(cache.get(&Key(n)).is_none_or(|value| value.0 == n)),
        &|n| assert!(cache.remove(&Key(n)).is_none_or(|value| value.0 == n)),
        &|n| assert_eq!(cache.get_or_insert_with(Key(n), || Value(n)).0, n),
        &|n| drop(cache.entry(Key(n)).and_compute(|_| Op::Put(Value(n)))),
        &|n| drop(cache.entry(Key(n)).and_compute(|_| Op::Remove)),
        &|n| assert!(cache.touch(&Key(n), None) || !cache.contains_key(&Key(n))),
    ];
    let mut panics = 0;
    for (which, operation) in operations.iter().enumerate() {
        for n in 0..KEYS {
            for nth in 1.. {
                BOMB.store(nth, Relaxed);
                let result = catch_unwind(AssertUnwindSafe(|| operation(n)));
                let went_off = BOMB.swap(0, Relaxed) == 0;
                // If an insert or a removal resizes the index, it hashes other keys, and completes
                // although that fails.
                let may_be_swallowed = [0, 2, 3, 4, 5].contains(&which) && went_off;
                assert!(result.is_err() == went_off || may_be_swallowed, "operation {which} on key {n}");
                assert_eq!(used(&runtime), cache.len() as u64 * each, "operation {which} on key {n}, bomb {nth}");
                if !went_off {
                    break;
                }
                panics += 1;
            }
        }
    }
    assert!(panics > 1_000, "{panics} panics");
    // All keys can be written, read and removed, and reclaim evicts the rest.
    for n in 0..KEYS {
        cache.insert(Key(n), Value(n)).unwrap();
        assert_eq!(cache.get(&Key(n)).unwrap().0, n);
    }
    // Lookups do not find the entries of keys that have panicked while the index grew.
    let hidden = cache.len() as u64 - KEYS;
    assert!(hidden < KEYS, "{hidden} hidden entries");
    while runtime.drop_caches() > 0 {}
    assert_eq!((cache.len(), used(&runtime)), (0, 0));
}

/// A value whose next clone panics, if the flag is set.
#[derive(Debug)]
struct Fragile(Arc<AtomicBool>);

impl Clone for Fragile {
    fn clone(&self) -> Self {
        if self.0.swap(false, Relaxed) {
            std::panic::panic_any("the value's own fault");
        }
        Self(self.0.clone())
    }
}

#[test]
fn a_panicking_clone_leaves_the_listener_outside_of_the_read_side() {
    let runtime = runtime(ByteSize::mib(1));
    let (theirs, has_left) = mpsc::channel();
    let cache = Cache::<u64, Fragile>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .eviction_listener(move |_, _, _| {
            // Other threads' readers leave soon; a guard of this thread never does.
            let (grace_period, start) = (start_poll(), Instant::now());
            while !grace_period.poll() && start.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(1));
            }
            theirs.send(grace_period.poll()).unwrap();
        })
        .build()
        .unwrap();
    let panics = Arc::new(AtomicBool::new(false));
    let value = || Fragile(panics.clone());
    let operations: [(&str, &dyn Fn()); 4] = [
        ("remove", &|| drop(cache.remove(&1))),
        ("Op::Remove", &|| drop(cache.entry(1).and_compute(|_| Op::Remove))),
        ("Op::Put", &|| drop(cache.entry(1).and_compute(|_| Op::Put(value())))),
        ("insert", &|| drop(cache.entry(1).insert(value()))),
    ];
    let mut outside = Vec::new();
    for (operation, run) in operations {
        // Finishes the removal of an entry that the operation before has left.
        cache.remove(&1);
        has_left.try_iter().for_each(drop);
        cache.insert(1, value()).unwrap();
        panics.store(true, Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err(), "{operation}: the clone panics");
        outside.push((operation, has_left.try_recv()));
    }
    assert!(outside.iter().all(|(_, outside)| *outside == Ok(true)), "{outside:?}");
}

#[test]
fn a_panicking_compute_closure_keeps_the_entry() {
    let runtime = runtime(ByteSize::mib(1));
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    cache.insert(1, 10).unwrap();
    let before = used(&runtime);
    for key in [1, 2] {
        let died = std::thread::scope(|s| {
            let compute = || cache.entry(key).and_compute(|_| std::panic::panic_any("the closure's own fault"));
            s.spawn(compute).join().is_err()
        });
        assert!(died);
    }
    assert_eq!((cache.get(&1), cache.get(&2), cache.len()), (Some(10), None, 1));
    assert_eq!(used(&runtime), before);
}

#[test]
fn a_weigher_with_wrong_results_leaves_exact_bytes() {
    let runtime = runtime(ByteSize::kib(64));
    let calls = AtomicU64::new(0);
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(move |_, _| match calls.fetch_add(1, Relaxed) % 4 {
            0 => ByteSize::ZERO,
            1 => ByteSize::MAX,
            2 => ByteSize::new(u64::MAX / 2),
            _ => ByteSize::new(1_000),
        })
        .build()
        .unwrap();
    let (mut kept, mut refused) = (0, 0);
    for key in 0..4_000 {
        match cache.insert(key, key) {
            Ok(_) => kept += 1,
            Err(error) => {
                assert!(error.to_string().contains("does not fit"), "{error}");
                assert_eq!(error.value, key);
                refused += 1;
            }
        }
        assert!(runtime.root().usage() <= ByteSize::kib(64));
    }
    assert_eq!((kept, refused), (2_000, 2_000));
    cache.clear();
    // The reclaimer may just have isolated one.
    until("charged bytes are released without a second call", || used(&runtime) == 0);
}

#[test]
fn a_blocking_loader_delays_only_callers_of_its_key() {
    let runtime = runtime(ByteSize::mib(1));
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let (leave, wait) = mpsc::channel::<()>();
    let (tell, entered) = mpsc::channel();
    std::thread::scope(|s| {
        let cache = &cache;
        let slow = s.spawn(move || {
            cache.get_or_insert_with(1, || {
                tell.send(()).unwrap();
                wait.recv().unwrap();
                10
            })
        });
        entered.recv_timeout(PATIENCE).unwrap();
        for key in 2..1_000 {
            assert_eq!(cache.get_or_insert_with(key, || key), key);
        }
        // Its own key is usable as well, except by loads.
        assert_eq!(cache.get(&1), None);
        cache.insert(1, 11).unwrap();
        assert_eq!(cache.get(&1), Some(11));
        runtime.drop_caches();
        cache.insert(1, 12).unwrap();
        leave.send(()).unwrap();
        slow.join().unwrap();
        assert_eq!(cache.get(&1), Some(12), "an insert that came meanwhile is younger than the load");
    });
}

#[test]
fn a_blocking_listener_delays_no_insert_with_room() {
    let runtime = runtime(ByteSize::kib(256));
    let (leave, wait) = mpsc::channel::<()>();
    let (tell, entered) = mpsc::channel();
    let wait = std::sync::Mutex::new(wait);
    let first = AtomicBool::new(true);
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::new(1_000))
        .eviction_listener(move |_, _, _| {
            if first.swap(false, Relaxed) {
                tell.send(()).unwrap();
                let _ = wait.lock().unwrap().recv();
            }
        })
        .build()
        .unwrap();
    for key in 0..100 {
        cache.insert(key, key).unwrap();
    }
    std::thread::scope(|s| {
        let stuck = s.spawn(|| runtime.drop_caches());
        entered.recv_timeout(PATIENCE).unwrap();
        for key in 1_000..1_100 {
            cache.insert(key, key).unwrap();
            assert_eq!(cache.get(&key), Some(key));
        }
        let group = runtime.group("other").unwrap();
        cache.entry(5).group(&group).insert(5).unwrap();
        assert_eq!(cache.remove(&5), Some(5));
        runtime.end_group(&group).unwrap();
        drop(group);
        leave.send(()).unwrap();
        stuck.join().unwrap();
    });
    cache.clear();
    until("nothing is charged for nothing", || used(&runtime) == 0);
}

#[test]
fn a_limit_below_a_tenants_usage_evicts_only_its_entries() {
    let runtime = runtime(ByteSize::mib(4));
    let cache =
        Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, v| ByteSize::new(v.capacity() as u64)).build().unwrap();
    let (shop, blog) = (runtime.group("shop").unwrap(), runtime.group("blog").unwrap());
    for key in 0..1_000 {
        cache.entry(key).group(&shop).insert(vec![0; 500]).unwrap();
        cache.entry(key + 10_000).group(&blog).insert(vec![0; 500]).unwrap();
    }
    let blogs = cache.len_of(&blog);
    for max in [ByteSize::kib(256), ByteSize::kib(64), ByteSize::kib(4)] {
        shop.set_max(max);
        // Inserts evict a little each; no other call is needed.
        until("the shop is below its new limit", || {
            let _ = cache.entry(1).group(&shop).insert(vec![0; 500]);
            runtime.tree().drain_stock();
            shop.usage() <= max
        });
        assert_eq!((cache.len_of(&blog), blogs), (1_000, 1_000), "the other keeps all");
        // At a try, the reclaimer may have isolated all of the few records below a small limit.
        until("an insert fits", || cache.entry(2).group(&shop).insert(vec![0; 500]).is_ok());
    }
    shop.set_max(ByteSize::ZERO);
    let error = cache.entry(3).group(&shop).insert(vec![7; 500]).unwrap_err();
    assert!(error.to_string().contains("group /shop") && error.value == [7; 500], "{error}");
    let left = |key: u64| cache.get(&(key + 10_000)).is_some();
    assert!((0..1_000).all(left));
    shop.set_max(ByteSize::MAX);
    cache.entry(3).group(&shop).insert(vec![0; 500]).unwrap();
}

#[test]
fn a_tenant_that_ends_beside_its_writers_leaves_its_entries_to_the_parent() {
    let runtime = runtime(ByteSize::mib(1));
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::new(10)).build().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        let writer = s.spawn(|| {
            for key in 0.. {
                let group = runtime.group("short");
                let Ok(group) = group else { continue };
                cache.entry(key % 500).group(&group).insert(key).unwrap();
                if stop.load(Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..200 {
            if let Some(group) = runtime.find_group("short") {
                let _ = runtime.end_group(&group);
            }
            std::thread::yield_now();
        }
        stop.store(true, Relaxed);
        writer.join().unwrap();
    });
    let each = 10 + Cache::<u64, u64>::ENTRY_BYTES.get();
    assert_eq!(used(&runtime), cache.len() as u64 * each);
    cache.clear();
    assert_eq!(used(&runtime), 0);
}
