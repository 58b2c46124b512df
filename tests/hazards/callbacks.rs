//! Closures that panic, or call the cache that has called them.
//!
//! The closures tested here run without a lock of the cache (`Hash` and `Eq` of keys do not), so
//! they may call anything; a panic reaches the caller and leaves the cache consistent.
//!
//! A new closure needs two cases: it panics, and it uses the cache. A panic in `and_compute` is
//! tested in `tests/faults_cache.rs`, one in a load in `tests/loads.rs`. docs/HAZARDS.md names the
//! tests.

use crate::common::{within, PATIENCE};
use crate::{assert_whole, cache, filled, runtime, Numbers};
use lowwater::cache::{CacheBuilder, Computed, Current, Meta, Op, TenantKey, Visit};
use lowwater::pressure::{BackgroundReclaim, MonitoredReclaimer, Trim, Watermarks};
use lowwater::runtime::{ManualClock, RuntimeBuilder, RuntimeStats, TenantGroups, TenantGroupsBuilder};
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, CallbackScope, Reclaimer, Runtime};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Uses a cache and its runtime in one of 14 ways, which `n` selects.
fn anything(runtime: &Runtime, cache: &Numbers, n: u64) {
    match n % 12 {
        0 => drop(cache.insert(n, vec![9; 30])),
        1 => drop(cache.remove(&(n / 2))),
        2 => drop(cache.get_or_insert_with(n + 1, || vec![8; 10])),
        3 => cache.visit(&mut Visit::new(), |_, value| assert!(value.len() <= 200)),
        4 => drop(cache.entry(n).and_compute(|current| if current.is_some() { Op::Remove } else { Op::Put(vec![1]) })),
        5 => drop(cache.collect()),
        6 => drop(runtime.reclaim(runtime.root(), ByteSize::kib(1))),
        // Removes one entry in 50, so that a walk that calls this still finds entries.
        7 => cache.retain(|key, _| key % 50 != 7),
        8 => drop((cache.clone(), cache.stats(), cache.footprint(), runtime.stats())),
        9 => {
            let pinned = cache.pin();
            let borrowed = pinned.get(&n);
            cache.remove(&n);
            assert!(borrowed.is_none_or(|value| value.len() <= 200));
        }
        10 => {
            let other = filled(runtime, 3);
            // Fails while the previous group with this name is still being dropped.
            let Ok(group) = runtime.group("other") else { return };
            let _ = other.entry(9).group(&group).insert(vec![1]);
            let _ = runtime.drop_group(&group);
        }
        _ if n % 5 == 0 => cache.clear(),
        _ if n % 5 == 1 => drop(runtime.drop_caches()),
        _ => {
            runtime.set_budget(ByteSize::mib(2));
            runtime.set_budget(ByteSize::mib(4));
        }
    }
}

#[test]
fn callbacks_of_walks_may_use_the_cache_in_all_ways() {
    within("walks", || {
        let runtime = runtime(ByteSize::mib(4));
        let cache = filled(&runtime, 3000);
        let calls = Cell::new(0);
        let call = |cache: &Numbers| {
            calls.set(calls.get() + 1);
            // 12 calls in a row, for all remainders of `n % 12` in `anything`, then 85 in which the
            // walk is left alone. 97 is coprime to 5, so that the last arms get each `n % 5`.
            if calls.get() % 97 < 12 {
                anything(&runtime, cache, calls.get());
            }
        };
        for round in 0..6 {
            let mut at = Visit::new();
            while !at.is_done() {
                cache.visit(&mut at, |_, _| call(&cache));
            }
            for n in 0..2000 {
                let _ = cache.insert(n, vec![1; 100]);
            }
            cache.retain(|key, _| {
                call(&cache);
                key % 3 != round % 3
            });
            for n in 0..2000 {
                let _ = cache.insert(n, vec![2; 100]);
            }
            let mut saved = Vec::new();
            let said = cache.save(|key, value, meta| {
                call(&cache);
                saved.push((*key, value.clone(), meta.clone()));
                Ok::<(), ()>(())
            });
            assert_eq!(said, Ok(saved.len() as u64));
            let records = saved.len() as u64;
            let loaded = cache.load(saved.into_iter().inspect(|_| call(&cache)));
            assert_eq!(loaded.put + loaded.present + loaded.expired + loaded.refused, records);
            let pinned = cache.pin();
            for (_, value) in pinned.iter() {
                call(&cache);
                assert!(value.len() <= 200);
            }
        }
        assert!(calls.get() > 3000, "{} calls", calls.get());
        assert_whole(&runtime, &cache);
    });
}

#[test]
fn a_panic_in_a_walk_leaves_the_cache_whole() {
    within("walks that panic", || {
        let runtime = runtime(ByteSize::mib(4));
        let cache = filled(&runtime, 2000);
        for at in [0, 1, 500, 1900] {
            let left = Cell::new(0);
            let count = || {
                left.set(left.get() + 1);
                assert!(left.get() <= at, "the callback's own fault");
            };
            let died = |walk: &dyn Fn()| {
                left.set(0);
                assert!(catch_unwind(AssertUnwindSafe(walk)).is_err());
                assert!(cache.len() >= 1000 && cache.insert(1, vec![1]).is_ok() && cache.get(&1).is_some());
            };
            died(&|| {
                let mut at = Visit::new();
                while !at.is_done() {
                    cache.visit(&mut at, |_, _| count());
                }
            });
            died(&|| {
                cache.retain(|_, _| {
                    count();
                    true
                });
            });
            died(&|| {
                let _ = cache.save(|_, _, _| {
                    count();
                    Ok::<(), ()>(())
                });
            });
            died(&|| {
                let records = (10_000..20_000).map(|n| {
                    count();
                    (n, vec![1], Meta::default())
                });
                cache.load(records);
            });
            died(&|| {
                let pinned = cache.pin();
                pinned.iter().for_each(|_| count());
            });
        }
        let found = (0..2000).filter(|n| cache.contains_key(n)).count();
        assert_eq!(found, 2000);
        assert_whole(&runtime, &cache);
    });
}

#[test]
fn a_compute_may_use_the_cache() {
    within("computes", || {
        let runtime = runtime(ByteSize::mib(4));
        let cache = filled(&runtime, 100);
        for n in 0..200 {
            let asked = Cell::new(0);
            let computed = cache.entry(n).and_compute(|current| {
                asked.set(asked.get() + 1);
                let before = current.as_ref().map(|current| current.value().clone());
                if asked.get() == 1 {
                    // Changes the key during its own call: then the closure is called again with
                    // the new value.
                    anything(&runtime, &cache, n);
                    let _ = cache.entry(n).and_compute(|_| if n % 2 == 0 { Op::Remove } else { Op::Put(vec![3; 3]) });
                }
                assert_eq!(current.as_ref().map(|current| current.value().clone()), before, "a borrowed value stays");
                Op::Put(vec![n as u8])
            });
            // Twice because of the change above; once more if a thread of the runtime evicts or
            // copies the entry meanwhile.
            assert!(asked.get() <= 3, "called {} times", asked.get());
            assert!(matches!(computed, Ok(Computed::Inserted | Computed::Replaced(_))));
            assert_eq!(cache.get(&n), Some(vec![n as u8]));
        }
        assert_whole(&runtime, &cache);
    });
}

#[test]
fn borrowed_values_outlive_the_removal_of_all_entries() {
    within("pins", || {
        let runtime = runtime(ByteSize::mib(4));
        let cache = filled(&runtime, 3000);
        let handle = cache.clone();
        let pinned = cache.pin();
        let some: Vec<_> = (0..50).map(|n| pinned.get(&n).unwrap()).collect();
        let mut iter = pinned.iter();
        let first: Vec<_> = iter.by_ref().take(10).collect();
        handle.clear();
        drop(handle);
        for n in 0..3000 {
            cache.insert(n, vec![7; 50]).unwrap();
        }
        runtime.drop_caches();
        cache.collect();
        assert!(some.iter().enumerate().all(|(n, value)| **value == vec![n as u8; 100]));
        assert!(first.iter().all(|(key, value)| **value == vec![**key as u8; 100]));
        // The iterator may return entries that it had read when all were removed. They are
        // complete, and none is returned twice.
        let mut keys: BTreeSet<u64> = first.iter().map(|(key, _)| **key).collect();
        assert_eq!(keys.len(), first.len());
        assert!(iter.all(|(key, value)| *value == vec![*key as u8; 100] && keys.insert(*key)));
        drop((some, first));
        drop(pinned);
        assert_whole(&runtime, &cache);
    });
}

#[test]
fn a_load_may_drop_another_handle_of_its_cache() {
    within("loads", || {
        let runtime = runtime(ByteSize::mib(4));
        let cache = cache(&runtime);
        let other = cache.clone();
        let value = cache.get_or_insert_with(1, || {
            drop(other);
            runtime.drop_caches();
            vec![1]
        });
        assert_eq!((value, cache.len()), (vec![1], 1));
        assert_whole(&runtime, &cache);
    });
}

/// One object of each type of a runtime that a callback may drop, and that has no other test of it.
#[expect(dead_code, reason = "it is there to be dropped")]
struct Parts {
    clock: ManualClock,
    builders: (RuntimeBuilder, CacheBuilder<u64, Vec<u8>>, TenantGroupsBuilder),
    stats: RuntimeStats,
    tenants: TenantGroups,
    reclaimer: MonitoredReclaimer,
    key: TenantKey<u64>,
    refused: lowwater::InsertError<Vec<u8>>,
}

/// The table of groups owns `token` by its function.
fn parts(cache: &Numbers, clock: &ManualClock, token: &Arc<()>) -> Parts {
    let runtime = cache.runtime();
    let token = Arc::clone(token);
    let owns = move |_: &str, _: &lowwater::Memcg| assert!(Arc::strong_count(&token) > 1);
    let named = Cache::<TenantKey<u64>, u64>::builder(runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let reclaimer = Reclaimer::start(runtime.registry(), Arc::new(Fixed::new(1)), Watermarks::RELATIVE).unwrap();
    Parts {
        clock: clock.clone(),
        builders: (
            Runtime::builder().clock(clock).trim(Trim::new(|| ())),
            Cache::builder(runtime).name("in a callback"),
            runtime.tenant_groups("others").setup(owns.clone()),
        ),
        stats: runtime.stats(),
        tenants: runtime.tenant_groups("tenants").count_max(2).idle_time(Duration::ZERO).setup(owns).build().unwrap(),
        reclaimer: Arc::new(reclaimer).into(),
        key: named.tenant(runtime.root()).unwrap().key(1),
        refused: cache.insert(1, vec![0; 1 << 23]).unwrap_err(),
    }
}

#[test]
fn all_parts_of_a_runtime_may_be_used_and_dropped_in_a_callback() {
    within("parts", || {
        let clock = ManualClock::new();
        let builder = Runtime::builder().budget(ByteSize::mib(4)).topology(Arc::new(Fixed::new(1)));
        let runtime = builder.clock(&clock).build().unwrap();
        let (all, token) = (Arc::new(Mutex::new(Vec::new())), Arc::new(()));
        let take = |all: &Mutex<Vec<Parts>>| {
            let Some(parts) = all.lock().unwrap().pop() else { return };
            parts.clock.advance(Duration::from_millis(1));
            (0..4).for_each(|n| _ = parts.tenants.get_or_shared(&format!("{n}")));
            parts.reclaimer.reclaim_to(parts.tenants.parent(), ByteSize::ZERO);
            drop(parts);
        };
        let [in_listener, in_weigher, in_setup] = [(); 3].map(|()| Arc::clone(&all));
        let cache: Numbers = Cache::builder(&runtime)
            .eviction_listener(move |_, _, _| take(&in_listener))
            .weigher(move |_, value: &Vec<u8>| {
                take(&in_weigher);
                ByteSize::new(value.capacity() as u64)
            })
            .build()
            .unwrap();
        let table = runtime.tenant_groups("set up").setup(move |_, _| take(&in_setup)).build().unwrap();
        let load = || {
            take(&all);
            vec![2]
        };
        let compute = |_: Option<Current<'_, u64, Vec<u8>>>| {
            take(&all);
            Op::Remove
        };
        // Each callback takes one of them: the weigher, the listener on this thread, a load, a
        // compute, a visit, the function of a table, the listener in reclaim.
        let callbacks: [&dyn Fn(u64); 7] = [
            &|n| drop(cache.insert(n, vec![1])),
            &|n| drop(cache.remove(&n)),
            &|n| assert_eq!(cache.get_or_insert_with(n, load), [2]),
            &|n| drop(cache.entry(n).and_compute(compute)),
            &|_| cache.visit(&mut Visit::new(), |_, _| take(&all)),
            &|n| drop(table.get(&format!("{n}"))),
            &|_| _ = runtime.drop_caches(),
        ];
        for n in 0..20 {
            for callback in callbacks {
                cache.insert(1 << 32 | n, vec![1]).unwrap();
                let one = parts(&cache, &clock, &token);
                all.lock().unwrap().push(one);
                callback(n);
                // The reclaimer may have taken it, or the entries that are to be evicted.
                let start = std::time::Instant::now();
                while Arc::strong_count(&token) > 1 {
                    assert!(start.elapsed() < PATIENCE / 2, "no callback took it, or a function was kept");
                    runtime.drop_caches();
                }
            }
        }
        drop(table);
        assert_whole(&runtime, &cache);
    });
}

#[test]
fn a_panic_in_a_load_of_a_name_space_keeps_no_key_and_no_charge() {
    within("name spaces", || {
        let runtime = runtime(ByteSize::mib(4));
        let tenant = runtime.group("tenant").unwrap();
        let cache = Cache::<TenantKey<u64>, u64>::builder(&runtime).weigher(|_, _| ByteSize::kib(1)).build().unwrap();
        let view = cache.tenant(&tenant).unwrap();
        let panics = || -> u64 { panic!("the load's own fault") };
        let loads: [&dyn Fn(); 5] = [
            &|| _ = view.get_or_insert_with(1, panics),
            &|| _ = view.try_get_or_insert_with(1, || Ok::<_, ()>(panics())),
            &|| _ = view.entry(1).and_compute(|_| Op::Put(panics())),
            &|| _ = view.get_or_load_many([1, 2], |_| Ok::<_, ()>(vec![panics()])),
            // One value for two keys.
            &|| _ = view.get_or_load_many([1, 2], |_| Ok::<_, ()>(vec![7])),
        ];
        for (n, load) in loads.iter().enumerate() {
            assert!(catch_unwind(AssertUnwindSafe(load)).is_err(), "load {n}");
            assert!(!view.contains_key(&1) && !view.contains_key(&2) && !CallbackScope::is_inside());
            runtime.tree().drain_stock();
            assert_eq!(tenant.usage(), ByteSize::ZERO, "load {n}");
            // Another thread would wait for a load that is left in flight.
            std::thread::scope(|s| s.spawn(|| assert_eq!(view.get_or_insert_with(1, || 5), 5)).join().unwrap());
            assert_eq!(view.remove(&1), Some(5));
        }
    });
}

#[test]
fn a_thread_function_that_panics_leaves_its_callback_scope() {
    let runtime = runtime(ByteSize::mib(4));
    let reclaimer = Reclaimer::start(runtime.registry(), Arc::new(Fixed::new(1)), Watermarks::RELATIVE).unwrap();
    let reclaimer = MonitoredReclaimer::from(Arc::new(reclaimer));
    let mut thread = || {
        assert!(!reclaimer.can_join());
        panic!("the thread's own fault");
    };
    assert!(catch_unwind(AssertUnwindSafe(|| reclaimer.run_thread(&mut thread))).is_err());
    assert!(reclaimer.can_join() && !CallbackScope::is_inside());
}
