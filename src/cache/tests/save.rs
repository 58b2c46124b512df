//! Saving a cache and loading it again.
//!
//! Values, groups, deadlines and uses must survive a restart. `load` must accept any `Meta`, since
//! it may come from a damaged file.

use super::{hashed_cache_in, on_one_processor, without_reclaimer, Seeded};
use crate::cache::policy::queue::Queue;
use crate::cache::{Loaded, Meta};
use crate::runtime::ManualClock;
use crate::{ByteSize, Cache, Runtime};
use lowwater_lru_core::{Memcg, MemcgError};
use std::time::Duration;

type Saved = Vec<(u64, Vec<u8>, Meta)>;

fn cache_in(runtime: &Runtime) -> Cache<u64, Vec<u8>> {
    Cache::<u64, Vec<u8>>::builder(runtime).weigher(|_, v| ByteSize::new(v.capacity() as u64)).build().unwrap()
}

fn runtime_of(budget: ByteSize) -> Runtime {
    Runtime::builder().budget(budget).build().unwrap()
}

fn saved(cache: &Cache<u64, Vec<u8>>) -> Saved {
    let mut all = Vec::new();
    let save = |key: &u64, value: &Vec<u8>, meta: &Meta| {
        all.push((*key, value.clone(), meta.clone()));
        Ok::<(), ()>(())
    };
    assert_eq!(cache.save(save), Ok(cache.len() as u64));
    all.sort_by_key(|(key, ..)| *key);
    all
}

#[test]
fn loaded_entries_equal_the_saved_ones() {
    let runtime = runtime_of(ByteSize::mib(16));
    let cache = cache_in(&runtime);
    let tenant = runtime.group("shop/carts").unwrap();
    let hour = Duration::from_secs(3_600);
    for key in 0..2_000 {
        let place = cache.entry(key).group(if key % 2 == 0 { &tenant } else { runtime.root() });
        let place = if key % 3 == 0 { place.time_to_live(hour) } else { place };
        place.insert(vec![key as u8; 10]).unwrap();
        (0..key % 4).for_each(|_| assert!(cache.get(&key).is_some()));
    }
    let all = saved(&cache);
    for (key, value, meta) in &all {
        assert_eq!(*value, [*key as u8; 10]);
        assert_eq!(meta.group, if key % 2 == 0 { "/shop/carts" } else { "" });
        assert_eq!(u64::from(meta.heat % 4), key % 4);
        assert_eq!(meta.time_left.is_some_and(|left| left <= hour && left > hour / 2), key % 3 == 0);
    }
    let other = runtime_of(ByteSize::mib(16));
    let again = cache_in(&other);
    again.insert(5, vec![99]).unwrap();
    let mut gone = all[7].clone();
    gone.2.time_left = Some(Duration::ZERO);
    gone.0 = 1_000_000;
    let loaded = again.load(all.iter().cloned().chain([gone]));
    assert_eq!(loaded, Loaded { put: 1_999, present: 1, expired: 1, refused: 0, evicted: 0 });
    assert_eq!(again.get(&5), Some(vec![99]), "the present value is younger");
    again.remove(&5);
    let mut without = all.clone();
    without.remove(5);
    let cold = |all: Saved| -> Saved {
        // During the load a new entry may go to either queue, and time passes: the queue's bit of
        // `heat` (value 4) and the exact time left are not compared.
        let rounded = |meta: Meta| Meta { time_left: meta.time_left.map(|_| hour), heat: meta.heat % 4, ..meta };
        all.into_iter().map(|(key, value, meta)| (key, value, rounded(meta))).collect()
    };
    assert_eq!(cold(saved(&again)), cold(without));
    assert_eq!(again.len_of(&other.find_group("shop/carts").unwrap()), 1_000);
}

/// An idle deadline is stored up to three units late (`EXTENDED_BY` + 1), which the time left does
/// not include: it is zero for an entry that has not expired yet. `save` writes one tick then, as
/// `load` drops an entry without time left.
#[test]
fn an_entry_saved_near_its_deadline_keeps_its_idle_time() {
    let runtime = runtime_of(ByteSize::mib(16));
    let cache = cache_in(&runtime);
    let hour = Duration::from_secs(3_600);
    cache.entry(1).time_to_idle(hour).insert(vec![1]).unwrap();
    let core = &cache.inner.core;
    {
        let guard = lowwater_rcu::pin();
        let entry = core.index.get(core.hash(&1), &guard, |entry| entry.key == 1).expect("the entry was inserted");
        entry.set_deadline(core.clock.deadline_after(Some(Duration::ZERO), Some(hour), None).at);
    }
    let all = saved(&cache);
    assert!(all[0].2.time_to_idle.is_some_and(|idle| idle >= hour && idle <= hour * 33 / 32), "{all:?}");
    let again = cache_in(&runtime_of(ByteSize::mib(16)));
    assert_eq!(again.load(all.iter().cloned()), Loaded { put: 1, ..Loaded::default() });
    // A use extends the deadline to the whole idle time.
    assert_eq!(again.get(&1), Some(vec![1]));
    let left = saved(&again)[0].2.time_left;
    assert!(left.is_some_and(|left| left > hour * 9 / 10), "{left:?}");
}

#[test]
fn a_loaded_entry_has_the_earliest_of_its_times() {
    let cache = cache_in(&runtime_of(ByteSize::mib(16)));
    let (second, years) = (Duration::from_secs(1), Duration::from_secs(20 * 365 * 86_400));
    let over = |time_left| Meta { time_left, live_left: Some(Duration::ZERO), ..Meta::default() };
    let loaded = cache.load([(1, vec![1], over(None)), (2, vec![2], over(Some(second)))]);
    assert_eq!((loaded, cache.len()), (Loaded { expired: 2, ..Loaded::default() }, 0));
    // An idle time that is too long to be encoded.
    let meta = Meta { time_left: Some(5 * second), time_to_idle: Some(years), ..Meta::default() };
    assert_eq!(cache.load([(3, vec![3], meta)]).put, 1);
    let left = saved(&cache)[0].2.time_left;
    assert!(left.is_some_and(|left| left <= 6 * second), "{left:?}");
}

/// They have been found by the walk, and are shown after the changes.
#[test]
fn entries_that_change_during_a_save_keep_their_group() {
    let runtime = runtime_of(ByteSize::mib(16));
    let (cache, tenant) = (cache_in(&runtime), runtime.group("tenant").unwrap());
    for key in 0..100 {
        cache.entry(key).group(&tenant).insert(vec![1]).unwrap();
    }
    let mut all = Vec::new();
    let save = |key: &u64, value: &Vec<u8>, meta: &Meta| {
        if all.is_empty() {
            for other in (0..100).filter(|other| other != key) {
                match other % 2 {
                    0 => drop(cache.remove(&other).unwrap()),
                    _ => drop(cache.insert(other, vec![2]).unwrap().unwrap()),
                }
            }
        }
        all.push((*key, value.clone(), meta.group.clone()));
        Ok::<(), ()>(())
    };
    assert_eq!(cache.save(save), Ok(all.len() as u64));
    assert!(all.iter().all(|(.., group)| group == "/tenant"), "{all:?}");
}

#[test]
fn an_entry_that_expires_during_a_save_is_not_saved() {
    let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).clock(&clock).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .time_to_live(10 * second)
        .stale_while_revalidate(600 * second)
        .build()
        .unwrap();
    (0..2).for_each(|key| assert_eq!(cache.insert(key, key), Ok(None)));
    (2..4).for_each(|key| assert_eq!(cache.entry(key).time_to_live(60 * second).insert(key), Ok(None)));
    let mut saved = Vec::new();
    let save = |key: &u64, _: &u64, meta: &Meta| {
        saved.push((*key, meta.time_left.unwrap(), clock.elapsed()));
        clock.advance(11 * second);
        Ok::<(), ()>(())
    };
    assert_eq!(cache.save(save), Ok(saved.len() as u64));
    for (key, left, at) in &saved {
        let lives = if *key < 2 { 10 } else { 60 } * second;
        assert!(at < &lives && *left + *at <= lives, "{saved:?}");
    }
    assert_eq!(saved.iter().filter(|(key, ..)| *key >= 2).count(), 2, "{saved:?}");
}

#[test]
fn an_isolated_record_is_saved_for_the_caches_own_group() {
    let one = std::sync::Arc::new(crate::topology::Fixed::new(1));
    let runtime = Runtime::builder().unlimited().topology(one).build().unwrap();
    let (own, tenant) = (runtime.group("own").unwrap(), runtime.group("tenant").unwrap());
    let cache = Cache::<u64, Vec<u8>>::builder(&runtime).group(&own).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let queues = &cache.inner.core.queues;
    for key in 0..100 {
        cache.entry(key).group(&tenant).insert(vec![]).unwrap();
    }
    // A walk that moves records to the other queue has isolated them: they are on no list.
    let taken = queues.take(Queue::Probation, &tenant, crate::NodeId::ZERO, 10);
    assert!(!taken.is_empty());
    let groups = |group: &str| saved(&cache).iter().filter(|(.., meta)| meta.group == group).count();
    assert_eq!((groups(""), groups("/tenant")), (taken.len(), 100 - taken.len()));
    let queue = Queue::Probation;
    let source = crate::cache::shrink::EvictionSource { memcg: &tenant, queue, entries: 0, ghost_recorder: None };
    let mut gone = crate::cache::shrink::Evicted::default();
    cache.inner.core.evict_batch(taken, source, |_| crate::RemovalCause::Size, &mut gone);
    tenant.uncharge(gone.bytes);
    assert_eq!(cache.len() as u64, 100 - gone.freed);
}

#[test]
fn entries_follow_limits_that_the_cache_gets_after_the_save() {
    let runtime = runtime_of(ByteSize::mib(16));
    let cache = cache_in(&runtime);
    (0..100).for_each(|key| drop(cache.insert(key, vec![0; 100]).unwrap()));
    let builder = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, value| value.capacity());
    let limited = builder.max(ByteSize::mib(1)).build().unwrap();
    assert_eq!(limited.load(saved(&cache)).put, 100);
    assert_eq!(limited.len_of(limited.group()), 100);
}

#[test]
fn loading_into_a_smaller_budget_keeps_used_entries() {
    let runtime = runtime_of(ByteSize::mib(4));
    let cache = cache_in(&runtime);
    let hot = |key: u64| key % 8 == 0;
    for key in 0..4_000 {
        cache.insert(key, vec![0; 100]).unwrap();
        (0..3 * u64::from(hot(key))).for_each(|_| assert!(cache.get(&key).is_some()));
    }
    let mut all = saved(&cache);
    // The least used first, as `load` advises: what is inserted last stays.
    all.sort_by_key(|(.., meta)| meta.heat % 4);
    let again = hashed_cache_in(without_reclaimer(ByteSize::kib(200)), Seeded(1));
    let loaded = on_one_processor(|| again.load(all));
    assert!(again.runtime().root().usage() <= ByteSize::kib(200));
    assert_eq!(loaded.put + loaded.refused, 4_000);
    assert_eq!(loaded.did_not_fit(), 4_000 - (loaded.put - loaded.evicted));
    assert_eq!((again.stats().evictions, again.len() as u64), (loaded.evicted, loaded.put - loaded.evicted));
    let kept = (0..4_000).filter(|key| hot(*key) && again.contains_key(key)).count();
    assert!(kept >= 400, "{kept} of 500 hot entries kept, {} entries in all", again.len());
}

#[test]
fn save_stops_at_the_first_error_and_load_refuses_bad_groups() {
    let runtime = runtime_of(ByteSize::mib(4));
    let cache = cache_in(&runtime);
    (0..10).for_each(|key| drop(cache.insert(key, vec![])));
    let mut left = 3;
    let save = |_: &u64, _: &Vec<u8>, _: &Meta| {
        left -= 1;
        if left > 0 {
            Ok(())
        } else {
            Err("full")
        }
    };
    assert_eq!(cache.save(save), Err("full"));
    assert_eq!(left, 0);
    let meta = Meta { group: "a//b".into(), heat: 255, ..Meta::default() };
    let good = Meta { group: "/a".into(), heat: 255, ..Meta::default() };
    let deep = Meta { group: vec!["deep"; 129].join("/"), ..Meta::default() };
    let loaded = cache.load([(100, vec![], meta), (101, vec![], good), (102, vec![], deep)]);
    assert_eq!((loaded.refused, loaded.put), (2, 1));
    assert_eq!(runtime.stats().groups, 2, "a group of a refused path was made");
}

#[test]
fn saved_group_paths_select_the_groups() {
    let runtime = runtime_of(ByteSize::mib(4));
    let group = runtime.group("a/b").unwrap();
    for group in [runtime.root(), &group] {
        assert_eq!(runtime.group(&group.path()).as_ref(), Ok(group));
        assert_eq!(runtime.find_group(&group.path()).as_ref(), Some(group));
    }
    for (path, error) in [("", MemcgError::BadName), ("//", MemcgError::BadName), ("x//y", MemcgError::BadName)] {
        assert_eq!((runtime.group(path), runtime.find_group(path)), (Err(error), None), "{path}");
    }
    let (deepest, deeper) = (vec!["d"; Memcg::DEPTH_MAX].join("/"), vec!["e"; Memcg::DEPTH_MAX + 1].join("/"));
    assert_eq!(runtime.group(&deeper), Err(MemcgError::TooDeep));
    assert_eq!(runtime.group(&format!("f/{}", "n".repeat(256))), Err(MemcgError::BadName));
    assert_eq!(runtime.stats().groups, 3, "a group of a refused path was made");
    assert_eq!(runtime.group(&deepest).unwrap().depth(), Memcg::DEPTH_MAX);
}
