//! Overwrites: a value that replaces another in the same place, and the cases that are left to the
//! general insert.
//!
//! An overwrite in place must be indistinguishable from the general insert, except for its cost and
//! the entry's position.

use super::{cache_of, entry_bytes, eventually, on_one_processor, wait_for_reclaimer};
use crate::cache::{Computed, Eviction, Lifetime, Op, RemovalCause};
use crate::{topology, ByteSize, Cache, Memcg, Runtime};
use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// Returns the root's usage without stock.
fn used(runtime: &Runtime) -> u64 {
    runtime.tree().drain_stock();
    runtime.root().usage().get()
}

/// Returns a cache in this order that was filled until it evicted, and the youngest of its keys.
fn full(eviction: Eviction) -> (Runtime, Cache<u64, u64>, u64) {
    let topology = Arc::new(topology::Fixed::new(1));
    let runtime = Runtime::builder().budget(ByteSize::kib(256)).topology(topology).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).eviction(eviction).build().unwrap();
    let mut key = 0;
    while cache.stats().evictions == 0 {
        key += 1;
        cache.insert(key, key).unwrap();
    }
    wait_for_reclaimer(&runtime);
    let present = (0..=key).rev().find(|key| cache.contains_key(key)).unwrap();
    (runtime, cache, present)
}

#[test]
fn an_overwrite_in_a_full_cache_evicts_nothing_and_charges_nothing() {
    for eviction in [Eviction::Adaptive, Eviction::S3Fifo, Eviction::Sieve, Eviction::SecondChance] {
        let (runtime, cache, key) = full(eviction);
        let (before, usage) = (cache.stats(), runtime.root().usage());
        for round in 1..=10_000_u64 {
            let old = cache.insert(key, round).unwrap();
            assert_eq!(old, Some(if round == 1 { key } else { round - 1 }));
        }
        let after = cache.stats();
        assert_eq!((after.inserts - before.inserts, after.replaced - before.replaced), (10_000, 10_000));
        assert_eq!((after.evictions, after.bytes), (before.evictions, before.bytes), "{eviction:?}");
        assert_eq!(runtime.root().usage(), usage, "{eviction:?}");
        assert_eq!(cache.get(&key), Some(10_000));
    }
}

#[test]
fn only_the_difference_of_two_charges_is_charged() {
    let cache = cache_of(ByteSize::mib(1));
    let runtime = cache.runtime().clone();
    cache.insert(1, vec![0; 1_000]).unwrap();
    for bytes in [1_000, 500, 4_000, 0, 100_000, 7] {
        let computed = cache.entry(1).and_compute(|_| Op::Put(vec![0; bytes])).unwrap();
        assert!(matches!(computed, Computed::Replaced(_)));
        assert_eq!(used(&runtime), bytes as u64 + entry_bytes());
        assert_eq!((cache.stats().bytes.get(), cache.len()), (used(&runtime), 1));
    }
    assert!(cache.insert(1, vec![0; 2 << 20]).is_err(), "larger than the budget");
    assert_eq!((used(&runtime), cache.get(&1).map(|value| value.len())), (7 + entry_bytes(), Some(7)));
    cache.remove(&1);
    assert_eq!(used(&runtime), 0);
}

#[test]
fn an_overwrite_keeps_the_place_and_counts_as_a_use() {
    assert_write_is_a_use(|cache, key| drop(cache.insert(key, 1)));
    assert_write_is_a_use(|cache, key| drop(cache.entry(key).and_compute(|_| Op::Put(1))));
    assert_write_is_a_use(|cache, key| drop(cache.entry(key).and_compute(|_| Op::Update(1))));
}

fn assert_write_is_a_use(write: impl Fn(&Cache<u64, u64>, u64)) {
    let (runtime, cache, _) = full(Eviction::SecondChance);
    cache.retain(|_, _| false);
    (0..3_000).for_each(|key| drop(cache.insert(key, 0)));
    // Overwritten entries are passed over once; the others leave, oldest first.
    (0..10).for_each(|key| write(&cache, key));
    let evict = |entries: u64| {
        runtime.reclaim(runtime.root(), ByteSize::new(entries * Cache::<u64, u64>::ENTRY_BYTES.get()));
    };
    evict(100);
    assert!((0..10).all(|key| cache.contains_key(&key)), "a write is a use");
    assert!(!cache.contains_key(&10), "the oldest entry that was not written");
    assert!(cache.contains_key(&2_999));
    // No entry is used any more, so they leave in their order, in which 0 to 9 are the last now.
    while cache.contains_key(&2_999) {
        assert!((0..10).all(|key| cache.contains_key(&key)), "the hand has passed 0 to 9");
        evict(1);
    }
}

#[test]
fn an_overwrite_notifies_of_the_old_value_and_sets_the_new_deadline() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .eviction_listener(move |key, value, cause| heard.lock().unwrap().push((*key, *value, cause)))
        .build()
        .unwrap();
    cache.insert(1, 10).unwrap();
    cache.entry(1).time_to_live(Duration::from_secs(3_600)).insert(11).unwrap();
    let left = |cache: &Cache<u64, u64>| {
        let mut left = None;
        cache.entry(1).and_compute(|current| {
            left = current.and_then(|current| current.time_left());
            Op::Keep
        })?;
        Ok::<_, crate::cache::InsertError<u64>>(left)
    };
    assert!(left(&cache).unwrap().is_some_and(|left| left > Duration::from_secs(3_000)));
    // The time of the old value is kept by `Update`, and ends with `Put`.
    cache.entry(1).and_compute(|_| Op::Update(12)).unwrap();
    assert!(left(&cache).unwrap().is_some());
    cache.entry(1).and_compute(|_| Op::Put(13)).unwrap();
    assert_eq!(left(&cache).unwrap(), None);
    let replaced = |value| (1, value, RemovalCause::Replaced);
    assert_eq!(*told.lock().unwrap(), [replaced(10), replaced(11), replaced(12)]);
}

#[test]
fn an_overwrite_changes_the_group_only_if_named() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    let (a, b) = (runtime.group("a").unwrap(), runtime.group("b").unwrap());
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let usage = |group: &Memcg| {
        runtime.tree().drain_stock();
        group.usage().get() / Cache::<u64, u64>::ENTRY_BYTES.get()
    };
    cache.entry(1).group(&a).insert(1).unwrap();
    cache.insert(1, 2).unwrap();
    cache.entry(1).group(&a).insert(3).unwrap();
    assert_eq!((usage(&a), usage(&b), usage(runtime.root())), (1, 0, 1));
    cache.entry(1).group(&b).insert(4).unwrap();
    assert_eq!((usage(&a), usage(&b), usage(runtime.root())), (0, 1, 1));
    assert_eq!((cache.get(&1), cache.stats().replaced), (Some(4), 3));
}

/// While an overwrite computes its deadline, the cache's group ends, and another overwrite of the
/// entry is charged to the root. The first overwrite must then not uncharge the ended group.
#[test]
fn an_overwrite_after_the_end_of_the_caches_group_leaves_exact_bytes() {
    on_one_processor(|| {
        let runtime = Runtime::builder().budget(ByteSize::mib(16)).build().unwrap();
        let group = runtime.group("own").unwrap();
        let this = Arc::new(OnceLock::<Weak<Cache<u64, Vec<u8>>>>::new());
        let in_deadline = Arc::clone(&this);
        let cache = Cache::builder(&runtime).group(&group).weigher(|_, value: &Vec<u8>| value.capacity()).expire_after(
            move |_, value, _| {
                let cache = in_deadline.get().and_then(Weak::upgrade);
                if let (1, Some(cache)) = (value.len(), cache) {
                    let (runtime, root) = (cache.runtime(), cache.runtime().root());
                    runtime.end_group(&runtime.find_group("own").unwrap()).unwrap();
                    // Fills the root's stock, from which the larger value is paid.
                    (0..3).for_each(|_| runtime.charge(root, ByteSize::new(1)).unwrap());
                    assert_eq!(cache.insert(1, vec![0; 20_000]).unwrap().map(|old| old.len()), Some(100));
                }
                Lifetime::Forever
            },
        );
        let cache = Arc::new(cache.build().unwrap());
        this.set(Arc::downgrade(&cache)).unwrap();
        cache.insert(1, vec![0; 100]).unwrap();
        assert_eq!(cache.insert(1, vec![0; 1]).unwrap().map(|old| old.len()), Some(20_000));
        assert_eq!(used(&runtime), 1 + entry_bytes() + 3);
        cache.remove(&1);
        runtime.root().uncharge(ByteSize::new(3));
        assert_eq!(used(&runtime), 0);
    });
}

thread_local! { static ARMED: Cell<bool> = const { Cell::new(false) }; }

/// A value whose `Clone` panics while a flag is set.
struct Touchy(u64);

impl Clone for Touchy {
    fn clone(&self) -> Self {
        assert!(!ARMED.get(), "the value's own fault");
        Self(self.0)
    }
}

#[test]
fn a_clone_or_a_weigher_that_panics_leaves_one_charged_value() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    let cache = Cache::<u64, Touchy>::builder(&runtime)
        .weigher(|_, value| match value.0 {
            13 => panic!("the weigher's own fault"),
            weight => ByteSize::new(weight),
        })
        .build()
        .unwrap();
    let insert = |value| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cache.insert(1, Touchy(value))));
    let base = Cache::<u64, Touchy>::ENTRY_BYTES.get();
    insert(100).unwrap().unwrap();
    assert!(insert(13).is_err());
    assert_eq!((used(&runtime), cache.get(&1).map(|value| value.0)), (base + 100, Some(100)));
    for value in [200, 50] {
        ARMED.set(true);
        assert!(insert(value).is_err(), "the old value cannot be cloned");
        ARMED.set(false);
        assert_eq!((used(&runtime), cache.get(&1).map(|value| value.0)), (base + value, Some(value)));
        assert_eq!((cache.len(), cache.stats().bytes.get()), (1, base + value));
    }
    cache.clear();
    assert_eq!(used(&runtime), 0);
}

#[test]
fn a_panicking_cost_function_leaves_the_old_value() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .recreation_cost(|_, value| if *value == 13 { panic!("the cost's own fault") } else { 7 })
        .build()
        .unwrap();
    cache.insert(1, 10).unwrap();
    let before = (cache.len(), cache.stats(), used(&runtime));
    let insert = std::panic::AssertUnwindSafe(|| cache.insert(1, 13));
    assert!(std::panic::catch_unwind(insert).is_err());
    assert_eq!((cache.len(), cache.stats(), used(&runtime)), before);
    assert_eq!((cache.insert(1, 11).unwrap(), cache.peek(&1)), (Some(10), Some(11)));
}

#[test]
fn a_value_is_weighed_once_and_without_a_pin() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    let calls = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    // The weigher keeps so much in another cache that a pin would hold back more than is allowed.
    let other = Cache::<u64, Vec<u8>>::builder(&runtime)
        .weigher(|_, value: &Vec<u8>| ByteSize::new(value.len() as u64))
        .build()
        .unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(move |_, value| {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if *value == 2 {
                // Pins of other tests hold memory back for a while; a pin of this thread would do
                // so until the weigher returns.
                for n in 0..400_u64 {
                    let is_stored = || other.insert(n % 2, vec![0; 100_000]).is_ok();
                    eventually(Duration::from_secs(60), "no reader holds memory back", is_stored);
                }
            }
            ByteSize::ZERO
        })
        .build()
        .unwrap();
    let group = runtime.group("other").unwrap();
    // A new key, an overwrite in its place, and one that moves the entry.
    assert_eq!(cache.insert(1, 1).unwrap(), None);
    assert_eq!(cache.insert(1, 2).unwrap(), Some(1));
    assert_eq!(cache.entry(1).group(&group).insert(3).unwrap(), Some(2));
    assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 3);
}

#[test]
fn concurrent_overwrites_and_removals_leave_exact_byte_counts() {
    let cache = cache_of(ByteSize::mib(4));
    let runtime = cache.runtime().clone();
    let rounds = if cfg!(miri) { 20 } else { 5_000_usize };
    std::thread::scope(|s| {
        for thread in 0..4_usize {
            let cache = &cache;
            s.spawn(move || {
                for round in 0..rounds {
                    match (round + thread) % 8 {
                        0 => drop(cache.remove(&1)),
                        1 => drop(cache.entry(1).and_compute(|_| Op::Put(vec![0; round % 300]))),
                        _ => drop(cache.insert(1, vec![0; round % 700])),
                    }
                }
            });
        }
    });
    let (len, bytes) = (cache.len(), cache.stats().bytes.get());
    assert_eq!(bytes, cache.get(&1).map_or(0, |value| value.len() as u64 + entry_bytes()));
    assert_eq!((used(&runtime), len), (bytes, usize::from(cache.contains_key(&1))));
    cache.remove(&1);
    assert_eq!(used(&runtime), 0);
    let stats = cache.stats();
    assert_eq!(stats.inserts, stats.replaced + stats.removed + stats.evictions);
}
