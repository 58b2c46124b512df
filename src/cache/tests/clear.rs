//! `clear` of a cache with many entries, which are cleared at once and removed in the background.
//!
//! Most tests begin a clear without notifying the housekeeper, so that its entries stay until the
//! test has them removed.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::compaction::compact_all;
use super::{eventually, one_node, wait_for_reclaimer};
use crate::cache::{Computed, Eviction, Op, RemovalCause, Visit};
use crate::runtime::NextRun;
use crate::{ByteSize, Cache, Runtime};

/// More than a call of `clear` removes itself.
const MANY: u64 = 6_000;
const PATIENCE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

fn runtime() -> Runtime {
    Runtime::builder().budget(ByteSize::mib(64)).topology(one_node()).build().unwrap()
}

fn cache_in(runtime: &Runtime) -> Cache<u64, u64> {
    Cache::builder(runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap()
}

fn fill(cache: &Cache<u64, u64>, value: u64) {
    (0..MANY).for_each(|key| assert!(cache.insert(key, value).is_ok()));
}

/// Begins a clear, without notifying the housekeeper.
pub(super) fn begin<K: Hash + Eq + Send + Sync + 'static>(cache: &Cache<K, u64>) {
    let core = &cache.inner.core;
    assert!(core.begin_clear(), "no clear is in progress");
}

/// Removes all cleared entries, on this thread.
pub(super) fn finish<K: Hash + Eq + Send + Sync + 'static>(cache: &Cache<K, u64>) {
    eventually(PATIENCE, "readers of other tests leave", || {
        while let NextRun::Now { .. } = cache.inner.core.remove_cleared_part() {}
        cache.inner.core.clear_state.get().is_none_or(|state| state.sweep.lock().is_none())
    });
}

fn usage(runtime: &Runtime) -> ByteSize {
    runtime.tree().drain_stock();
    runtime.root().usage()
}

#[test]
fn no_operation_finds_a_cleared_entry() {
    let runtime = runtime();
    for eviction in [Eviction::Adaptive, Eviction::Lru, Eviction::SecondChance, Eviction::Sieve, Eviction::S3Fifo] {
        let builder = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).eviction(eviction);
        let cache = builder.time_to_idle(HOUR).build().unwrap();
        fill(&cache, 1);
        begin(&cache);
        assert!(cache.is_empty());
        assert_eq!((cache.get(&1), cache.peek(&2), cache.contains_key(&3)), (None, None, false));
        assert_eq!((cache.pin().get(&4), cache.pin().peek(&5)), (None, None));
        assert_eq!((cache.remove(&6), cache.touch(&7, Some(HOUR))), (None, false));
        assert_eq!((cache.pin().iter().count(), cache.save(|_, _, _| Err(()))), (0, Ok(0)));
        assert_eq!(cache.get_many(&[8, 9]), [None, None]);
        let mut at = Visit::new();
        while !at.is_done() {
            cache.visit(&mut at, |key, _| panic!("{key} was cleared"));
        }
        assert_eq!(cache.get_or_insert_with(10, || 2), 2);
        assert_eq!(cache.insert(11, 3).unwrap(), None, "nothing was replaced");
        let seen = cache.entry(12).and_compute(|entry| {
            assert!(entry.is_none());
            Op::Update(4)
        });
        assert!(matches!(seen, Ok(Computed::Inserted)));
        let seen = cache.entry(13).and_compute(|entry| {
            assert!(entry.is_none());
            Op::Remove
        });
        assert!(matches!(seen, Ok(Computed::Kept)));
        cache.retain(|key, _| (10..=12).contains(key));
        assert_eq!(cache.len(), 3);
        assert_eq!([10, 11, 12].map(|key| cache.get(&key)), [Some(2), Some(3), Some(4)]);
        finish(&cache);
        assert_eq!(cache.len(), 3);
        assert_eq!([10, 11, 12].map(|key| cache.get(&key)), [Some(2), Some(3), Some(4)]);
        cache.inner.core.queues.assert_valid();
    }
}

#[test]
fn the_length_is_exact_however_cleared_entries_leave() {
    let runtime = runtime();
    let cache = cache_in(&runtime);
    fill(&cache, 1);
    begin(&cache);
    (0..1_000).for_each(|key| assert_eq!(cache.insert(key, 2).unwrap(), None));
    assert_eq!(cache.len(), 1_000, "replaced");
    (1_000..2_000).for_each(|key| assert_eq!(cache.get(&key), None));
    assert_eq!(cache.len(), 1_000, "found");
    (2_000..3_000).for_each(|key| assert_eq!(cache.remove(&key), None));
    assert_eq!(cache.len(), 1_000, "removed");
    let evicted = cache.inner.core.evict(runtime.root(), crate::NodeId::ZERO, 500);
    assert_eq!((evicted.freed, cache.len()), (500, 1_000), "evicted: the cleared ones are the oldest");
    finish(&cache);
    assert_eq!((cache.len(), cache.inner.core.counters.len()), (1_000, 1_000));
    assert!((0..1_000).all(|key| cache.get(&key) == Some(2)));
}

#[test]
fn each_cleared_entry_is_an_explicit_removal() {
    let (runtime, causes) = (runtime(), Arc::new(Mutex::new(Vec::new())));
    let theirs = Arc::clone(&causes);
    let cache = Cache::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .eviction_listener(move |key, value, cause| theirs.lock().push((*key, *value, cause)))
        .build()
        .unwrap();
    fill(&cache, 1);
    begin(&cache);
    assert_eq!(cache.get(&0), None);
    assert_eq!(cache.insert(1, 2).unwrap(), None);
    assert_eq!(cache.remove(&2), None);
    let _evicted = cache.inner.core.evict(runtime.root(), crate::NodeId::ZERO, 10);
    finish(&cache);
    let mut all = std::mem::take(&mut *causes.lock());
    all.sort_unstable_by_key(|(key, ..)| *key);
    assert_eq!(all, (0..MANY).map(|key| (key, 1, RemovalCause::Explicit)).collect::<Vec<_>>());
    assert_eq!(cache.stats().removed, MANY);
}

#[test]
fn memory_and_charge_return_in_the_background() {
    let runtime = runtime();
    let cache = cache_in(&runtime);
    let empty = usage(&runtime);
    for round in 0..5 {
        fill(&cache, round);
        cache.clear();
        assert_eq!(cache.len(), 0);
        // Beside the housekeeper, which is removing them.
        assert!((0..MANY).all(|key| cache.get(&key).is_none()));
        eventually(PATIENCE, "all entries are removed", || usage(&runtime) == empty);
    }
    // In each epoch, entries that stay.
    for round in 0..5 {
        fill(&cache, round);
        cache.clear();
        assert_eq!(cache.insert(MANY, round).unwrap(), None);
        eventually(PATIENCE, "all but one are removed", || cache.inner.core.counters.len() == 1);
        assert_eq!((cache.get(&MANY), cache.len()), (Some(round), 1));
    }
}

#[test]
fn a_clear_while_cleared_entries_are_left_removes_all() {
    let runtime = runtime();
    let cache = cache_in(&runtime);
    fill(&cache, 1);
    begin(&cache);
    fill(&cache, 2);
    cache.clear();
    assert_eq!((cache.len(), cache.inner.core.counters.len()), (0, 0));
    fill(&cache, 3);
    assert_eq!(cache.len() as u64, MANY);
    finish(&cache);
    assert_eq!(cache.len() as u64, MANY);
    assert!((0..MANY).all(|key| cache.get(&key) == Some(3)));
}

#[test]
fn a_drop_reports_the_entries_that_a_clear_has_left() {
    let calls = Arc::new(AtomicU64::new(0));
    let theirs = Arc::clone(&calls);
    let runtime = Runtime::builder().unlimited().build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .eviction_listener(move |_, _, cause| {
            assert_eq!(cause, RemovalCause::Explicit);
            theirs.fetch_add(1, Ordering::Relaxed);
        })
        .build()
        .unwrap();
    (0..100_000).for_each(|key| assert!(cache.insert(key, 1).is_ok()));
    cache.clear();
    drop(cache);
    assert_eq!(calls.load(Ordering::Relaxed), 100_000);
}

#[test]
fn a_copy_keeps_the_epoch() {
    let runtime = runtime();
    let cache = cache_in(&runtime);
    fill(&cache, 1);
    begin(&cache);
    finish(&cache);
    // Inserted in the odd epoch, and sparse.
    let (entries, kept) = (60_000, 12);
    (0..entries).for_each(|key| assert!(cache.insert(key, 2).is_ok()));
    let address = |key: u64| std::ptr::from_ref(cache.pin().peek(&key).unwrap()) as usize;
    let addresses = || (0..entries).step_by(kept as usize).map(address).collect::<Vec<_>>();
    let before = addresses();
    (0..entries).filter(|key| key % kept != 0).for_each(|key| assert!(cache.remove(&key).is_some()));
    cache.collect();
    eventually(PATIENCE, "the housekeeper copies some", || addresses() != before);
    begin(&cache);
    assert!((0..entries).all(|key| cache.get(&key).is_none()));
    finish(&cache);
    assert_eq!(cache.len(), 0);
    // The housekeeper may have removed some of them, and count them later.
    eventually(PATIENCE, "no entry is left", || cache.inner.core.counters.len() == 0);
}

#[test]
fn a_copy_of_a_cleared_entry_is_cleared() {
    let runtime = runtime();
    let cache = cache_in(&runtime);
    let (entries, kept) = (60_000, 6);
    (0..entries).for_each(|key| assert!(cache.insert(key, 2).is_ok()));
    (0..entries).filter(|key| key % kept != 0).for_each(|key| assert!(cache.remove(&key).is_some()));
    eventually(PATIENCE, "removed records are freed", || cache.inner.core.index.slab().collect() == ByteSize::ZERO);
    begin(&cache);
    compact_all(&cache);
    assert!((0..entries).all(|key| !cache.contains_key(&key)));
    assert!(cache.is_empty());
}

#[test]
fn an_entry_that_is_cleared_during_its_operation_is_seen_as_absent() {
    let runtime = runtime();
    let cache = cache_in(&runtime);
    for op in [Op::Put(5), Op::Update(5), Op::Remove] {
        fill(&cache, 1);
        let mut seen = Vec::new();
        let done = cache.entry(7).and_compute(|entry| {
            seen.push(entry.map(|entry| *entry.value()));
            if seen.len() == 1 {
                begin(&cache);
            }
            op
        });
        assert_eq!(seen, [Some(1), None], "the operation is tried again");
        assert!(matches!(done, Ok(Computed::Inserted | Computed::Kept)));
        assert_eq!(cache.get(&7), if let Op::Remove = op { None } else { Some(5) });
        finish(&cache);
    }
}

/// A key whose comparison stops in the insert of a test.
#[derive(Clone, Debug)]
struct Slow(u64, Option<Arc<Stop>>);

#[derive(Debug)]
struct Stop(Sender<()>, Mutex<Receiver<()>>);

impl PartialEq for Slow {
    fn eq(&self, other: &Self) -> bool {
        if let Some(Stop(stopped, go_on)) = self.1.as_deref() {
            let _first = stopped.send(());
            let _ended = go_on.lock().recv();
        }
        self.0 == other.0
    }
}

impl Eq for Slow {}

impl Hash for Slow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The two keys of the test have the same hash.
        (self.0 / 2).hash(state);
    }
}

/// An insert that has read the epoch before a clear, and enters the index after it, must not
/// survive the next clear. It may survive the first, as both are concurrent. Here the insert waits
/// under the lock of its segment, which delays the sweep as well; for the grace period see the
/// model checks of `EpochParity`.
#[test]
fn an_insert_that_a_clear_overtakes_is_cleared() {
    let runtime = runtime();
    let cache = Cache::<Slow, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let fill = |from: u64| (from..from + MANY).for_each(|n| assert!(cache.insert(Slow(2 * n, None), n).is_ok()));
    fill(1);
    // Of the same hash as the slow key, so that the insert compares them.
    let same = cache.insert(Slow(0, None), 0);
    assert!(same.is_ok());
    let ((stopped, has_stopped), (go_on, may_go_on)) = (channel(), channel());
    std::thread::scope(|scope| {
        let cache = &cache;
        let slow = Slow(1, Some(Arc::new(Stop(stopped, Mutex::new(may_go_on)))));
        let insert = scope.spawn(move || cache.insert(slow, 1).is_ok());
        has_stopped.recv().unwrap();
        let core = &cache.inner.core;
        assert!(core.begin_clear());
        // The sweep meets the segment's lock at the latest where the insert waits for the test.
        let sweep = scope.spawn(|| {
            let start = std::time::Instant::now();
            while start.elapsed() < Duration::from_millis(200) {
                core.remove_cleared_part();
            }
        });
        std::thread::sleep(Duration::from_millis(100));
        drop(go_on);
        assert!(insert.join().unwrap());
        sweep.join().unwrap();
    });
    let core = &cache.inner.core;
    let is_done = || core.clear_state.get().is_none_or(|state| state.sweep.lock().is_none());
    eventually(PATIENCE, "readers of other tests leave", || {
        core.remove_cleared_part();
        is_done()
    });
    assert!(cache.len() <= 1, "the insert that was overtaken");
    fill(MANY);
    assert!(core.begin_clear());
    assert_eq!(cache.get(&Slow(1, None)), None);
    eventually(PATIENCE, "the second clear ends", || {
        core.remove_cleared_part();
        is_done()
    });
    assert_eq!((cache.len(), core.counters.len()), (0, 0));
}

#[test]
fn reloads_expiry_and_stale_values_end_with_a_clear() {
    let clock = crate::runtime::ManualClock::new();
    let runtime = Runtime::builder().unlimited().clock(&clock).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .time_to_live(HOUR)
        .stale_while_revalidate(HOUR)
        .build()
        .unwrap();
    // The second round is in the odd epoch.
    for round in 0..2 {
        fill(&cache, round);
        clock.advance(HOUR + HOUR / 2);
        let stale = cache.get_or_refresh(&5).unwrap();
        assert_eq!((stale.value, stale.is_stale, stale.refresh.is_some()), (round, true, true));
        begin(&cache);
        assert!(cache.get_or_refresh(&5).is_none() && cache.get_or_refresh(&6).is_none());
        drop(stale.refresh);
        assert_eq!(cache.get_or_insert_with(5, || 100 + round), 100 + round, "loaded anew");
        assert_eq!(cache.get_or_refresh(&5).map(|hit| hit.value), Some(100 + round));
        assert_eq!(cache.len(), 1);
        clock.advance(3 * HOUR);
        finish(&cache);
        // The housekeeper may have removed some of them, and count them later.
        eventually(PATIENCE, "no entry is left", || cache.inner.core.counters.len() == 0);
        assert!(cache.is_empty());
    }
}

#[test]
fn a_full_cache_takes_the_memory_of_cleared_entries() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    let cache = cache_in(&runtime);
    let entries = 4 * ByteSize::mib(1).get() / Cache::<u64, u64>::ENTRY_BYTES.get();
    (0..entries).for_each(|key| assert!(cache.insert(key, 1).is_ok()));
    let len = cache.len();
    assert!(len > 5_000, "{len}");
    begin(&cache);
    (0..entries).for_each(|key| assert!(cache.insert(key, 2).is_ok()));
    assert!(cache.len() > len / 2, "cleared entries leave first: {}", cache.len());
    assert!(cache.pin().iter().all(|(_, value)| *value == 2));
    finish(&cache);
    assert!(cache.pin().iter().all(|(_, value)| *value == 2));
}

#[test]
fn threads_insert_and_look_up_beside_clears() {
    let runtime = runtime();
    let cache = cache_in(&runtime);
    let (clears, ended) = (AtomicU64::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (cache, clears, ended) = (&cache, &clears, &ended);
            scope.spawn(move || {
                for n in 0..40_000 {
                    let (key, before) = (thread * 1_000_000 + n % 7_000, clears.load(Ordering::SeqCst));
                    cache.insert(key, n).unwrap();
                    let found = cache.get(&key);
                    // The number is odd during a clear.
                    if before % 2 == 0 && clears.load(Ordering::SeqCst) == before {
                        assert_eq!(found, Some(n), "no clear came between");
                    }
                    assert!(found.is_none_or(|value| value == n), "an old value came back");
                }
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }
        let (mut round, key) = (0, u64::MAX);
        while ended.load(Ordering::SeqCst) < 3 {
            round += 1;
            cache.insert(key, round).unwrap();
            assert_eq!(cache.get(&key), Some(round));
            clears.fetch_add(1, Ordering::SeqCst);
            cache.clear();
            clears.fetch_add(1, Ordering::SeqCst);
            assert_eq!(cache.get(&key), None);
        }
    });
    cache.clear();
    assert_eq!(cache.len(), 0);
    eventually(PATIENCE, "all entries are removed", || usage(&runtime) == ByteSize::ZERO);
    assert_eq!(cache.len(), 0);
    cache.inner.core.queues.assert_valid();
}

/// The charges of the entries pay for the table, so it goes with them.
#[test]
fn the_ghost_table_of_an_emptied_cache_is_dropped() {
    let empties: [fn(&Cache<u64, u64>); 2] = [Cache::clear, |cache| cache.retain(|_, _| false)];
    for empty in empties {
        // Readers of other tests may hold removed entries back, and the reclaimer may evict.
        let builder = Runtime::builder().budget(ByteSize::mib(4)).direct_time_max(PATIENCE);
        let runtime = builder.build().unwrap();
        let cache = cache_in(&runtime);
        (0..100_000).for_each(|key| assert!(cache.insert(key, 0).is_ok()));
        wait_for_reclaimer(&runtime);
        assert!(cache.len() > 4_096 && runtime.stats().ghosts > ByteSize::ZERO);
        empty(&cache);
        eventually(PATIENCE, "the table is dropped", || runtime.stats().ghosts == ByteSize::ZERO);
        // A removal makes no table.
        assert!(cache.insert(0, 0).is_ok());
        cache.retain(|_, _| false);
        assert_eq!(runtime.stats().ghosts, ByteSize::ZERO);
    }
}
