//! The index and the slab as used by the cache: borrowed values, complete walks, misbehaving keys,
//! and memory.
//!
//! A key may hash differently or panic at any call; then its entry may become unfindable, but never
//! uncharged or leaked.
//!
//! A change must ensure that bytes are checked after each fault of a key.

use super::{cache_of, entry_bytes, eventually, one_node};
use crate::cache::{RemovalCause, Visit};
use crate::runtime::WorkTime;
use crate::{ByteSize, Cache, Runtime};
use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The time limit of a wait.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_borrowed_value_outlives_its_entry() {
    let cache = cache_of(ByteSize::mib(1));
    cache.insert(1, vec![1]).unwrap();
    cache.insert(2, vec![2]).unwrap();
    let pinned = cache.pin();
    let (one, two) = (pinned.get(&1).unwrap(), pinned.peek(&2).unwrap());
    assert!(pinned.get(&3).is_none());
    cache.insert(1, vec![3]).unwrap();
    cache.remove(&2);
    assert_eq!((one, two), (&vec![1], &vec![2]));
    assert_eq!((pinned.get(&1), pinned.get(&2)), (Some(&vec![3]), None));
    assert!(cache.collect() > ByteSize::ZERO, "no record waits for this reader");
    drop(pinned);
    assert_eq!((cache.stats().hits, cache.stats().misses), (2, 2));
}

#[test]
fn iteration_visits_each_live_entry_once() {
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    for key in 0..5_000 {
        cache.insert(key, 2 * key).unwrap();
    }
    cache.entry(7).time_to_live(Duration::ZERO).insert(7).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    let (mut at, mut seen, mut steps) = (Visit::new(), HashMap::new(), 0);
    while !at.is_done() {
        cache.visit(&mut at, |&key, &value| assert!(seen.insert(key, value).is_none(), "{key} twice"));
        steps += 1;
    }
    assert!(steps > 4, "{steps} steps");
    let pinned = cache.pin();
    let all: HashMap<_, _> = pinned.iter().map(|(&key, &value)| (key, value)).collect();
    assert_eq!(all, seen);
    assert_eq!(all, (0..5_000).filter(|&key| key != 7).map(|key| (key, 2 * key)).collect());
}

#[test]
fn retain_removes_unwanted_entries_and_calls_the_listener() {
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).build().unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let theirs = told.clone();
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .eviction_listener(move |key, _, cause| {
            assert!(key % 3 != 0 && cause == RemovalCause::Explicit);
            theirs.fetch_add(1, Ordering::Relaxed);
        })
        .build()
        .unwrap();
    (0..3_000).for_each(|key| drop(cache.insert(key, key)));
    cache.retain(|key, _| key % 3 == 0);
    assert_eq!((cache.len(), told.load(Ordering::Relaxed)), (1_000, 2_000));
    assert!((0..3_000).all(|key| cache.contains_key(&key) == (key % 3 == 0)));
    let panicking =
        std::panic::AssertUnwindSafe(|| cache.retain(|key, _| *key != 1_500 || panic!("the caller's own fault")));
    assert!(std::panic::catch_unwind(panicking).is_err());
    assert_eq!(cache.len(), 1_000);
}

thread_local! { static ARMED: Cell<bool> = const { Cell::new(false) }; }

/// A key that panics while this thread's flag is set: 13 in `Hash`, and 14 in a comparison.
#[derive(Clone, Debug)]
struct Touchy(u64);

impl Hash for Touchy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert!(!ARMED.get() || self.0 != 13, "the key's own fault");
        self.0.hash(state);
    }
}

impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        assert!(!ARMED.get() || self.0 != 14, "the key's own fault");
        self.0 == other.0
    }
}

impl Eq for Touchy {}

#[test]
fn panicking_keys_leave_nothing_charged() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    let cache = Cache::<Touchy, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let usage = || {
        runtime.tree().drain_stock();
        runtime.root().usage()
    };
    (0..20).for_each(|key| drop(cache.insert(Touchy(key), key)));
    let before = usage();
    ARMED.set(true);
    for key in [13, 14] {
        let insert = std::panic::AssertUnwindSafe(|| cache.insert(Touchy(key), 0));
        assert!(std::panic::catch_unwind(insert).is_err(), "{key}");
        assert_eq!((usage(), cache.len()), (before, 20));
    }
    assert!((0..12).all(|key| cache.get(&Touchy(key)) == Some(key)), "a lock is still held");
    ARMED.set(false);
    assert!((0..20).all(|key| cache.remove(&Touchy(key)) == Some(key)));
    assert_eq!(usage(), ByteSize::ZERO);
}

thread_local! {
    /// The only key that this thread can hash, if set.
    static ALONE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// A hasher that panics for all keys on all threads while its flag is set; and on a thread that has
/// set `ALONE`, for all keys but that one.
#[derive(Clone, Default)]
struct Failing(Arc<AtomicBool>);

struct FailingHasher(u64, Failing);

impl BuildHasher for Failing {
    type Hasher = FailingHasher;

    fn build_hasher(&self) -> FailingHasher {
        FailingHasher(0, self.clone())
    }
}

impl Hasher for FailingHasher {
    fn finish(&self) -> u64 {
        let alone = ALONE.get().is_none_or(|key| key == self.0);
        if !alone || self.1 .0.load(Ordering::Relaxed) {
            // Without the panic hook, which takes longer than a walk over an index.
            std::panic::resume_unwind(Box::new("the hasher's own fault"));
        }
        self.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
    }
}

#[test]
fn an_entry_with_a_panicking_hash_stays_charged_until_found() {
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).topology(one_node()).build().unwrap();
    let failing = Failing::default();
    let cache = Cache::<u64, u64>::builder(&runtime).hasher(failing.clone()).weigher(|_, _| ByteSize::new(100));
    let cache = cache.build().unwrap();
    let (group, entry) = (runtime.group("g").unwrap(), 100 + Cache::<u64, u64>::ENTRY_BYTES.get());
    let books = || {
        runtime.tree().drain_stock();
        assert_eq!(runtime.root().usage().get(), cache.len() as u64 * entry);
        assert_eq!(cache.inner.core.queues.count_node(lowwater_lru_core::NodeId::ZERO), cache.len() as u64);
        cache.len()
    };
    for key in 0..100 {
        cache.entry(key).group(if key < 50 { &group } else { runtime.root() }).insert(key).unwrap();
    }
    failing.0.store(true, Ordering::Relaxed);
    assert_eq!(runtime.drop_caches(), 0, "a record was found");
    assert_eq!(runtime.reclaim(runtime.root(), ByteSize::mib(1)), ByteSize::ZERO);
    assert_eq!(books(), 100);
    // A dropped group is emptied by a walk over the index, which needs no hash.
    runtime.drop_group(&group).unwrap();
    // The housekeeper drains the group's stock after the group has gone offline.
    let is_charged_right = || {
        runtime.tree().drain_stock();
        runtime.root().usage().get() == 50 * entry
    };
    eventually(PATIENCE, "the dropped group ends", || !group.is_online() && is_charged_right());
    failing.0.store(false, Ordering::Relaxed);
    assert_eq!((books(), cache.len_of(runtime.root())), (50, 50), "records of the dropped group remain");
    assert_eq!(runtime.drop_caches(), 50);
    assert_eq!(books(), 0);
}

/// Two walks have isolated a record each, and neither key can be hashed now. Another thread has
/// removed one record from the index: it leaves the handle to the walk, which must finish it.
#[test]
fn a_removed_record_is_not_put_back() {
    use crate::cache::policy::queue::Queue;
    use lowwater_lru_core::NodeId;

    let runtime = Runtime::builder().unlimited().topology(one_node()).build().unwrap();
    let failing = Failing::default();
    let cache = Cache::<u64, u64>::builder(&runtime).hasher(failing.clone()).weigher(|_, _| ByteSize::new(100));
    let cache = cache.build().unwrap();
    let (core, root) = (&cache.inner.core, runtime.root());
    (0..2).for_each(|key| drop(cache.insert(key, key)));
    let mut isolated = [Queue::Probation, Queue::Main].map(|queue| core.queues.take(queue, root, NodeId::ZERO, 10));
    assert_eq!(cache.remove(&0), Some(0));
    failing.0.store(true, Ordering::Relaxed);
    let mut finished = ByteSize::ZERO;
    for record in isolated.iter_mut().flat_map(|isolated| std::iter::from_fn(|| isolated.pop())) {
        let is_removed = record.key == 0;
        let freed = core.put_back(record, RemovalCause::Size, root);
        assert_eq!(freed.is_some(), is_removed);
        finished = freed.unwrap_or(finished);
    }
    root.uncharge(finished);
    assert_eq!(finished.get(), 100 + Cache::<u64, u64>::ENTRY_BYTES.get());
    assert_eq!((cache.len() as u64, core.queues.count_node(NodeId::ZERO), cache.stats().removed), (1, 1, 1));
}

/// The processor time in which a cache of `entries` entries, whose keys cannot be hashed, puts 64
/// back.
fn time_to_put_back(entries: u64) -> Duration {
    let runtime = Runtime::builder().unlimited().topology(one_node()).build().unwrap();
    let failing = Failing::default();
    let cache = Cache::<u64, u64>::builder(&runtime).hasher(failing.clone()).weigher(|_, _| ByteSize::ZERO);
    let cache = cache.build().unwrap();
    (0..entries).for_each(|key| drop(cache.insert(key, key)));
    failing.0.store(true, Ordering::Relaxed);
    // The least of several times: other threads may have taken the processor's caches.
    let times = (0..5).map(|_| {
        let mut time = WorkTime::start();
        let evicted = cache.inner.core.evict(runtime.root(), lowwater_lru_core::NodeId::ZERO, 64);
        assert_eq!((evicted.scanned, evicted.freed), (64, 0));
        time.lap(Duration::MAX)
    });
    times.min().unwrap()
}

#[test]
fn the_cost_of_a_panicking_hash_does_not_grow_with_the_index() {
    let (few, many) = (time_to_put_back(1_000), time_to_put_back(64_000));
    assert!(many < 16 * few, "{few:?} with a 64th of the entries, {many:?} with all");
}

#[test]
fn inserts_complete_even_if_other_keys_panic_in_hash() {
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).hasher(Failing::default()).weigher(|_, _| ByteSize::new(100));
    let cache = cache.build().unwrap();
    for key in 0..2_000 {
        ALONE.set(Some(key));
        cache.insert(key, key).unwrap();
        assert_eq!(cache.get(&key), Some(key));
    }
    ALONE.set(None);
    assert_eq!(cache.len(), 2_000, "hidden entries stay until they are evicted or cleared");
    let found = (0..2_000).filter(|key| cache.contains_key(key)).count();
    assert!(found < 1_000, "{found} entries are found");
    // Their keys can be hashed now, but no lookup finds them.
    assert_eq!(runtime.drop_caches(), 2_000);
    runtime.tree().drain_stock();
    assert_eq!((cache.len(), runtime.root().usage()), (0, ByteSize::ZERO));
}

#[test]
fn a_removal_completes_even_if_other_keys_panic_in_hash() {
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).build().unwrap();
    let (slot, told) = (Arc::new(Mutex::new(None::<Cache<u64, u64, Failing>>)), Arc::new(AtomicUsize::new(0)));
    let (theirs, count) = (Arc::clone(&slot), Arc::clone(&told));
    let cache = Cache::<u64, u64>::builder(&runtime)
        .hasher(Failing::default())
        .weigher(|_, _| ByteSize::new(100))
        .eviction_listener(move |key, _, _| {
            // Would deadlock if the lock of the segment that was to shrink were still held.
            let cache = theirs.lock().unwrap().clone().unwrap();
            assert_eq!(cache.remove(key), None);
            count.fetch_add(1, Ordering::Relaxed);
        })
        .build()
        .unwrap();
    *slot.lock().unwrap() = Some(cache.clone());
    for key in 0..300 {
        cache.insert(key, key).unwrap();
    }
    for key in 0..300 {
        ALONE.set(Some(key));
        assert_eq!(cache.remove(&key), Some(key));
    }
    ALONE.set(None);
    runtime.tree().drain_stock();
    assert_eq!((cache.len(), runtime.root().usage(), told.load(Ordering::Relaxed)), (0, ByteSize::ZERO, 300));
    assert_eq!(cache.stats().listener_panics, 0);
    *slot.lock().unwrap() = None;
}

#[test]
fn values_are_dropped_once_each() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let runtime = Runtime::builder().budget(ByteSize::kib(256)).build().unwrap();
    let cache = Cache::<u64, Arc<Counted>>::builder(&runtime).weigher(|_, _| ByteSize::new(100)).build().unwrap();
    for n in 0..20_000_u64 {
        drop(cache.insert(n % 7_000, Arc::new(Counted(dropped.clone()))));
    }
    drop(cache);
    drop(runtime);
    assert_eq!(dropped.load(Ordering::Relaxed), 20_000);
}

#[test]
fn a_time_to_live_does_not_end_early() {
    // No upper bound is asserted: on a busy machine the loop may see the end late.
    let cache = cache_of(ByteSize::mib(1));
    let begin = std::time::Instant::now();
    cache.entry(1).time_to_live(Duration::from_millis(30)).insert(vec![]).unwrap();
    while cache.peek(&1).is_some() {
        assert!(begin.elapsed() < PATIENCE, "the entry does not expire");
    }
    let lived = begin.elapsed();
    assert!(lived >= Duration::from_millis(30), "expired too early: {lived:?}");
}

#[test]
fn entry_bytes_are_those_of_the_record_its_index_slot_and_its_ghost() {
    // 24 bytes of a record are beside its key and its value.
    assert_eq!(Cache::<u64, u64>::ENTRY_BYTES.get(), 24 + 8 + 8 + 8 + 8);
    assert_eq!(entry_bytes(), 24 + 8 + size_of::<Vec<u8>>() as u64 + 8 + 8);
}

#[test]
fn lazily_allocated_parts_are_in_the_footprint() {
    let cache = cache_of(ByteSize::mib(16));
    let core = &cache.inner.core;
    assert_eq!((core.counters.footprint(), core.sweeps.footprint()), (0, 0));
    let empty = cache.footprint().get();
    let sweeps = || core.sweeps.footprint() as u64;
    core.sweeps.sweep.get_or_init(Box::default);
    assert!(sweeps() >= 32, "{} bytes", sweeps());
    assert_eq!(cache.footprint().get(), empty + sweeps());
    cache.insert(1, vec![]).unwrap();
    let counters = core.counters.footprint() as u64;
    assert!(counters >= 64, "{counters} bytes");
    assert!(cache.footprint().get() >= empty + counters + sweeps());
}

/// `tests/small_caches.rs` compares the footprint with the allocator. A bound here may be lowered;
/// raising it needs a reason.
#[test]
fn the_footprint_of_a_cache_a_tenant_and_an_entry_is_bounded() {
    let runtime = Runtime::builder().budget(ByteSize::mib(64)).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    // 24 of these bytes are the lists' link to the registry.
    assert!(cache.footprint() <= ByteSize::new(536), "an empty cache: {}", cache.footprint());
    let tenant = runtime.group("tenant").unwrap();
    cache.insert(0, 0).unwrap();
    let before = cache.footprint();
    cache.entry(1).group(&tenant).insert(1).unwrap();
    assert!(
        cache.footprint().get() - before.get() <= 256,
        "a tenant's first entry: {} after {before}",
        cache.footprint()
    );
    (0..200_000).for_each(|key| drop(cache.insert(key, key)));
    // Memory that the index has outgrown waits for readers of other tests.
    eventually(PATIENCE, "64 bytes for an entry", || {
        cache.collect();
        cache.footprint().get() / 200_000 <= 64
    });
    let full = cache.footprint().get();
    cache.clear();
    eventually(PATIENCE, "the memory is returned", || {
        cache.collect();
        cache.footprint().get() <= full / 8
    });
}

#[test]
fn the_allocator_is_trimmed_when_half_of_the_most_records_have_left() {
    const MOST: u32 = 1 << 17;
    let runtime = Runtime::builder().budget(ByteSize::mib(64)).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let most = || cache.inner.core.most.load(Ordering::Relaxed);
    (0..u64::from(MOST) / 2 + 1).for_each(|key| drop(cache.insert(key, key)));
    cache.inner.core.most.store(MOST, Ordering::Relaxed);
    cache.inner.core.trim();
    assert_eq!(most(), MOST, "trimmed with more than half of the records");
    cache.remove(&0);
    cache.inner.core.trim();
    assert_eq!(most(), MOST / 2);
    // Below this number of records (`TRIM_FROM` in `trim.rs`) a cache is not trimmed.
    cache.inner.core.most.store(MOST - 1, Ordering::Relaxed);
    cache.remove(&1);
    cache.inner.core.trim();
    assert_eq!(most(), MOST - 1);
}

/// A count reads the counters of all threads, so it is made only after a part of the entries has
/// left.
#[test]
fn entries_are_counted_again_when_a_64th_of_them_was_evicted() {
    let cache = cache_of(ByteSize::mib(1));
    let core = &cache.inner.core;
    core.queues.note_len(6_400, ByteSize::ZERO, core.notifier.ghosts());
    core.queues.note_evicted(99);
    assert!(!core.queues.is_count_due());
    core.queues.note_evicted(1);
    assert!(core.queues.is_count_due());
    core.queues.note_len(6_300, ByteSize::ZERO, core.notifier.ghosts());
    assert!(!core.queues.is_count_due(), "the next hundred begins");
}

#[test]
fn a_listener_sees_statistics_without_the_removed_entries() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    let (of_listener, seen) = (Arc::new(Mutex::new(None::<Cache<u64, u64>>)), Arc::new(Mutex::new(Vec::new())));
    let (cache_of, saw) = (Arc::clone(&of_listener), Arc::clone(&seen));
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .eviction_listener(move |_, _, _| {
            if let Some(cache) = &*cache_of.lock().unwrap() {
                let stats = cache.stats();
                saw.lock().unwrap().push((cache.len(), stats.removed, stats.bytes.get()));
            }
        })
        .build()
        .unwrap();
    *of_listener.lock().unwrap() = Some(cache.clone());
    cache.insert(1, 1).unwrap();
    cache.remove(&1);
    assert_eq!(*seen.lock().unwrap(), [(0, 1, 0)]);
    *of_listener.lock().unwrap() = None;
}

/// All entries are used, and the reclaimer keeps nothing free: an insert finds room nevertheless,
/// as a walk evicts regardless of uses after `SPARED_MAX` spared records.
#[test]
fn a_new_key_finds_room_among_entries_that_are_all_used() {
    use crate::cache::Eviction;
    let entries = if cfg!(miri) { 100 } else { 30_000 };
    for eviction in [Eviction::Adaptive, Eviction::S3Fifo, Eviction::Sieve, Eviction::SecondChance] {
        let budget = ByteSize::new(entries * Cache::<u64, u64>::ENTRY_BYTES.get());
        let runtime = super::without_reclaimer(budget).build().unwrap();
        let builder = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO);
        let cache = builder.eviction(eviction).build().unwrap();
        let (mut present, mut rejected) = (Vec::new(), 0);
        (0..2 * entries).for_each(|key| drop(cache.insert(key, key)));
        present.extend((0..2 * entries).filter(|key| cache.contains_key(key)));
        for key in 2 * entries..2 * entries + 20 {
            (0..3).for_each(|_| present.iter().for_each(|key| _ = cache.get(key)));
            rejected += u32::from(cache.insert(key, key).is_err());
        }
        assert_eq!(rejected, 0, "{eviction:?}");
    }
}

#[test]
fn a_record_removed_during_a_walk_is_credited_to_its_tenant() {
    use crate::cache::policy::queue::Queue;
    use crate::cache::shrink::{Evicted, EvictionSource};
    use lowwater_lru_core::NodeId;

    let cache = cache_of(ByteSize::mib(1));
    let (core, root) = (&cache.inner.core, cache.runtime().root());
    (0..2).for_each(|key| drop(cache.insert(key, vec![0; 100])));
    let isolated =
        [Queue::Probation, Queue::Main].map(|queue| (queue, core.queues.take(queue, root, NodeId::ZERO, 10)));
    assert_eq!(cache.remove(&0), Some(vec![0; 100]), "the walk has the handle, and finishes the removal");
    let mut gone = Evicted::default();
    for (queue, old) in isolated {
        let source = EvictionSource { memcg: root, queue, entries: 2, ghost_recorder: None };
        core.evict_batch(old, source, |_| RemovalCause::Size, &mut gone);
    }
    root.uncharge(gone.bytes);
    let entry = 100 + entry_bytes();
    assert_eq!((gone.freed, gone.bytes.get()), (2, 2 * entry));
    assert_eq!((cache.stats().removed, cache.stats().evictions, cache.len()), (1, 1, 0));
}

#[test]
fn lookups_during_a_shrink_see_only_inserted_values() {
    let cache = cache_of(ByteSize::mib(8));
    let stop = AtomicBool::new(false);
    let wrong = Mutex::new(None);
    std::thread::scope(|s| {
        for t in 0..2_u64 {
            let (cache, stop, wrong) = (&cache, &stop, &wrong);
            s.spawn(move || {
                let mut key = t + 1;
                while !stop.load(Ordering::Relaxed) {
                    key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let asked = (key >> 33) % 40_000;
                    if let Some(value) = cache.pin().get(&asked) {
                        if value.len() != 8 || value[..] != asked.to_le_bytes() {
                            *wrong.lock().unwrap() = Some((asked, value.clone()));
                        }
                    }
                }
            });
        }
        for round in 0..4 {
            (0..40_000_u64).for_each(|key| drop(cache.insert(key, key.to_le_bytes().to_vec())));
            cache.runtime().set_budget(if round % 2 == 0 { ByteSize::kib(512) } else { ByteSize::mib(8) });
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(wrong.into_inner().unwrap(), None);
    cache.inner.core.queues.assert_valid();
    cache.inner.core.index.assert_valid(&|entry| cache.inner.core.hash(&entry.key));
}

#[test]
fn rejected_inserts_keep_no_memory() {
    let cache = cache_of(ByteSize::kib(64));
    cache.insert(0, vec![0]).unwrap();
    let slab = cache.inner.core.index.slab();
    let before = slab.footprint();
    for key in 1..10_000 {
        let refused = cache.insert(key, vec![0; 65 << 10]).unwrap_err();
        assert_eq!(refused.value.len(), 65 << 10);
    }
    assert_eq!((slab.footprint(), cache.len(), cache.stats().rejected), (before, 1, 9_999));
}

/// A slow listener holds back the charge of few entries.
#[test]
fn a_listener_is_called_while_at_most_8_absent_entries_are_charged() {
    super::on_one_processor(check_charges_in_a_listener);
}

fn check_charges_in_a_listener() {
    let runtime = crate::Runtime::builder().unlimited().build().unwrap();
    let root = runtime.root().clone();
    let usages = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&usages);
    let cache = crate::Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| crate::ByteSize::kib(1))
        .eviction_listener(move |_, _, _| seen.lock().unwrap().push(root.usage().saturating_sub(root.in_stock())))
        .build()
        .unwrap();
    (0..1_000).for_each(|key| assert!(cache.insert(key, 0).is_ok()));
    let entry = runtime.root().usage().saturating_sub(runtime.root().in_stock()).get() / 1_000;
    let evicted = cache.inner.core.evict(runtime.root(), lowwater_lru_core::NodeId::ZERO, 32);
    let usages = core::mem::take(&mut *usages.lock().unwrap());
    assert_eq!((evicted.freed, usages.len()), (32, 32));
    let fell = usages.iter().map(|usage| (usages[0].get() - usage.get()) / entry);
    assert!(fell.clone().zip(0..).all(|(fell, n)| fell == n / 8 * 8), "{:?}", Vec::from_iter(fell));
}
