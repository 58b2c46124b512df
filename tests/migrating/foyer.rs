//! The rows of foyer's memory tier.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lowwater::cache::Eviction;
use lowwater::{ByteSize, Cache, RemovalCause, Runtime};

use crate::wait::until;
use crate::{letters, numbers, runtime, Outcome};

#[test]
fn builders() -> Outcome {
    // row: CacheBuilder::new(capacity), Cache::builder(capacity)
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build()?;
    // row: with_weighter
    let cache = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, value| value.capacity()).build()?;
    cache.insert(1, Vec::with_capacity(100))?;
    assert_eq!(cache.stats().bytes, Cache::<u64, Vec<u8>>::ENTRY_BYTES + ByteSize::new(100));
    // row: with_eviction_config(Fifo / Lru / Lfu / S3Fifo / Sieve)
    for order in [Eviction::Lru, Eviction::S3Fifo, Eviction::Sieve] {
        let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).eviction(order).build()?;
        assert_eq!(cache.get_or_insert_with(1, || 1), 1);
    }
    // row: with_name, with_hash_builder, build()
    let hasher = std::collections::hash_map::RandomState::new();
    let builder = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO);
    let named = builder.name("pages").hasher(hasher).build()?;
    assert!(format!("{named:?}").contains("pages"));
    // row: with_metrics_registry
    assert_eq!((cache.stats().inserts, named.stats().inserts), (1, 0));
    Ok(())
}

/// foyer's `Evict`, `Replace`, `Remove` and `Clear`, and `Expired`, which foyer does not have.
#[test]
fn events() -> Outcome {
    // row: with_event_listener: EventListener::on_leave
    let (seen, runtime) = (Arc::new(Mutex::new(Vec::new())), runtime(ByteSize::mib(1)));
    let told = Arc::clone(&seen);
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .eviction_listener(move |key, _, cause| told.lock().unwrap().push((*key, cause)))
        .build()?;
    cache.insert(1, 1)?;
    runtime.drop_caches();
    cache.insert(2, 1)?;
    cache.insert(2, 2)?;
    cache.remove(&2);
    cache.insert(3, 1)?;
    cache.clear();
    cache.entry(4).time_to_live(Duration::ZERO).insert(1)?;
    cache.get(&4);
    until("the removal is told", || seen.lock().unwrap().len() == 5);
    let expected = [
        (1, RemovalCause::Size),
        (2, RemovalCause::Replaced),
        (2, RemovalCause::Explicit),
        (3, RemovalCause::Explicit),
        (4, RemovalCause::Expired),
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
    Ok(())
}

#[test]
fn lookups_and_inserts() -> Outcome {
    let cache = letters();
    // row: get(&q) gives a CacheEntry
    assert_eq!((cache.pin().get("a").map(String::as_str), cache.get("a").as_deref()), (Some("a"), Some("a")));
    // row: insert(k, v) gives a CacheEntry
    assert_eq!(cache.insert("a".into(), "1".into())?.as_deref(), Some("a"));
    // row: insert_with_properties(k, v, properties)
    let g = cache.runtime().group("batch")?;
    cache.entry("x".into()).group(&g).insert("1".into())?;
    assert_eq!(cache.len_of(&g), 1);
    // row: contains(&q), remove(&q), entries()
    assert_eq!((cache.contains_key("x"), cache.remove("x").as_deref(), cache.len()), (true, Some("1"), 5));
    // row: touch(&q)
    assert!(cache.get("b").is_some() && cache.touch("b", Some(Duration::from_secs(1))));
    // row: GetOrFetch::{need_await, try_unwrap}
    assert_eq!(cache.get("y").unwrap_or_else(|| cache.get_or_insert_with("y".into(), || "1".into())), "1");
    Ok(())
}

#[cfg(feature = "async")]
#[tokio::test]
async fn loads_of_tasks() -> Outcome {
    let cache = numbers(ByteSize::mib(1));
    // row: get_or_fetch(&k, async f)
    assert_eq!(cache.try_get_or_insert_with_async(1, async { Err("no") }).await, Err("no"));
    // row: FetchTarget: a value with properties
    let g = cache.runtime().group("tenant")?;
    assert_eq!(cache.entry(1).group(&g).or_try_insert_with_async(async { Ok::<_, &str>(1) }).await, Ok(1));
    assert_eq!((cache.len_of(&g), g.usage() > ByteSize::ZERO), (1, true));
    Ok(())
}

/// A scan in a group with a maximum evicts its own entries, and none of the others.
#[test]
fn hints() -> Outcome {
    // row: CacheProperties::{with_hint, hint}: Hint::Low
    let cache = numbers(ByteSize::mib(1));
    (0..1000).for_each(|n| drop(cache.insert(n, n)));
    let scan = cache.runtime().group("scan")?;
    scan.set_max(ByteSize::kib(256));
    for n in 1000..30_000 {
        cache.entry(n).group(&scan).insert(n)?;
    }
    assert_eq!((0..1000).filter(|n| cache.contains_key(n)).count(), 1000);
    assert!(scan.usage() <= ByteSize::kib(256));
    Ok(())
}

#[test]
fn removals_and_sizes() -> Outcome {
    // row: clear(), evict_all()
    let cache = letters();
    let other = Cache::<u64, u64>::builder(cache.runtime()).weigher(|_, _| ByteSize::ZERO).build()?;
    other.insert(1, 1)?;
    cache.clear();
    assert_eq!((cache.len(), other.len()), (0, 1));
    cache.insert("a".into(), "a".into())?;
    cache.runtime().drop_caches();
    assert_eq!((cache.len(), other.len()), (0, 0));
    // row: flush(), flush_if(f)
    let cache = letters();
    let f = |k: &String, _: &String| k < &"c".to_string();
    cache.retain(|k, v| !f(k, v));
    assert_eq!(cache.len(), 3);
    // row: resize(capacity)
    cache.runtime().set_budget(ByteSize::mib(2));
    // row: capacity(), usage()
    let entry = Cache::<String, String>::ENTRY_BYTES + ByteSize::new(2);
    assert_eq!((cache.runtime().root().max(), cache.stats().bytes), (ByteSize::mib(2), entry * 3));
    Ok(())
}

#[test]
fn entries() -> Outcome {
    let runtime = runtime(ByteSize::mib(1));
    let weigher = |_: &u64, value: &Arc<str>| ByteSize::from(value.len() + 16);
    let cache = Cache::<u64, Arc<str>>::builder(&runtime).weigher(weigher).build()?;
    cache.insert(1, "one".into())?;
    // row: value(), *entry, key()
    assert_eq!(cache.pin().iter().next().map(|(key, value)| (*key, &**value)), Some((1, "one")));
    // row: weight(), hash(), properties(), piece()
    let value = cache.get(&1).ok_or("absent")?;
    assert_eq!(cache.stats().bytes, weigher(&1, &value) + Cache::<u64, Arc<str>>::ENTRY_BYTES);
    // row: refs()
    assert_eq!(Arc::strong_count(&value), 2);
    runtime.drop_caches();
    assert_eq!((cache.get(&1), &*value), (None, "one"), "a held value does not keep its entry");
    // row: is_outdated()
    cache.insert(1, "two".into())?;
    assert!(!cache.peek(&1).is_some_and(|there| Arc::ptr_eq(&there, &value)));
    // row: source()
    let mut is_loaded = false;
    cache.get_or_insert_with(2, || {
        is_loaded = true;
        "three".into()
    });
    assert!(is_loaded);
    Ok(())
}
