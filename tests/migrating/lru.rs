//! The rows of the crate lru.

use lowwater::cache::{Computed, Eviction, Meta, Op, Visit};
use lowwater::{ByteSize, Cache, Runtime};

use crate::{letters, numbers, runtime, texts, Outcome};

#[test]
fn builders() -> Outcome {
    // row: new(cap), sparse(cap), unbounded()
    let runtime = Runtime::builder().unlimited().build()?;
    assert_eq!(runtime.root().max(), ByteSize::MAX);
    // row: with_hasher(cap, s), unbounded_with_hasher(s)
    let s = std::collections::hash_map::RandomState::new();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).hasher(s).build()?;
    assert_eq!(cache.get_or_insert_with(1, || 1), 1);
    Ok(())
}

#[test]
fn lookups_and_inserts() -> Outcome {
    let cache = letters();
    // row: put(k, v), push(k, v)
    assert_eq!(cache.insert("a".into(), "1".into())?.as_deref(), Some("a"));
    // row: get(&q), get_key_value(&q)
    assert_eq!((cache.get("a").as_deref(), cache.pin().get("a").map(String::as_str)), (Some("1"), Some("1")));
    // row: peek(&q), clear(), len(), is_empty()
    assert_eq!((cache.peek("b").as_deref(), cache.len(), cache.is_empty()), (Some("b"), 5, false));
    assert_eq!((cache.contains_key("b"), cache.runtime().root().max()), (true, ByteSize::mib(16)));
    // row: pop(&q), pop_entry(&q)
    assert_eq!((cache.remove("b").as_deref(), cache.remove("b")), (Some("b"), None));
    // row: promote(&q)
    let hits = cache.stats().hits;
    assert_eq!((cache.get("c").as_deref(), cache.stats().hits - hits), (Some("c"), 1));
    // row: demote(&q)
    assert!(cache.remove("c").is_some());
    // row: find_and_promote(f)
    let found = cache.pin().iter().find(|(_, value)| *value == "d").map(|(key, _)| key.clone());
    assert_eq!(found.and_then(|key| cache.get(&key)).as_deref(), Some("d"));
    // row: retain(f)
    cache.retain(|key, _| key == "d");
    assert_eq!(cache.len(), 1);
    Ok(())
}

/// In LRU order the oldest unused entry is evicted first. A look at an entry by `and_compute` is no
/// use; a new value is.
#[test]
fn changes_of_values() -> Outcome {
    // row: get_mut(&q), get_key_value_mut(&q), peek_mut(&q)
    let runtime = runtime(ByteSize::mib(1));
    let builder = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO);
    let cache = builder.eviction(Eviction::Lru).build()?;
    (0..3000).for_each(|n| drop(cache.insert(n, n)));
    let changed = |value: &u64| value + 1;
    let computed =
        cache.entry(0).and_compute(|there| there.map_or(Op::Keep, |there| Op::Update(changed(there.value()))))?;
    assert_eq!(computed, Computed::Replaced(0));
    assert_eq!(cache.entry(1).and_compute(|_| Op::Keep)?, Computed::Kept);
    // row: pop_lru(), pop_mru(), peek_lru(), peek_mru()
    runtime.reclaim(runtime.root(), Cache::<u64, u64>::ENTRY_BYTES * 100);
    assert_eq!([0, 1, 2, 2999].map(|key| cache.contains_key(&key)), [true, false, false, true]);
    Ok(())
}

#[test]
fn loads() -> Outcome {
    let cache = texts();
    // row: get_or_insert(k, f), get_or_insert_ref(&q, f)
    assert_eq!(cache.get_or_insert_with("a".into(), || "1".into()), "1");
    assert_eq!(cache.get_or_insert_with_ref("a", || "2".into()), "1");
    // row: get_or_insert_with_key(k, f)
    let (k, f) = (String::from("b"), |key: &String| key.repeat(2));
    assert_eq!(cache.get_or_insert_with(k.clone(), || f(&k)), "bb");
    // row: try_get_or_insert..
    assert_eq!(cache.try_get_or_insert_with("c".into(), || Err("no")), Err("no"));
    assert_eq!(cache.try_get_or_insert_with_ref("c", || Ok::<_, &str>("3".into())), Ok("3".into()));
    // row: get_or_insert_mut.., try_get_or_insert_mut..
    let cache = numbers(ByteSize::mib(1));
    let changed = |there: Option<u64>| there.unwrap_or(0) + 1;
    for expected in [Computed::Inserted, Computed::Replaced(1)] {
        assert_eq!(cache.entry(1).and_compute(|there| Op::Put(changed(there.map(|there| *there.value()))))?, expected);
    }
    Ok(())
}

#[test]
fn walks_and_copies() -> Outcome {
    let cache = letters();
    // row: iter(), for .. in &cache
    assert_eq!(cache.pin().iter().map(|(_, value)| value.len()).sum::<usize>(), 5);
    // row: iter_mut(), for .. in &mut cache
    let (mut at, mut keys) = (Visit::new(), Vec::new());
    while !at.is_done() {
        cache.visit(&mut at, |key, _| keys.push(key.clone()));
    }
    for key in keys {
        cache.entry(key).and_compute(|there| there.map_or(Op::Keep, |it| Op::Update(it.value().repeat(2))))?;
    }
    assert!(cache.pin().iter().all(|(key, value)| *value == key.repeat(2)));
    // row: clone()
    let mut saved: Vec<(String, String, Meta)> = Vec::new();
    cache
        .save(|key, value, meta| {
            saved.push((key.clone(), value.clone(), meta.clone()));
            Ok::<_, ()>(())
        })
        .map_err(|()| "no error")?;
    let copy = texts();
    assert_eq!((copy.load(saved).put, copy.len()), (5, 5));
    copy.remove("a");
    assert_eq!((copy.contains_key("a"), cache.contains_key("a")), (false, true));
    let same = cache.clone();
    same.remove("a");
    assert!(!cache.contains_key("a"));
    // row: for .. in cache; resize(cap)
    let (mut at, mut all) = (Visit::new(), Vec::new());
    while !at.is_done() {
        cache.visit(&mut at, |key, _| all.extend(cache.remove(key)));
    }
    assert_eq!((all.len(), cache.len()), (4, 0));
    cache.runtime().set_budget(ByteSize::mib(1));
    assert_eq!(cache.runtime().root().max(), ByteSize::mib(1));
    Ok(())
}
