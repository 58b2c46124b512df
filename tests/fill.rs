//! Read-through beyond a single owned key: by a reference, for many keys, with the value's origin,
//! and with bytes that are reserved before the load.
//!
//! A cache exists to save loads, and a lookup by reference to save clones of keys. A change must
//! ensure that calls of loads and clones are counted, not only results compared.

#[path = "common/wait.rs"]
mod wait;

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use lowwater::cache::{Filled, Origin, RejectReason, TenantKey};
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Charged, Runtime};
use wait::until;

fn runtime(budget: ByteSize) -> Runtime {
    Runtime::builder().budget(budget).topology(Arc::new(Fixed::new(1))).build().unwrap()
}

fn cache(runtime: &Runtime) -> Cache<u64, Vec<u8>> {
    Cache::builder(runtime).weigher(|_, value: &Vec<u8>| value.capacity()).build().unwrap()
}

/// A key that counts its clones.
#[derive(PartialEq, Eq, Hash)]
struct Key(u64);

static CLONES: AtomicUsize = AtomicUsize::new(0);

impl Clone for Key {
    fn clone(&self) -> Self {
        CLONES.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

#[test]
fn a_hit_by_reference_clones_no_key_and_a_miss_is_counted_once() {
    let runtime = runtime(ByteSize::mib(1));
    let cache = Cache::<Key, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let loads = Cell::new(0);
    let load = || {
        loads.set(loads.get() + 1);
        7
    };
    for _ in 0..10 {
        assert_eq!(cache.get_or_insert_with_ref(&Key(1), load), 7);
    }
    assert_eq!((loads.get(), CLONES.load(Ordering::Relaxed)), (1, 1));
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.loads), (9, 1, 1));
    assert_eq!(cache.try_get_or_insert_with_ref(&Key(2), || Err("no")), Err("no"));
    assert_eq!(cache.try_get_or_insert_with_ref::<_, &str>(&Key(2), || Ok(8)), Ok(8));
    assert_eq!(cache.try_get_or_insert_with_ref::<_, &str>(&Key(2), || panic!("it is there")), Ok(8));
    assert_eq!(CLONES.load(Ordering::Relaxed), 3);

    // The same in the name spaces of tenants.
    let cache = Cache::<TenantKey<Key>, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let group = runtime.group("tenant").unwrap();
    let (tenant, other) = (cache.tenant(&group).unwrap(), cache.tenant(runtime.root()).unwrap());
    for _ in 0..10 {
        assert_eq!(tenant.get_or_insert_with_ref(&Key(1), load), 7);
    }
    assert_eq!((loads.get(), CLONES.load(Ordering::Relaxed)), (2, 4));
    assert_eq!((cache.stats().hits, cache.stats().misses, cache.len_of(&group)), (9, 1, 1));
    assert_eq!(other.try_get_or_insert_with_ref(&Key(1), || Err("no")), Err("no"));
    assert_eq!(other.try_get_or_insert_with_ref::<_, &str>(&Key(1), || Ok(8)), Ok(8));
    assert_eq!((tenant.get(&Key(1)), other.get(&Key(1))), (Some(7), Some(8)));
}

#[test]
fn concurrent_callers_by_reference_share_one_load() {
    const THREADS: usize = 4;
    let runtime = runtime(ByteSize::mib(1));
    let cache = Cache::<String, u64>::builder(&runtime).weigher(|key, _| key.capacity()).build().unwrap();
    let (loads, begin) = (AtomicUsize::new(0), Barrier::new(THREADS));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                begin.wait();
                let value = cache.get_or_insert_with_ref("key", || {
                    loads.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    1
                });
                assert_eq!(value, 1);
            });
        }
    });
    assert_eq!(loads.load(Ordering::Relaxed), 1);
}

#[test]
fn many_keys_are_looked_up_in_order_and_count_as_used() {
    let runtime = runtime(ByteSize::mib(4));
    let cache = cache(&runtime);
    for key in (0..1000).step_by(2) {
        cache.insert(key, vec![key as u8; 10]).unwrap();
    }
    // Around powers of two, where a lookup in batches would err.
    for count in [0, 1, 63, 64, 65, 128, 1000] {
        let keys: Vec<u64> = (0..count).collect();
        let values = cache.get_many(&keys);
        assert_eq!(values.len(), keys.len());
        for (key, value) in keys.iter().zip(values) {
            assert_eq!(value, (key % 2 == 0).then(|| vec![*key as u8; 10]), "{key}");
        }
    }
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (662, 659), "half of all, the even one first");
    // By a borrowed form of the key.
    let texts = Cache::<String, u64>::builder(&runtime).weigher(|key, _| key.capacity()).build().unwrap();
    texts.insert("b".into(), 2).unwrap();
    assert_eq!(texts.get_many(["a", "b"]), [None, Some(2)]);
}

#[test]
fn absent_keys_are_loaded_by_one_call_each_once() {
    let runtime = runtime(ByteSize::mib(1));
    let cache = cache(&runtime);
    cache.insert(2, vec![2]).unwrap();
    let asked = Cell::new(0);
    let load = |keys: &[u64]| {
        asked.set(asked.get() + 1);
        assert_eq!(keys, [5, 1, 9]);
        Ok::<_, &str>(keys.iter().map(|key| vec![*key as u8]).collect())
    };
    let values = cache.get_or_load_many([5, 2, 1, 5, 9, 2, 1], load).unwrap();
    assert_eq!(values, [5, 2, 1, 5, 9, 2, 1].map(|key| vec![key]));
    assert_eq!(asked.get(), 1);
    assert_eq!((cache.len(), cache.stats().loads), (4, 3));
    let all: Result<_, &str> = cache.get_or_load_many([9, 5], |_| panic!("all are there"));
    assert_eq!(all, Ok(vec![vec![9], vec![5]]));
    assert_eq!(cache.get_or_load_many([], |_| Err("not called")), Ok(vec![]));
    // An error inserts nothing.
    assert_eq!(cache.get_or_load_many([9, 77], |_| Err("no")), Err("no"));
    assert_eq!(cache.get(&77), None);
    // A value that is inserted meanwhile stays.
    let late = cache.get_or_load_many([10], |_| {
        cache.insert(10, vec![1]).unwrap();
        Ok::<_, &str>(vec![vec![0]])
    });
    assert_eq!((late, cache.get(&10)), (Ok(vec![vec![0]]), Some(vec![1])));
    // A value that is rejected is returned.
    let large = cache.get_or_load_many([11], |_| Ok::<_, &str>(vec![vec![0; 2 << 20]])).unwrap();
    assert_eq!((large[0].len(), cache.get(&11)), (2 << 20, None));
}

/// Each of the two loads waits until the other one has begun.
#[test]
fn concurrent_loads_of_many_keys_are_not_shared() {
    let runtime = runtime(ByteSize::mib(1));
    let (cache, begun) = (cache(&runtime), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for n in 0..2 {
            let (cache, begun) = (&cache, &begun);
            scope.spawn(move || {
                let values = cache.get_or_load_many([1], |_| {
                    begun.fetch_add(1, Ordering::Relaxed);
                    until("the other load has begun", || begun.load(Ordering::Relaxed) == 2);
                    Ok::<_, &str>(vec![vec![n]])
                });
                assert_eq!(values, Ok(vec![vec![n]]));
            });
        }
    });
    assert_eq!(cache.stats().loads, 2);
}

#[test]
fn the_origin_of_each_of_many_values_is_told() {
    let runtime = runtime(ByteSize::kib(64));
    let cache = cache(&runtime);
    cache.insert(1, vec![1]).unwrap();
    let filled = cache.get_or_fill_many([1, 2, 3, 4, 3], |keys| {
        assert_eq!(keys, [2, 3, 4]);
        cache.insert(4, vec![4]).unwrap();
        Ok::<_, &str>(vec![vec![2], vec![0; 1 << 20], vec![9]])
    });
    let filled = filled.unwrap();
    let is_rejected = |at: usize| matches!(filled[at].origin, Origin::Rejected(RejectReason::TooLarge { .. }));
    assert!(is_rejected(2) && is_rejected(4), "{:?}", filled[2].origin);
    assert_eq!([0, 1, 3].map(|at| filled[at].origin.clone()), [Origin::Cached, Origin::Loaded, Origin::Outrun]);
    assert_eq!([0, 1, 3].map(|at| filled[at].value.clone()), [1, 2, 9].map(|value| vec![value]));
    assert_eq!([1, 2, 3, 4].map(|key| cache.get(&key)), [Some(vec![1]), Some(vec![2]), None, Some(vec![4])]);
    assert_eq!(cache.stats().rejected, 1);
}

#[test]
#[should_panic(expected = "the load of 2 keys returned 1 values")]
fn a_load_that_returns_too_few_values_is_a_fault() {
    let runtime = runtime(ByteSize::mib(1));
    let _ = cache(&runtime).get_or_load_many([1, 2], |_| Ok::<_, &str>(vec![vec![]]));
}

#[test]
fn the_origin_of_a_value_is_told() {
    let runtime = runtime(ByteSize::kib(64));
    let cache = cache(&runtime);
    let fill = |key: u64, bytes: usize| cache.entry(key).or_try_fill_with(|| Ok::<_, &str>(vec![0; bytes])).unwrap();
    assert_eq!(fill(1, 10).origin, Origin::Loaded);
    assert_eq!(fill(1, 10).origin, Origin::Cached);
    let large = fill(2, 1 << 20);
    assert!(matches!(large.origin, Origin::Rejected(RejectReason::TooLarge { .. })), "{:?}", large.origin);
    assert_eq!(large.value.len(), 1 << 20);
    assert_eq!(cache.stats().rejected, 1);
    // A value that another thread has inserted during the load stays.
    let outrun = cache.entry(3).or_try_fill_with(|| {
        cache.insert(3, vec![3]).unwrap();
        Ok::<_, &str>(vec![])
    });
    assert_eq!((outrun.unwrap().origin, cache.get(&3)), (Origin::Outrun, Some(vec![3])));
    // A follower gets the leader's value. A thread that starts after the load finds the cached
    // value: try another key.
    let is_shared = (100..150).any(|key| {
        let [led, followed] = lead_and_follow(&cache, key, || vec![4], || vec![5]);
        assert_eq!((led.origin, &followed.value), (Origin::Loaded, &vec![4]));
        assert!(matches!(followed.origin, Origin::Shared | Origin::Cached), "{:?}", followed.origin);
        followed.origin == Origin::Shared
    });
    assert!(is_shared, "no follower shared its leader's value");
}

/// Fills a key on two threads: the second one begins during the load of the first one.
fn lead_and_follow(
    cache: &Cache<u64, Vec<u8>>,
    key: u64,
    lead: impl Fn() -> Vec<u8> + Sync,
    follow: impl Fn() -> Vec<u8>,
) -> [Filled<Vec<u8>>; 2] {
    let began = Barrier::new(2);
    std::thread::scope(|scope| {
        let led = scope.spawn(|| {
            cache.entry(key).or_try_fill_with(|| {
                began.wait();
                std::thread::sleep(std::time::Duration::from_millis(100));
                Ok::<_, &str>(lead())
            })
        });
        began.wait();
        let followed = cache.entry(key).or_try_fill_with(|| Ok::<_, &str>(follow()));
        [led.join().unwrap().unwrap(), followed.unwrap()]
    })
}

/// A follower gets its leader's value also if the cache has rejected it.
#[test]
fn a_shared_value_may_be_in_no_cache() {
    let runtime = runtime(ByteSize::kib(64));
    let cache = cache(&runtime);
    let large = || vec![0; 1 << 20];
    // A thread that starts after the load loads itself: try another key.
    let is_shared = (0..50).any(|key| {
        let [led, followed] = lead_and_follow(&cache, key, large, large);
        assert!(matches!(led.origin, Origin::Rejected(RejectReason::TooLarge { .. })));
        followed.origin == Origin::Shared
    });
    assert!(is_shared && cache.is_empty());
}

/// Values without room are the caller's: their bytes are in no count, unless they are charged
/// before.
#[test]
fn the_value_of_a_load_without_room_is_not_counted() {
    let runtime = runtime(ByteSize::mib(1));
    let builder = Cache::<u64, Charged<Vec<u8>>>::builder(&runtime).charge_held_values();
    let weigher = |_: &u64, value: &Charged<Vec<u8>>| Charged::<Vec<u8>>::BYTES + ByteSize::from(value.len());
    let cache = builder.weigher(weigher).build().unwrap();
    let counted = || {
        runtime.tree().drain_stock();
        runtime.root().usage() + runtime.stats().retired
    };
    let small = cache.get_or_insert_with(1, || vec![0; 1000].into());
    let before = counted();
    assert!(before >= ByteSize::new(1000) && small.len() == 1000);
    let large: Vec<_> = (2..10).map(|key| cache.get_or_insert_with(key, || vec![0; 2 << 20].into())).collect();
    assert_eq!((large.len(), cache.len(), counted()), (8, 1, before), "16 MiB beside a budget of 1 MiB");
    // A charge that was dropped may be another's; one in a value stays.
    let charge = |bytes| runtime.charge_guard(cache.group(), bytes);
    let kept = Charged::new(vec![0; 600 << 10], charge(ByteSize::kib(600)).unwrap());
    assert!(charge(ByteSize::kib(600)).is_err());
    drop(kept);
    assert!(charge(ByteSize::kib(600)).is_ok());
}

/// Bytes can be reserved before a large load, so that memory is free when the value is there.
#[test]
fn bytes_that_are_reserved_before_a_load_are_free_for_its_value() {
    const LARGE: usize = 600 << 10;
    // A slow machine needs longer than a charge waits by default.
    let time = std::time::Duration::from_secs(60);
    let one_node = Arc::new(Fixed::new(1));
    let builder = Runtime::builder().budget(ByteSize::mib(1)).topology(one_node);
    let runtime = builder.direct_time_max(time).build().unwrap();
    let cache = cache(&runtime);
    for key in 0..1000 {
        cache.insert(key, vec![0; 1000]).unwrap();
    }
    let reserved = runtime.charge_guard(cache.group(), ByteSize::from(LARGE)).unwrap();
    // Room was made by evictions, before anything is loaded.
    assert!(cache.stats().bytes <= ByteSize::mib(1) - ByteSize::from(LARGE));
    let evicted = cache.stats().evictions;
    let value = vec![0; LARGE];
    drop(reserved);
    cache.insert(1_000_000, value).unwrap();
    // The reclaimer may evict some entries meanwhile, and so may the insert, if the thread has
    // changed to a processor without a stock. Without the reserved room it would evict about 580.
    assert!(cache.stats().evictions <= evicted + 300, "the insert found the reserved room");
    // A refusal is known before the load.
    assert!(runtime.charge_guard(cache.group(), ByteSize::mib(2)).is_err());
}
