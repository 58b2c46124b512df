//! The other caches' side of docs/MIGRATING.md, by their own methods; `tests/migrating` of lowwater
//! has lowwater's side.
//!
//! `ci/comparison.sh` runs these tests with the versions that the page names.
//!
//! A change of a version there must keep these tests, or change the page.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Barrier;

/// "In moka all get the error."
#[test]
fn in_moka_all_callers_get_the_error_of_a_load() {
    let cache = moka::sync::Cache::<u64, u64>::new(100);
    let (began, loads) = (Barrier::new(2), AtomicUsize::new(0));
    let load = || {
        if loads.fetch_add(1, Ordering::Relaxed) == 0 {
            began.wait();
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        Err::<u64, _>("no")
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| cache.try_get_with(1, load).map_err(|error| *error));
        began.wait();
        let second = cache.try_get_with(1, load).map_err(|error| *error);
        assert_eq!((first.join().unwrap(), second), (Err("no"), Err("no")));
    });
    assert_eq!(loads.into_inner(), 1);
}

/// `entry_count` "needs `run_pending_tasks`"; `insert` returns nothing, `invalidate` no value.
#[test]
fn mokas_count_is_not_exact_at_once() {
    // Maintenance may run in an insert, but seldom in the first one.
    let caches = [(); 10].map(|()| moka::sync::Cache::<u64, u64>::new(100));
    caches.iter().for_each(|cache| cache.insert(1, 1));
    assert!(caches.iter().any(|cache| cache.entry_count() == 0));
    let cache = &caches[0];
    cache.run_pending_tasks();
    assert_eq!(cache.entry_count(), 1);
    assert_eq!((cache.remove(&1), cache.get(&1)), (Some(1), None));
    assert_eq!(cache.optionally_get_with(2, || None), None);
    let entry = cache.entry(3).or_insert(4);
    assert_eq!((entry.is_fresh(), entry.into_value()), (true, 4));
}

/// `replace` of an absent key changes nothing, `remove` returns the key as well, and a look by
/// `peek` or `contains_key` is no use.
#[test]
fn quick_caches_replacements_and_removals() {
    let cache = quick_cache::sync::Cache::<u64, u64>::new(100);
    assert_eq!(cache.replace(1, 1, false), Err((1, 1)));
    cache.insert(1, 1);
    assert_eq!(cache.replace(1, 2, false), Ok(()));
    assert_eq!((cache.peek(&1), cache.contains_key(&1), cache.get(&1)), (Some(2), true, Some(2)));
    assert_eq!(
        (cache.remove_if(&1, |value| *value == 3), cache.remove_if(&1, |value| *value == 2)),
        (None, Some((1, 2)))
    );
    assert_eq!(cache.get_or_insert_with(&2, || Err("no")), Err("no"));
    cache.insert(3, 3);
    assert_eq!((cache.drain().collect::<Vec<_>>(), cache.len()), (vec![(3, 3)], 0));
}

/// "A weight of 0 pins" an entry in quick_cache, and not here.
#[test]
fn quick_cache_keeps_an_entry_without_weight() {
    #[derive(Clone)]
    struct Zero;
    impl quick_cache::Weighter<u64, u64> for Zero {
        fn weight(&self, key: &u64, _: &u64) -> u64 {
            u64::from(*key != 0)
        }
    }
    let cache = quick_cache::sync::Cache::with_weighter(100, 100, Zero);
    (0..10_000).for_each(|key| cache.insert(key, key));
    assert_eq!((cache.get(&0), cache.weight() <= 100), (Some(0), true));
}

/// `insert`, `get` and `remove` return a counted reference, and a held one may be outdated.
#[test]
fn foyers_entries_are_counted_references() {
    let cache: foyer_memory::Cache<u64, u64> = foyer_memory::Cache::builder(100).build();
    let entry = cache.insert(1, 1);
    assert_eq!((*entry.key(), *entry.value(), entry.is_outdated()), (1, 1, false));
    cache.insert(1, 2);
    assert!(entry.is_outdated());
    assert_eq!((cache.contains(&1), cache.touch(&1), cache.entries()), (true, true, 1));
    assert_eq!(cache.remove(&1).map(|entry| *entry), Some(2));
}

/// lru lends values mutably and has an exact order.
#[test]
fn lru_lends_values_and_exposes_its_order() {
    let mut cache = lru::LruCache::new(std::num::NonZeroUsize::new(2).unwrap());
    assert_eq!((cache.put(1, 1), cache.push(2, 2), cache.push(3, 3)), (None, None, Some((1, 1))));
    *cache.get_mut(&2).unwrap() += 1;
    assert_eq!(cache.peek_lru(), Some((&3, &3)));
    assert_eq!((cache.pop_lru(), cache.pop_mru()), (Some((3, 3)), Some((2, 3))));
    assert!(cache.is_empty());
}
