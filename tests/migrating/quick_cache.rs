//! The rows of quick_cache's `sync::Cache`.

use lowwater::cache::{Computed, Op, RejectReason, Visit};
use lowwater::{ByteSize, Cache};

use crate::wait::until;
use crate::{letters, numbers, runtime, Outcome};

#[test]
fn lookups_and_inserts() -> Outcome {
    // row: Arc<Cache<..>>
    let cache: Cache<String, String> = letters().clone();
    // row: get(&q), peek(&q), contains_key(&q), and each as try_..
    assert_eq!(
        (cache.get("a").as_deref(), cache.peek("b").as_deref(), cache.contains_key("c")),
        (Some("a"), Some("b"), true)
    );
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses), (1, 0));
    // row: insert(k, v)
    assert_eq!(cache.insert("a".into(), "1".into())?.as_deref(), Some("a"));
    // row: replace(k, v, soft)
    let replace = |k: &str, v: String| {
        cache
            .entry(k.into())
            .and_compute(|there| there.map_or(Op::Keep, |_| Op::Put(v.clone())))
            .map_err(|error| error.reason)
    };
    assert_eq!(replace("a", "2".into())?, Computed::Replaced("1".into()));
    assert_eq!((replace("x", "2".into())?, cache.contains_key("x")), (Computed::Kept, false));
    // row: remove(&q)
    assert_eq!(cache.remove("a").as_deref(), Some("2"));
    // row: remove_if(&q, f)
    let remove_if = |k: &str, f: fn(&String) -> bool| {
        cache.entry(k.into()).and_compute(|there| match there {
            Some(there) if f(there.value()) => Op::Remove,
            _ => Op::Keep,
        })
    };
    assert_eq!((remove_if("b", |v| v == "other")?, cache.contains_key("b")), (Computed::Kept, true));
    assert_eq!(remove_if("b", |v| v == "b")?, Computed::Removed("b".into()));
    assert_eq!(remove_if("b", |v| v == "b")?, Computed::Kept);
    // row: retain(f)
    cache.retain(|k, _| k == "c");
    assert_eq!((cache.len(), cache.contains_key("c")), (1, true));
    Ok(())
}

#[test]
fn loads() -> Outcome {
    let cache = numbers(ByteSize::mib(1));
    // row: get_or_insert_with(&q, f)
    assert_eq!(cache.try_get_or_insert_with(1, || Err("no")), Err("no"));
    assert_eq!((cache.get_or_insert_with(1, || 1), cache.get_or_insert_with(1, || 2)), (1, 1));
    // row: get_value_or_guard(&q, timeout): GuardResult
    assert_eq!(cache.try_get_or_insert_with(1, || Err("it is there")), Ok(1));
    // row: PlaceholderGuard::insert, insert_with_lifecycle
    let loaded = cache.get_or_insert_with(2, || {
        cache.insert(2, 20).unwrap();
        21
    });
    assert_eq!((loaded, cache.get(&2)), (21, Some(20)), "the inserted value stays, the loaded one is returned");
    // row: entry(&q, timeout, f), entry_async
    let began = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let (done, wait) = std::sync::mpsc::channel();
        let (cache, began) = (&cache, &began);
        scope.spawn(move || {
            cache.get_or_insert_with(3, || {
                began.wait();
                wait.recv().unwrap();
                3
            })
        });
        began.wait();
        let computed = cache.entry(3).and_compute(|there| if there.is_none() { Op::Put(30) } else { Op::Keep });
        assert_eq!(computed, Ok(Computed::Inserted), "it does not wait for the load");
        done.send(()).unwrap();
    });
    assert_eq!(cache.get(&3), Some(30));
    // row: EntryAction::{Retain, Remove}
    let computed = cache.entry(3).and_compute(|there| there.map_or(Op::Keep, |there| Op::Update(there.value() + 1)));
    assert_eq!((computed?, cache.get(&3)), (Computed::Replaced(30), Some(31)));
    assert_eq!(cache.entry(3).and_compute(|_| Op::Remove)?, Computed::Removed(31));
    // row: EntryAction::ReplaceWithGuard
    cache.remove(&1);
    assert_eq!(cache.get_or_insert_with(1, || 10), 10);
    // row: EntryResult::{Retained, Removed, Vacant}
    let mut result = None;
    let computed = cache.entry(1).and_compute(|there| {
        result = there.map(|there| there.value() + 1);
        Op::Keep
    })?;
    assert_eq!((computed, result), (Computed::Kept, Some(11)));
    assert_eq!(cache.entry(4).and_compute(|_| Op::Put(4))?, Computed::Inserted);
    Ok(())
}

#[cfg(feature = "async")]
#[tokio::test]
async fn loads_of_tasks() -> Outcome {
    // row: get_or_insert_async(&q, future), get_value_or_guard_async(&q)
    let cache = numbers(ByteSize::mib(1));
    let limit = std::time::Duration::from_millis(20);
    let never = cache.try_get_or_insert_with_async(1, std::future::pending::<Result<u64, &str>>());
    assert!(tokio::time::timeout(limit, never).await.is_err());
    assert_eq!(cache.try_get_or_insert_with_async(1, async { Ok::<_, &str>(1) }).await, Ok(1));
    Ok(())
}

#[test]
fn walks() -> Outcome {
    let cache = letters();
    // row: iter()
    assert_eq!(cache.pin().iter().filter(|(key, value)| key == value).count(), 5);
    // row: drain()
    let (mut at, mut all) = (Visit::new(), Vec::new());
    while !at.is_done() {
        cache.visit(&mut at, |key, _| all.extend(cache.remove(key)));
    }
    all.sort_unstable();
    assert_eq!((all, cache.len()), (["a", "b", "c", "d", "e"].map(String::from).to_vec(), 0));
    // row: clear()
    let cache = letters();
    cache.clear();
    assert_eq!((cache.len(), cache.stats().removed), (0, 5));
    Ok(())
}

#[test]
fn sizes_and_figures() -> Outcome {
    // row: set_capacity(weight)
    let runtime = runtime(ByteSize::mib(8));
    let cache =
        Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, value| value.capacity()).max(ByteSize::mib(6)).build()?;
    let fill = || (0..1000).try_for_each(|n| cache.insert(n, vec![0; 5000]).map(drop));
    fill()?;
    // No reclaim can free these bytes: usage stays above the new budget, so an insert is refused.
    let other = runtime.charge_guard(runtime.root(), ByteSize::mib(2))?;
    runtime.set_budget(ByteSize::mib(1));
    let refused = cache.insert(5000, vec![0; 5000]).unwrap_err();
    assert!(matches!(refused.reason, RejectReason::NoRoom { .. }), "{refused}");
    drop(other);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while cache.insert(5000, vec![0; 5000]).is_err() {
        assert!(std::time::Instant::now() < deadline, "refused still");
    }
    assert!(runtime.root().usage() <= ByteSize::mib(1));
    runtime.set_budget(ByteSize::mib(8));
    fill()?;
    cache.group().set_max(ByteSize::kib(512));
    until("the reclaimer has evicted", || cache.group().usage() <= ByteSize::kib(512));
    // row: capacity(), weight()
    assert_eq!(cache.runtime().root().max(), ByteSize::mib(8));
    let entry = Cache::<u64, Vec<u8>>::ENTRY_BYTES + ByteSize::new(5000);
    // Another cache: the reclaimer may be evicting from the full one.
    let cache = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, value| value.capacity()).build()?;
    cache.insert(1, vec![0; 5000])?;
    assert_eq!(cache.stats().bytes, entry);
    // row: memory_used(): MemoryUsed::total
    let before = cache.footprint();
    cache.insert(1, Vec::with_capacity(400_000))?;
    assert!(before > ByteSize::ZERO && cache.footprint() < before + ByteSize::new(400_000), "no heap bytes of values");
    // row: hits(), misses() (feature stats)
    let before = cache.stats();
    assert!(cache.get(&1).is_some() && cache.get(&2).is_none());
    let after = cache.stats();
    assert_eq!((after.hits - before.hits, after.misses - before.misses), (1, 1));
    // row: item_stats(&q), try_item_stats (feature stats)
    let heat = |cache: &Cache<u64, Vec<u8>>| {
        let mut heat = None;
        let _ = cache.save(|_, _, meta| {
            heat = Some(meta.heat);
            Ok::<_, ()>(())
        });
        heat
    };
    cache.insert(1, vec![])?;
    let new = heat(&cache);
    (0..10).for_each(|_| drop(cache.get(&1)));
    assert!(new < heat(&cache) && heat(&cache) <= Some(7), "{new:?}, {:?}", heat(&cache));
    Ok(())
}
