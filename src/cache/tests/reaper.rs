//! Background removal: expired entries that are not looked up, and the entries of dropped groups.
//!
//! A test waits for the effect of background work, with a long deadline. A change must ensure that
//! no test fails because background work takes long.

use super::cache_of;
use super::two_of_three::two_of_three;
use crate::cache::{RejectReason, RemovalCause};
use crate::runtime::{Maintenance, ManualClock, NextRun};
use crate::{ByteSize, Cache, Runtime};
use lowwater_lru_core::{MemcgError, NodeId};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Waits for an event in the background; panics after 60 s.
fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(60), "no {what} within 60 s");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn usage(cache: &Cache<u64, Vec<u8>>) -> ByteSize {
    cache.runtime().tree().drain_stock();
    cache.runtime().root().usage()
}

#[test]
fn expired_entries_are_removed_without_a_lookup() {
    let cache = cache_of(ByteSize::mib(64));
    for key in 0..10_000 {
        cache.entry(key).time_to_live(Duration::from_millis(20)).insert(vec![0; 100]).unwrap();
    }
    for key in 10_000..10_100 {
        cache.insert(key, vec![0; 100]).unwrap();
        cache.entry(key + 100).time_to_live(Duration::from_secs(3_600)).insert(vec![0; 100]).unwrap();
    }
    until("expiry", || cache.stats().expired == 10_000);
    assert_eq!(cache.len(), 200);
    assert!((10_000..10_200).all(|key| cache.contains_key(&key)), "an entry that has not expired was removed");
    assert_eq!(usage(&cache).get(), 200 * (100 + super::entry_bytes()));
    until("memory", || cache.inner.core.index.slab().waiting() == ByteSize::ZERO);
}

#[test]
fn entries_that_were_cleared_are_dropped_after_the_readers_have_left() {
    let cache = cache_of(ByteSize::mib(64));
    let other = Cache::<u64, u64>::builder(cache.runtime()).weigher(|_, _| 0_u64).build().unwrap();
    for key in 0..10_000 {
        cache.insert(key, vec![0; 100]).unwrap();
    }
    let reader = other.pin();
    cache.clear();
    let waiting = || cache.inner.core.index.slab().waiting();
    assert_ne!(waiting(), ByteSize::ZERO);
    drop(reader);
    // Nobody uses the caches any more.
    until("memory", || waiting() == ByteSize::ZERO);
}

#[test]
fn removed_entries_are_dropped_after_their_reader_has_left() {
    let cache = cache_of(ByteSize::mib(64));
    let waiting = || cache.inner.core.index.slab().waiting();
    // Before the inserts: on a busy machine the entries may expire before this thread runs again.
    let reader = cache.pin();
    for key in 0..1_000 {
        cache.entry(key).time_to_live(Duration::from_millis(20)).insert(vec![0; 100]).unwrap();
    }
    until("expiry", || cache.stats().expired == 1_000);
    until("the end of the round", || waiting() != ByteSize::ZERO);
    drop(reader);
    until("memory", || waiting() == ByteSize::ZERO);
}

#[test]
fn a_deadline_set_later_is_enforced() {
    let cache = cache_of(ByteSize::mib(16));
    cache.entry(0).time_to_live(Duration::from_secs(3_600)).insert(vec![]).unwrap();
    for round in 1..4 {
        cache.entry(1).time_to_live(Duration::from_millis(1)).insert(vec![]).unwrap();
        until("a new entry", || cache.stats().expired == 2 * round - 1);
        cache.insert(2, vec![]).unwrap();
        assert!(cache.touch(&2, Some(Duration::from_millis(1))));
        until("a touched entry", || cache.stats().expired == 2 * round);
    }
    assert_eq!(cache.len(), 1);
}

#[test]
fn sweeps_begin_only_when_a_deadline_has_passed() {
    let cache = cache_of(ByteSize::mib(16));
    let next = || Maintenance::reap_expired(&*cache.inner.core);
    (0..1_000).for_each(|key| drop(cache.insert(key, vec![])));
    assert_eq!(next(), NextRun::WhenNotified, "no entry has a deadline");
    cache.entry(1).time_to_live(Duration::from_secs(3_600)).insert(vec![]).unwrap();
    let NextRun::In(time) = next() else { panic!("the deadline is in an hour") };
    assert!(time > Duration::from_secs(3_500));
}

#[test]
fn threads_that_insert_with_times_leave_nothing_behind() {
    let cache = cache_of(ByteSize::mib(64));
    std::thread::scope(|s| {
        for thread in 0..4 {
            let cache = &cache;
            s.spawn(move || {
                for key in 0..5_000_u64 {
                    let time = Duration::from_millis(key % 600);
                    cache.entry(thread * 10_000 + key).time_to_live(time).insert(vec![0; 10]).unwrap();
                    if key % 1_000 == 0 {
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
            });
        }
    });
    until("the last", || cache.is_empty());
    assert_eq!((cache.stats().expired, usage(&cache)), (20_000, ByteSize::ZERO));
}

#[test]
fn a_cache_may_be_dropped_while_its_entries_expire() {
    for _ in 0..20 {
        let cache = cache_of(ByteSize::mib(16));
        for key in 0..2_000 {
            cache.entry(key).time_to_live(Duration::ZERO).insert(vec![0; 10]).unwrap();
        }
        let runtime = cache.runtime().clone();
        drop(cache);
        runtime.tree().drain_stock();
        assert_eq!(runtime.root().usage(), ByteSize::ZERO);
    }
}

/// A value that counts its drop if that is on a certain thread.
struct Counted(ThreadId, Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        if std::thread::current().id() == self.0 {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_dropped_group_is_emptied_in_the_background() {
    const ENTRIES: u64 = 100_000;
    let runtime = Runtime::builder().budget(ByteSize::mib(256)).build().unwrap();
    let (here, on_us) = (std::thread::current().id(), Arc::new(AtomicUsize::new(0)));
    let told = on_us.clone();
    let wrong = Arc::new(AtomicUsize::new(0));
    let wrong_ones = wrong.clone();
    let cache = Cache::<u64, Arc<Counted>>::builder(&runtime)
        .weigher(|_, _| ByteSize::new(64))
        .eviction_listener(move |key, _, cause| {
            // A panic of the listener is caught.
            let is_wrong = *key >= ENTRIES || cause != RemovalCause::Explicit;
            wrong_ones.fetch_add(usize::from(is_wrong), Ordering::Relaxed);
            told.fetch_add(usize::from(std::thread::current().id() == here), Ordering::Relaxed);
        })
        .build()
        .unwrap();
    let (tenant, other) = (runtime.group("t").unwrap(), runtime.group("other").unwrap());
    let value = || Arc::new(Counted(here, on_us.clone()));
    for key in 0..ENTRIES {
        cache.entry(key).group(&tenant).insert(value()).unwrap();
    }
    // Used entries are removed, too.
    (0..1_000).for_each(|_| (0..5).for_each(|key| drop(cache.get(&key))));
    for key in ENTRIES..ENTRIES + 1_000 {
        cache.entry(key).group(&other).insert(value()).unwrap();
    }
    runtime.drop_group(&tenant).unwrap();
    assert_eq!(on_us.load(Ordering::Relaxed), 0, "no drop on the thread that called `drop_group`");
    assert_eq!(runtime.drop_group(&tenant), Err(MemcgError::AlreadyDying));
    until("the name", || runtime.group("t").is_ok_and(|again| again != tenant));
    // A thread that was held up in a visit for long may still finish removals.
    until("entries of the other group alone", || (cache.len_of(&tenant), cache.len()) == (0, 1_000));
    assert!((ENTRIES..ENTRIES + 1_000).all(|key| cache.contains_key(&key)), "an entry of another group was removed");
    assert_eq!((tenant.usage(), tenant.is_online()), (ByteSize::ZERO, false));
    let stats = cache.stats();
    assert_eq!((wrong.load(Ordering::Relaxed), stats.removed, stats.evictions), (0, ENTRIES, 0));
    let id = tenant.id();
    drop(tenant);
    until("the id", || runtime.tree().get(id).is_none_or(|group| group.name() != "t" || group.is_online()));
    assert_eq!(on_us.load(Ordering::Relaxed), 0);
    until("memory", || cache.collect() == ByteSize::ZERO);
}

/// Requests of the reclaimer that exist already must not follow the `max` of 0.
#[test]
fn a_dropped_group_with_reclaim_in_progress_is_emptied_by_the_housekeeper() {
    const ENTRIES: u64 = 50_000;
    let runtime = Runtime::builder().budget(ByteSize::mib(256)).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::new(64)).build().unwrap();
    for _ in 0..3 {
        let (tenant, before) = (runtime.group("t").unwrap(), cache.stats());
        for key in 0..ENTRIES {
            cache.entry(key).group(&tenant).insert(key).unwrap();
        }
        tenant.set_max(ByteSize::new(tenant.usage().get() / 100 * 99));
        runtime.drop_group(&tenant).unwrap();
        until("the end", || !tenant.is_online() && cache.is_empty());
        let evicted = || cache.stats().evictions - before.evictions;
        until("the counts", || evicted() + cache.stats().removed - before.removed == ENTRIES);
        // The reclaimer's target was a sixteenth below the `max`.
        let evicted = evicted();
        assert!(evicted <= ENTRIES / 10, "{evicted} evicted");
    }
}

#[test]
fn one_step_evicts_a_batch_of_each_list_of_a_dropped_group() {
    let cache = cache_of(ByteSize::mib(16));
    let group = cache.runtime().group("g").unwrap();
    for key in 0..1_000 {
        cache.entry(key).group(&group).insert(vec![0; 10]).unwrap();
    }
    // The group is not dropped yet, so the housekeeper does not evict from it meanwhile.
    let core = &*cache.inner.core;
    let evicted = Maintenance::evict_group(core, &group, NodeId::ZERO);
    // At most 64 (`BATCH`) from each of the two queues.
    assert!((1..=128).contains(&evicted), "{evicted} evicted at once");
    assert_eq!(cache.len() as u64, 1_000 - evicted);
}

#[test]
fn memory_is_returned_only_by_a_cache_that_had_entries_of_a_dropped_group() {
    let cache = cache_of(ByteSize::mib(16));
    let (core, group) = (&*cache.inner.core, cache.runtime().group("g").unwrap());
    cache.runtime().housekeeper().remove(cache.inner.maintenance);
    cache.entry(0).group(&group).insert(vec![]).unwrap();
    let reader = cache.pin();
    for key in 1..1_000 {
        cache.insert(key, vec![]).unwrap();
        cache.remove(&key);
    }
    drop(reader);
    let waiting = || core.index.slab().waiting();
    Maintenance::release_memory(core);
    assert!(waiting() > ByteSize::ZERO, "nothing was evicted");
    assert_eq!(Maintenance::evict_group(core, &group, NodeId::ZERO), 1);
    Maintenance::release_memory(core);
    // Other tests' threads may be readers for a moment.
    until("the memory is returned", || {
        Maintenance::reap_expired(core);
        waiting() == ByteSize::ZERO
    });
}

#[test]
fn a_group_being_dropped_refuses_inserts() {
    let cache = cache_of(ByteSize::mib(16));
    let runtime = cache.runtime().clone();
    let tenant = runtime.group("a/t").unwrap();
    cache.entry(1).group(&tenant).insert(vec![0; 10]).unwrap();
    assert_eq!(runtime.drop_group(runtime.root()), Err(MemcgError::Root));
    assert_eq!(runtime.drop_group(&runtime.group("a").unwrap()), Err(MemcgError::HasChildren));
    // A child keeps the group from ending before the test has checked it; none can be created if
    // the housekeeper was faster.
    runtime.drop_group(&tenant).unwrap();
    let child = tenant.create("child");
    if child.is_ok() && tenant.is_online() {
        assert_eq!(runtime.group("a/t"), Err(MemcgError::Dying));
        assert_eq!(runtime.group("a/t/x"), Err(MemcgError::Dying));
        let error = cache.entry(2).group(&tenant).insert(vec![0; 100_000]).unwrap_err();
        assert!(matches!(error.reason, RejectReason::TooLarge { max: ByteSize::ZERO, .. }), "{error}");
    }
    until("entries", || cache.is_empty());
    if let Ok(child) = child {
        runtime.end_group(&child).unwrap();
    }
    until("the end", || !tenant.is_online());
    assert!(runtime.group("a/t").is_ok());
}

/// The charge of a replaced entry must not be reused for the next insert: the group would never
/// become empty.
#[test]
fn a_dropped_group_ends_even_with_concurrent_inserts() {
    let cache = cache_of(ByteSize::mib(64));
    let runtime = cache.runtime().clone();
    let mut refused = 0;
    // A round in which the housekeeper finishes before the first insert shows nothing.
    for round in 0..1_000 {
        let tenant = runtime.group("t").unwrap();
        (0..1_000).for_each(|key| drop(cache.entry(key % 10).group(&tenant).insert(vec![0; 100]).unwrap()));
        assert!(tenant.usage().get() > 10 * (100 + super::entry_bytes()), "no bytes are in stock");
        runtime.drop_group(&tenant).unwrap();
        until("the end", || {
            for key in 0..100 {
                if !tenant.is_online() {
                    break;
                }
                match cache.entry(key % 10).group(&tenant).insert(vec![0; 100]) {
                    Err(error) => match error.reason {
                        RejectReason::TooLarge { max: ByteSize::ZERO, .. } => {}
                        // The group has ended since the charge was refused, and lost its `max`.
                        RejectReason::NoRoom { .. } => assert!(!tenant.is_online(), "{error}"),
                        _ => panic!("{error}"),
                    },
                    // The group has ended since the check.
                    Ok(_) => assert!(!tenant.is_online(), "bytes were charged to a group that is dropped"),
                }
                refused += 1;
            }
            !tenant.is_online()
        });
        if refused > 0 {
            return;
        }
        assert!(round < 999, "no insert was refused: this test shows nothing");
        // Entries that were inserted after the group's end are charged to its parent.
        cache.clear();
    }
}

#[test]
fn a_group_ended_while_dropped_keeps_its_parents_entries() {
    let cache = cache_of(ByteSize::mib(64));
    let runtime = cache.runtime().clone();
    for round in 0..10 {
        let (parent, tenant) = (runtime.group("p").unwrap(), runtime.group("p/t").unwrap());
        for key in 0..5_000 {
            cache.entry(key).group(if key < 100 { &parent } else { &tenant }).insert(vec![round; 10]).unwrap();
        }
        runtime.drop_group(&tenant).unwrap();
        let ended = runtime.end_group(&tenant);
        until("the end", || !tenant.is_online() && !runtime.housekeeper().is_dropping(&tenant));
        assert!((0..100).all(|key| cache.contains_key(&key)), "{ended:?} in round {round}");
        // A thread that was held up in a visit for long may still finish removals.
        until("the parent's entries alone", || cache.len_of(&parent) == cache.len() as u64);
    }
}

/// A gate at which a listener waits.
#[derive(Default)]
struct Gate {
    is_open: parking_lot::Mutex<bool>,
    opens: parking_lot::Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut is_open = self.is_open.lock();
        while !*is_open {
            self.opens.wait(&mut is_open);
        }
    }

    fn open(&self) {
        *self.is_open.lock() = true;
        self.opens.notify_all();
    }
}

/// Returns a cache whose listener waits at the gate, for expired entries only.
fn held_up(runtime: &Runtime, gate: &Arc<Gate>) -> Cache<u64, Vec<u8>> {
    let gate = Arc::clone(gate);
    let waits = move |_: &u64, _: &Vec<u8>, cause| {
        if cause == RemovalCause::Expired {
            gate.pass();
        }
    };
    Cache::<u64, Vec<u8>>::builder(runtime).weigher(|_, _| ByteSize::ZERO).eviction_listener(waits).build().unwrap()
}

#[test]
fn a_blocking_listener_delays_no_other_cache() {
    let runtime = Runtime::builder().budget(ByteSize::mib(64)).build().unwrap();
    let other = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let gates: [Arc<Gate>; 3] = Default::default();
    let caches: Vec<_> = gates.iter().map(|gate| held_up(&runtime, gate)).collect();
    let [theirs, shared, free] = ["theirs", "shared", "free"].map(|name| runtime.group(name).unwrap());
    // Each cache blocks one housekeeper thread, and each time another thread takes over.
    for (n, (cache, gate)) in caches.iter().zip(&gates).enumerate() {
        cache.entry(0).group(&shared).insert(vec![]).unwrap();
        cache.entry(1).group(&theirs).time_to_live(Duration::from_millis(1)).insert(vec![]).unwrap();
        until("blocked thread", || gate.waiting.load(Ordering::Relaxed) == 1);
        other.entry(1).time_to_live(Duration::from_millis(1)).insert(1).unwrap();
        until("another cache's expiry", || other.stats().expired == n as u64 + 1);
    }
    // A group without entries in the blocked caches ends; a group with entries there does not end
    // yet.
    for group in [&free, &shared] {
        other.entry(2).group(group).insert(2).unwrap();
        runtime.drop_group(group).unwrap();
    }
    until("the end of a group", || !free.is_online());
    until("others' entries", || other.len_of(&shared) == 0);
    assert!(shared.is_online() && caches.iter().all(|cache| cache.len_of(&shared) == 1));
    gates.iter().for_each(|gate| gate.open());
    until("the end of the shared group", || !shared.is_online());
    // The blocked threads continue or have ended; at least one housekeeper thread remains.
    for cache in &caches {
        cache.entry(3).time_to_live(Duration::from_millis(1)).insert(vec![]).unwrap();
        until("another expired entry", || cache.stats().expired == 2);
    }
}

/// The time for which the listener blocks is shorter than that after which another thread takes
/// over. The housekeeper rests for 19 times its processor time, of which blocking is no part.
#[test]
fn no_rest_follows_the_time_for_which_a_listener_blocks() {
    let runtime = Runtime::builder().budget(ByteSize::mib(64)).build().unwrap();
    let blocks = |_: &u64, _: &u64, cause| {
        if cause == RemovalCause::Expired {
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    let builder = || Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO);
    let (cache, other) = (builder().eviction_listener(blocks).build().unwrap(), builder().build().unwrap());
    (0..99).for_each(|key| drop(cache.insert(key, key)));
    // On a busy machine the housekeeper may wait for a processor.
    let expires_soon = || {
        let [blocked, others] = [&cache, &other].map(|cache| cache.stats().expired);
        cache.entry(99).time_to_live(Duration::from_millis(1)).insert(99).unwrap();
        until("expiry", || cache.stats().expired > blocked);
        // After the listener, also where it has only begun.
        std::thread::sleep(Duration::from_millis(250));
        other.entry(1).time_to_live(Duration::from_millis(1)).insert(1).unwrap();
        let start = Instant::now();
        until("another cache's expiry", || other.stats().expired > others);
        println!("another cache's entry expires after {:?}", start.elapsed());
        start.elapsed() < Duration::from_secs(2)
    };
    assert!(two_of_three(expires_soon), "see the output");
}

/// After a listener has returned, the remaining expired entries of its cache are removed by the
/// thread that holds the lease, without any call of the cache.
#[test]
fn remaining_expired_entries_are_removed_after_a_listener_returns() {
    let runtime = Runtime::builder().budget(ByteSize::mib(64)).build().unwrap();
    let gate = Arc::<Gate>::default();
    let cache = held_up(&runtime, &gate);
    // More entries than one part of a sweep visits.
    for key in 0..20_000 {
        cache.entry(key).time_to_live(Duration::from_millis(100)).insert(vec![]).unwrap();
    }
    until("blocked thread", || gate.waiting.load(Ordering::Relaxed) == 1);
    // Long enough for another thread to take the lease (250 ms, `PATIENCE` in
    // `runtime/housekeeper/threads.rs`), and to become idle.
    std::thread::sleep(Duration::from_millis(600));
    gate.open();
    until("the rest", || cache.stats().expired == 20_000);
}

/// The housekeeper runs next when the earliest deadline has passed, and does not poll before.
#[test]
fn the_housekeeper_sleeps_until_the_earliest_idle_deadline() {
    let cache = cache_of(ByteSize::mib(16));
    let next = || Maintenance::reap_expired(&*cache.inner.core);
    let hour = Duration::from_secs(3_600);
    cache.entry(1).time_to_idle(hour).insert(vec![]).unwrap();
    let NextRun::In(time) = next() else { panic!("the deadline is in an hour") };
    assert!(time > hour && time < hour * 9 / 8, "{time:?}");
}

/// The time until a deadline is that of the manual clock, which may stand still: the housekeeper
/// does not wait for so short a time again and again.
#[test]
fn the_housekeeper_does_not_spin_on_a_manual_clock() {
    let clock = ManualClock::new();
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).clock(&clock).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    cache.entry(1).time_to_live(Duration::from_nanos(100)).insert(1).unwrap();
    let NextRun::In(time) = Maintenance::reap_expired(&*cache.inner.core) else { panic!("there is a deadline") };
    assert!(time >= Duration::from_millis(250), "{time:?}");
    clock.advance(Duration::from_millis(10));
    assert!(cache.is_empty(), "the advance removes what has expired");
}

#[test]
fn a_cache_is_dropped_after_its_blocked_listener_returns() {
    let runtime = Runtime::builder().budget(ByteSize::mib(64)).build().unwrap();
    let gate = Arc::<Gate>::default();
    let cache = held_up(&runtime, &gate);
    cache.entry(1).time_to_live(Duration::from_millis(1)).insert(vec![]).unwrap();
    until("blocked thread", || gate.waiting.load(Ordering::Relaxed) == 1);
    let dropped = std::thread::spawn(move || drop(cache));
    // Longer than it takes until another thread has the lease: 250 ms.
    std::thread::sleep(Duration::from_millis(600));
    assert!(!dropped.is_finished(), "the drop did not wait for the listener");
    gate.open();
    dropped.join().unwrap();
    // Returns when all threads have ended.
    drop(runtime);
}
