//! The rows of moka's `Cache`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Barrier;

use lowwater::cache::{Op, Visit};
use lowwater::{ByteSize, Cache};

use crate::wait::until;
use crate::{letters, numbers, runtime, texts, Outcome};

#[test]
fn lookups_and_inserts() -> Outcome {
    // row: get(&q), contains_key(&q), clone()
    let cache = letters();
    let clone = cache.clone();
    assert_eq!(clone.get("a").as_deref(), Some("a"));
    assert!(cache.contains_key("b") && !cache.contains_key("x"));
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (1, 0), "no lookup by `contains_key` counts");
    // row: insert(k, v)
    assert_eq!(cache.insert("a".into(), "1".into())?.as_deref(), Some("a"));
    assert!(cache.entry("a".into()).set("2".into())?);
    assert!(!cache.entry("new".into()).set("2".into())?);
    // row: entry_by_ref(&q)
    let value = cache.get("y").unwrap_or_else(|| cache.entry("y".to_owned()).or_insert_with(|| "loaded".into()));
    assert_eq!((value.as_str(), cache.get("y").as_deref()), ("loaded", Some("loaded")));
    Ok(())
}

#[test]
fn loads() -> Outcome {
    let cache = numbers(ByteSize::mib(1));
    // row: get_with(k, init)
    let (loads, all) = (AtomicUsize::new(0), Barrier::new(4));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                all.wait();
                let load = || {
                    std::thread::sleep(std::time::Duration::from_millis(50));
                    loads.fetch_add(1, Ordering::Relaxed) as u64
                };
                assert_eq!(cache.get_or_insert_with(1, load), 0);
            });
        }
    });
    assert_eq!(loads.into_inner(), 1);
    let small = Cache::<u64, Vec<u8>>::builder(&runtime(ByteSize::kib(64))).weigher(|_, v| v.capacity()).build()?;
    assert_eq!(small.get_or_insert_with(1, || vec![0; 1 << 20]).len(), 1 << 20);
    assert!(small.is_empty());
    // row: get_with_if(k, init, replace_if), or_insert_with_if
    for (replace, expected) in [(false, 0), (true, 9)] {
        cache.entry(1).and_compute(|there| match there {
            Some(there) if replace && *there.value() == 0 => Op::Remove,
            _ => Op::Keep,
        })?;
        assert_eq!(cache.get_or_insert_with(1, || 9), expected);
    }
    // row: try_get_with(k, init)
    assert_eq!(cache.try_get_or_insert_with(2, || Err("no")), Err("no"));
    assert_eq!(cache.try_get_or_insert_with(2, || Ok::<_, &str>(2)), Ok(2));
    // row: optionally_get_with(k, init)
    let load = |key: u64, init: fn() -> Option<u64>| cache.try_get_or_insert_with(key, || init().ok_or(())).ok();
    assert_eq!((load(3, || None), cache.contains_key(&3)), (None, false));
    assert_eq!((load(3, || Some(4)), load(3, || None), cache.get(&3)), (Some(4), Some(4), Some(4)));
    // row: the three .._by_ref(&q, init)
    let cache = texts();
    assert_eq!(cache.get_or_insert_with_ref("a", || "1".into()), "1");
    assert_eq!(cache.try_get_or_insert_with_ref("b", || Err("no")), Err("no"));
    assert_eq!(cache.try_get_or_insert_with_ref("a", || Err("no")), Ok("1".into()));
    Ok(())
}

/// A waiting caller of a load that fails runs its own loader; only the first caller gets the error.
#[test]
fn an_error_is_returned_to_the_caller_that_loaded() {
    let cache = numbers(ByteSize::mib(1));
    let began = Barrier::new(2);
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            cache.try_get_or_insert_with(1, || {
                began.wait();
                std::thread::sleep(std::time::Duration::from_millis(50));
                Err("no")
            })
        });
        began.wait();
        let second = cache.try_get_or_insert_with(1, || Ok::<_, &str>(7));
        (first.join().unwrap(), second)
    });
    assert_eq!((first, second, cache.get(&1)), (Err("no"), Ok(7), Some(7)));
}

#[test]
fn removals() -> Outcome {
    // row: invalidate(&q), remove(&q)
    let cache = letters();
    assert_eq!((cache.remove("a").as_deref(), cache.remove("a")), (Some("a"), None));
    // row: invalidate_entries_if(f)
    let f = |_: &String, v: &String| v == "b";
    cache.retain(|k, v| !f(k, v));
    assert_eq!((cache.contains_key("b"), cache.len()), (false, 3));
    let group = cache.runtime().group("group")?;
    cache.entry("in the group".into()).group(&group).insert("v".into())?;
    cache.runtime().drop_group(&group)?;
    // The entry leaves the index before it is counted.
    until("the entry is gone", || !cache.contains_key("in the group") && cache.len() == 3);
    // row: invalidate_all()
    cache.clear();
    assert_eq!((cache.len(), cache.get("c")), (0, None));
    Ok(())
}

/// A part of the index is a segment, which has 1,010 entries at most, and at least half as many in
/// the mean. A write locks one segment.
#[test]
fn a_visit_passes_some_hundreds_of_entries() -> Outcome {
    const ENTRIES: u64 = 50_000;
    let cache = numbers(ByteSize::mib(64));
    (0..ENTRIES).try_for_each(|n| cache.insert(n, n).map(drop))?;
    let (mut at, mut visits) = (Visit::new(), 0);
    while !at.is_done() {
        let mut passed = 0;
        cache.visit(&mut at, |_, _| passed += 1);
        assert!(passed <= 1_010, "{passed} entries in one visit");
        visits += 1;
    }
    assert!((50..=100).contains(&visits), "{visits} visits of {ENTRIES} entries");
    Ok(())
}

#[test]
fn walks_and_figures() -> Outcome {
    let cache = letters();
    // row: iter(), for .. in &cache
    let pinned = cache.pin();
    let mut keys: Vec<&str> = pinned.iter().map(|(key, _)| key.as_str()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c", "d", "e"]);
    drop(pinned);
    let (mut at, mut count) = (Visit::new(), 0);
    while !at.is_done() {
        cache.visit(&mut at, |_, _| count += 1);
    }
    assert_eq!(count, 5);
    // row: entry_count()
    assert_eq!(cache.len(), 5);
    // row: weighted_size()
    let bytes = cache.stats().bytes;
    assert_eq!(bytes, (Cache::<String, String>::ENTRY_BYTES + ByteSize::new(2)) * 5);
    let processors = std::thread::available_parallelism()?.get() as u64;
    let usage = cache.group().usage();
    assert!(usage >= bytes && usage <= bytes + ByteSize::kib(32) * processors, "{usage}");
    // row: run_pending_tasks()
    cache.remove("a");
    cache.collect();
    // Threads of other tests may be in a lookup.
    until("removed values are dropped", || {
        cache.collect();
        cache.runtime().stats().retired == ByteSize::ZERO
    });
    // row: name(), policy()
    assert_eq!(cache.runtime().root().max(), ByteSize::mib(16));
    assert!(format!("{cache:?}").contains("cache"));
    assert!(cache.runtime().stats().registry.shrinkers.iter().any(|shrinker| shrinker.name == "cache"));
    Ok(())
}
