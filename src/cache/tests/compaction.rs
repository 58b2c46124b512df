//! Compaction: sparse entries are moved together, memory returns to the system, and users of the
//! cache see no change.
//!
//! `compact_all` runs the housekeeper's steps on the test's thread. A copied entry must be
//! indistinguishable from the original, except for its address.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use equivalent::Equivalent;
use lowwater_store::index::Cursor;

use super::super::compaction::state::Compacted;
use super::super::policy::queue::Queue;
use super::clear::{begin, finish};
use super::{eventually, wait_for_reclaimer};
use crate::cache::{Eviction, ExpiryEvent, Lifetime};
use crate::runtime::{Maintenance, ManualClock, NextRun};
use crate::{ByteSize, Cache, Charged, Runtime};

/// Enough for more chunks than the 16 below which a slab is not compacted.
const ENTRIES: u64 = 60_000;
/// One entry in this many is kept.
const PARTS: u64 = 12;
/// How long to wait for readers of other tests.
const PATIENCE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

fn runtime() -> Runtime {
    runtime_by(None)
}

fn runtime_by(clock: Option<&ManualClock>) -> Runtime {
    let one_node = Arc::new(crate::topology::Fixed::new(1));
    let builder = Runtime::builder().budget(ByteSize::mib(64)).topology(one_node);
    clock.into_iter().fold(builder, |builder, clock| builder.clock(clock)).build().unwrap()
}

/// Fills a cache and removes all entries but one in `PARTS`.
fn scattered<K, V>(cache: &Cache<K, V>, key: impl Fn(u64) -> K, value: impl Fn(u64) -> V)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    for n in 0..ENTRIES {
        assert!(cache.insert(key(n), value(n)).is_ok());
    }
    (0..ENTRIES).filter(|n| n % PARTS != 0).for_each(|n| assert!(cache.remove(&key(n)).is_some()));
    eventually(PATIENCE, "removed records are freed", || cache.inner.core.index.slab().collect() == ByteSize::ZERO);
}

fn left() -> impl Iterator<Item = u64> + Clone {
    (0..ENTRIES).step_by(PARTS as usize)
}

/// Compacts on this thread, without the housekeeper, which does nothing until it is notified.
pub(super) fn compact_all<K, V>(cache: &Cache<K, V>)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let core = &cache.inner.core;
    assert!(core.index.slab().begin_compaction() > 0, "there are records to move");
    let mut at = Cursor::new();
    while !at.is_done() {
        assert!(!core.compact_part(&mut at, &mut Compacted::default()), "no memory for a copy");
    }
    core.index.slab().end_compaction();
}

/// Returns whether the remaining entries are compact: the slab's footprint is less than a quarter
/// of `scattered`.
fn is_together<K, V>(cache: &Cache<K, V>, scattered: ByteSize) -> bool
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    let slab = cache.inner.core.index.slab();
    slab.collect();
    slab.footprint().get() * 4 < scattered.get()
}

#[test]
fn compaction_returns_memory_without_listener_calls() {
    let runtime = runtime();
    let told = Arc::new(AtomicUsize::new(0));
    let theirs = Arc::clone(&told);
    let cache = Cache::<u64, String>::builder(&runtime)
        .weigher(|_, text| ByteSize::new(text.capacity() as u64))
        .eviction_listener(move |_, _, _| {
            theirs.fetch_add(1, Ordering::Relaxed);
        })
        .build()
        .unwrap();
    let tenant = runtime.group("tenant").unwrap();
    let insert = |n: u64| cache.entry(n).group(&tenant).time_to_live(HOUR).insert(n.to_string());
    (0..ENTRIES).for_each(|n| drop(insert(n)));
    left().for_each(|n| (0..3).for_each(|_| drop(cache.get(&n))));
    let full = cache.inner.core.index.slab().footprint();
    // The reclaimer evicts the other entries.
    let usage = || {
        runtime.tree().drain_stock();
        tenant.usage()
    };
    let before = usage();
    runtime.set_budget(ByteSize::new(before.get() / PARTS * 2));
    eventually(PATIENCE, "entries are evicted", || cache.len() <= (ENTRIES / PARTS * 2) as usize);
    wait_for_reclaimer(&runtime);
    eventually(PATIENCE, "memory is returned", || is_together(&cache, full));
    let survivors: Vec<_> = (0..ENTRIES).filter(|n| cache.contains_key(n)).collect();
    // An entry leaves its list and the index before it is counted, and is counted before the
    // listener is called.
    eventually(PATIENCE, "the evicted entries are counted, and the listener was called", || {
        let evicted = ENTRIES as usize - survivors.len();
        (cache.len(), told.load(Ordering::Relaxed)) == (survivors.len(), evicted)
    });
    assert!(
        left().filter(|n| survivors.contains(n)).count() as u64 > ENTRIES / PARTS * 9 / 10,
        "too many read entries were evicted"
    );
    assert!(survivors.iter().all(|n| cache.peek(n) == Some(n.to_string())));
    assert_eq!((cache.stats().inserts, cache.len_of(&tenant)), (ENTRIES, survivors.len() as u64));
    survivors.iter().for_each(|n| assert!(cache.remove(n).is_some()));
    assert_eq!((usage(), cache.len()), (ByteSize::ZERO, 0));
    cache.inner.core.queues.assert_valid();
}

/// The readers hold every evicted entry back until the last eviction has been made, and then nobody
/// uses the cache.
#[test]
fn an_idle_cache_that_was_shrunk_beside_a_reader_returns_its_memory() {
    let runtime = runtime();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    (0..ENTRIES).for_each(|n| assert!(cache.insert(n, n).is_ok()));
    left().for_each(|n| (0..3).for_each(|_| assert!(cache.get(&n).is_some())));
    let slab = cache.inner.core.index.slab();
    let full = slab.footprint();
    let reader = lowwater_rcu::pin();
    runtime.tree().drain_stock();
    runtime.set_budget(ByteSize::new(runtime.root().usage().get() / PARTS * 2));
    wait_for_reclaimer(&runtime);
    assert!(cache.len() <= (ENTRIES / PARTS * 2) as usize && slab.waiting() > ByteSize::ZERO);
    drop(reader);
    eventually(PATIENCE, "evicted entries are freed", || slab.waiting() == ByteSize::ZERO);
    eventually(PATIENCE, "memory is returned", || slab.footprint().get() * 4 < full.get());
}

/// The housekeeper's steps are made on this thread. A reader comes when a pass has begun, and
/// leaves after its end.
#[test]
fn a_reader_that_leaves_after_a_compaction_keeps_no_memory() {
    let cache = Cache::<u64, u64>::builder(&runtime()).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    cache.runtime().housekeeper().remove(cache.inner.maintenance);
    scattered(&cache, |n| n, |n| n);
    let (core, slab) = (&*cache.inner.core, cache.inner.core.index.slab());
    core.request_compaction();
    let goes_on = || matches!(core.compact(), NextRun::Now { .. });
    eventually(PATIENCE, "a pass begins", goes_on);
    let reader = lowwater_rcu::pin();
    while goes_on() {}
    assert!(slab.waiting() > ByteSize::ZERO);
    drop(reader);
    eventually(PATIENCE, "replaced entries are freed", || {
        core.reap_expired();
        slab.waiting() == ByteSize::ZERO
    });
}

#[test]
fn compaction_keeps_age_uses_and_deadline() {
    let clock = ManualClock::new();
    let cache = Cache::<u64, u64>::builder(&runtime_by(Some(&clock)))
        .eviction(Eviction::SecondChance)
        .weigher(|_, _| ByteSize::ZERO)
        .time_to_live(HOUR)
        .build()
        .unwrap();
    scattered(&cache, |n| n, |n| n);
    // A copy that began a new time to live would have the whole hour left.
    clock.advance(HOUR / 2);
    let reads = |n: u64| n / PARTS % 3;
    left().for_each(|n| (0..reads(n)).for_each(|_| assert!(cache.get(&n).is_some())));
    cache.touch(&PARTS, Some(2 * HOUR));
    let before = cache.inner.core.index.slab().footprint();
    compact_all(&cache);
    eventually(PATIENCE, "memory is returned", || is_together(&cache, before));
    let core = &cache.inner.core;
    let mut order = Vec::new();
    let root = cache.runtime().root();
    for entry in core.queues.take(Queue::Main, root, lowwater_lru_core::NodeId::ZERO, u64::MAX) {
        // `touch` counts as a use.
        let is_touched = entry.key == PARTS;
        assert_eq!(u64::from(entry.uses()), reads(entry.key) + u64::from(is_touched));
        let time = entry.deadline().time_left(core.clock.now()).unwrap();
        // Rounded by a tick of 4 ms, up or down.
        let expected = if is_touched { 2 * HOUR } else { HOUR / 2 };
        assert!(time.abs_diff(expected) <= Duration::from_millis(4), "{time:?}");
        order.push(entry.key);
    }
    assert!(order.into_iter().eq(left()), "the order of insertion changed");
}

#[test]
fn a_copy_of_an_entry_is_no_reader_of_its_value() {
    let runtime = runtime();
    let cache = Cache::<u64, Charged<u64>>::builder(&runtime).weigher(|_, _| ByteSize::new(100));
    let cache = cache.charge_held_values().build().unwrap();
    scattered(&cache, |n| n, Charged::from);
    let usage = || {
        runtime.tree().drain_stock();
        runtime.root().usage()
    };
    let before = usage();
    let held = [cache.get(&0).unwrap(), cache.get(&PARTS).unwrap()];
    // Pinned, so that the replaced records stay in memory.
    let pinned = cache.pin();
    compact_all(&cache);
    assert_eq!(usage(), before);
    cache.clear();
    eventually(PATIENCE, "only the held values are charged", || usage() == ByteSize::new(2 * 100));
    cache.insert(0, held[0].clone()).unwrap();
    assert_eq!(usage().get(), 2 * 100 + Cache::<u64, Charged<u64>>::ENTRY_BYTES.get());
    cache.clear();
    drop(held);
    assert_eq!(usage(), ByteSize::ZERO);
    drop(pinned);
    eventually(PATIENCE, "removed records are freed", || {
        cache.collect();
        runtime.stats().retired == ByteSize::ZERO
    });
}

thread_local! {
    /// Runs when a test's key is compared with an equal key, or cloned, for the first time.
    static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

fn meanwhile() {
    let call = MEANWHILE.take();
    call.into_iter().for_each(|call| call());
}

struct Slow(u64);

impl Hash for Slow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Equivalent<u64> for Slow {
    fn equivalent(&self, key: &u64) -> bool {
        let is_it = self.0 == *key;
        if is_it {
            meanwhile();
        }
        is_it
    }
}

/// Calls `f` with a key whose entry is moved between the lookup and the change that `f` makes.
fn while_it_moves(cache: &Cache<u64, u64>, f: impl FnOnce(Slow)) {
    scattered(cache, |n| n, |n| n);
    let core = &cache.inner.core;
    // One of the entries that are moved, which are not all.
    let key = left().nth(1_000).unwrap();
    let entry = || {
        let guard = lowwater_rcu::pin();
        let entry = core.index.get(core.hash(&key), &guard, |entry| entry.key == key).expect("no entry has expired");
        // As if half of the entry's hour had passed.
        let (there, left) = (std::ptr::from_ref(entry), entry.deadline().time_left(core.clock.now()).unwrap());
        entry.set_deadline(core.clock.deadline_after(Some(HOUR / 2), entry.deadline().time_to_idle(), None).at);
        (there, left)
    };
    let (before, _) = entry();
    let theirs = cache.clone();
    MEANWHILE.set(Some(Box::new(move || compact_all(&theirs))));
    f(Slow(key));
    let (after, left) = entry();
    assert!(before != after && left > HOUR * 3 / 4, "{left:?}");
}

/// A key of an entry that moves while the hash of the key is computed.
#[derive(Clone, PartialEq, Eq)]
struct HashedMeanwhile(u64);

impl Hash for HashedMeanwhile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        meanwhile();
        self.0.hash(state);
    }
}

#[test]
fn an_advance_of_the_clock_removes_entries_that_move_meanwhile() {
    let clock = ManualClock::new();
    let cache = Cache::<HashedMeanwhile, u64>::builder(&runtime_by(Some(&clock)))
        .weigher(|_, _| ByteSize::ZERO)
        .time_to_live(HOUR)
        .build()
        .unwrap();
    // No later sweep removes them.
    cache.runtime().housekeeper().remove(cache.inner.maintenance);
    scattered(&cache, HashedMeanwhile, |n| n);
    let theirs = cache.clone();
    MEANWHILE.set(Some(Box::new(move || compact_all(&theirs))));
    clock.advance(2 * HOUR);
    assert!(MEANWHILE.take().is_none(), "entries were moved");
    assert_eq!(cache.len(), 0);
}

#[test]
fn a_clear_removes_entries_that_move_meanwhile() {
    let cache = Cache::<HashedMeanwhile, u64>::builder(&runtime()).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    cache.runtime().housekeeper().remove(cache.inner.maintenance);
    scattered(&cache, HashedMeanwhile, |n| n);
    begin(&cache);
    let theirs = cache.clone();
    MEANWHILE.set(Some(Box::new(move || compact_all(&theirs))));
    finish(&cache);
    assert!(MEANWHILE.take().is_none(), "entries were moved");
    assert_eq!(cache.inner.core.counters.len(), 0);
}

#[test]
fn an_iterator_shows_entries_that_move_and_are_touched_meanwhile() {
    let clock = ManualClock::new();
    let cache = Cache::<u64, u64>::builder(&runtime_by(Some(&clock)))
        .weigher(|_, _| ByteSize::ZERO)
        .time_to_live(HOUR)
        .build()
        .unwrap();
    scattered(&cache, |n| n, |n| n);
    let pinned = cache.pin();
    let mut all = pinned.iter().map(|(key, _)| *key);
    // All of the first part is read.
    let mut seen = Vec::from_iter(all.next());
    compact_all(&cache);
    left().for_each(|n| assert!(cache.touch(&n, None)));
    clock.advance(2 * HOUR);
    seen.extend(all);
    seen.sort_unstable();
    assert!(left().eq(seen));
}

#[test]
fn touch_during_a_compaction_is_not_lost() {
    let cache =
        Cache::<u64, u64>::builder(&runtime()).weigher(|_, _| ByteSize::ZERO).time_to_live(HOUR).build().unwrap();
    while_it_moves(&cache, |key| assert!(cache.touch(&key, Some(HOUR))));
}

#[test]
fn a_use_during_a_compaction_extends_the_idle_deadline() {
    let cache =
        Cache::<u64, u64>::builder(&runtime()).weigher(|_, _| ByteSize::ZERO).time_to_idle(HOUR).build().unwrap();
    while_it_moves(&cache, |key| assert!(cache.get(&key).is_some()));
}

#[test]
fn a_time_that_is_computed_during_a_compaction_is_stored() {
    let cache = Cache::<u64, u64>::builder(&runtime())
        .weigher(|_, _| ByteSize::ZERO)
        .expire_after(|_, _, event| {
            if matches!(event, ExpiryEvent::Read { .. }) {
                meanwhile();
            }
            Lifetime::Live(HOUR)
        })
        .build()
        .unwrap();
    while_it_moves(&cache, |Slow(key)| assert!(cache.get(&key).is_some()));
}

#[test]
fn entries_that_move_during_a_save_are_saved_with_their_group() {
    let runtime = runtime();
    let tenant = runtime.group("tenant").unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    scattered(&cache, |n| n, |n| n);
    left().for_each(|n| assert!(cache.entry(n).group(&tenant).insert(n).is_ok()));
    let mut keys = Vec::new();
    let save = |key: &u64, _: &u64, meta: &crate::cache::Meta| {
        if keys.is_empty() {
            compact_all(&cache);
        }
        keys.push((*key, meta.group.clone()));
        Ok::<(), ()>(())
    };
    assert_eq!(cache.save(save), Ok(ENTRIES / PARTS));
    keys.sort();
    let expected = left().map(|key| (key, "/tenant".to_owned()));
    assert!(keys.into_iter().eq(expected));
}

/// An entry that a walk is to remove may be moved after the walk has read it. `clear` is `retain`
/// that keeps nothing.
#[test]
fn clear_removes_entries_that_are_being_compacted() {
    let cache = Cache::<u64, u64>::builder(&runtime()).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    scattered(&cache, |n| n, |n| n);
    let mut first = true;
    cache.retain(|_, _| {
        if std::mem::take(&mut first) {
            compact_all(&cache);
        }
        false
    });
    assert!(cache.is_empty());
    cache.inner.core.queues.assert_valid();
}

/// A key whose clones can panic, or take long.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Dear(u64);

static FAILS: AtomicBool = AtomicBool::new(false);

impl Clone for Dear {
    fn clone(&self) -> Self {
        assert!(!FAILS.load(Ordering::Relaxed) || self.0 % (5 * PARTS) != 0, "the key's own fault");
        meanwhile();
        Self(self.0)
    }
}

#[test]
fn entries_whose_clone_panics_or_that_change_stay_in_place() {
    let cache = Cache::<Dear, u64>::builder(&runtime()).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    scattered(&cache, Dear, |n| n);
    FAILS.store(true, Ordering::Relaxed);
    let theirs = cache.clone();
    MEANWHILE.set(Some(Box::new(move || left().for_each(|n| drop(theirs.insert(Dear(n), n + 1))))));
    let compacted = std::panic::catch_unwind(AssertUnwindSafe(|| compact_all(&cache)));
    assert!(compacted.is_ok(), "the panics are the keys' own");
    FAILS.store(false, Ordering::Relaxed);
    assert!(left().all(|n| cache.peek(&Dear(n)) == Some(n + 1)), "an insert was lost, or an old value came back");
    assert_eq!(cache.len() as u64, ENTRIES / PARTS);
    cache.inner.core.queues.assert_valid();
}

/// Some of the overwritten entries wait for a reader at every moment.
#[test]
fn a_cache_with_steady_overwrites_and_readers_is_compacted() {
    let runtime = runtime();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    (0..ENTRIES).for_each(|n| assert!(cache.insert(n, n).is_ok()));
    let slab = cache.inner.core.index.slab();
    let full = slab.footprint();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        for thread in 0..4 {
            let (cache, done) = (&cache, &done);
            s.spawn(move || {
                let mut own = left().skip(16 * thread).take(16).cycle();
                while !done.load(Ordering::Relaxed) {
                    let _pinned = cache.pin();
                    own.by_ref().take(16).for_each(|n| drop(cache.insert(n, n)));
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        (0..ENTRIES).filter(|n| n % PARTS != 0).for_each(|n| assert!(cache.remove(&n).is_some()));
        cache.collect();
        // A panic here would leave the threads running, for which the scope waits.
        let is_returned = || slab.footprint().get() * 4 < full.get();
        let waited =
            std::panic::catch_unwind(AssertUnwindSafe(|| eventually(PATIENCE, "memory is returned", is_returned)));
        done.store(true, Ordering::Relaxed);
        waited.unwrap();
    });
}

#[test]
fn lookups_and_inserts_work_during_compaction() {
    let cache = Cache::<u64, u64>::builder(&runtime()).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    // The housekeeper would compact as well, and nothing would be left to move.
    cache.runtime().housekeeper().remove(cache.inner.maintenance);
    for _ in 0..3 {
        scattered(&cache, |n| n, |n| n);
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            for thread in 0..2 {
                let (cache, done) = (&cache, &done);
                s.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        for n in left().skip(thread).step_by(2) {
                            let value = cache.get(&n).expect("the entry is present throughout");
                            assert!(cache.insert(n, value + ENTRIES).unwrap() == Some(value), "one thread writes it");
                        }
                    }
                });
            }
            compact_all(&cache);
            done.store(true, Ordering::Relaxed);
        });
        assert!(left().all(|n| cache.peek(&n).is_some_and(|value| value % ENTRIES == n)));
        assert_eq!(cache.len() as u64, ENTRIES / PARTS);
        cache.inner.core.queues.assert_valid();
        // `clear` leaves most entries to the housekeeper.
        cache.retain(|_, _| false);
    }
}

/// Entries of more bytes than may wait for readers at once; and entries of a size from which on a
/// copy is not worth its cost.
#[test]
fn large_entries_move_in_small_batches_and_huge_ones_stay() {
    for (each, moves) in [(ByteSize::kib(60), true), (ByteSize::kib(65), false)] {
        let runtime = Runtime::builder().budget(ByteSize::gib(8)).build().unwrap();
        let cache = Cache::<u64, u64>::builder(&runtime).weigher(move |_, _| each).build().unwrap();
        scattered(&cache, |n| n, |n| n);
        let slab = cache.inner.core.index.slab();
        let before = slab.footprint();
        compact_all(&cache);
        if moves {
            eventually(PATIENCE, "memory is returned", || is_together(&cache, before));
        } else {
            slab.collect();
            assert_eq!(slab.footprint(), before);
            // No memory is gained, so compaction is not requested for ever.
            let core = &cache.inner.core;
            core.request_compaction();
            // Ten calls take 200 ms, in which the housekeeper, which rests for 50 ms (`QUIET`)
            // after a pass, would have run again.
            let is_told = |_| {
                std::thread::sleep(Duration::from_millis(20));
                core.compact() == NextRun::WhenNotified
            };
            eventually(PATIENCE, "compaction ends", || (0..10).all(is_told));
        }
        assert!(left().all(|n| cache.peek(&n) == Some(n)));
        cache.inner.core.queues.assert_valid();
    }
}
