//! Groups and keys: the group charged for a replaced entry, and keys in tenants' name spaces.
//!
//! A tenant must neither pay for another tenant's entry nor find another tenant's key.
//!
//! A change must ensure that the counts of all groups are compared, not only the count of the group
//! that gets the entry, and that a tenant's key is also looked up as another tenant's.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

use super::{cache_of, eventually, one_node};
use crate::cache::{Computed, ExpiryEvent, Lifetime, Meta, Op, Origin, RejectReason, TenantKey, TenantView};
use crate::runtime::ManualClock;
use crate::{ByteSize, Cache, Memcg, Runtime};
use lowwater_lru_core::{MemcgError, NodeId};

type Tenants = Cache<TenantKey<u64>, u64>;

fn tenants() -> (Runtime, Tenants, [Memcg; 2]) {
    let runtime = Runtime::builder().budget(ByteSize::mib(8)).build().unwrap();
    let cache = Tenants::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let groups = ["a", "b"].map(|name| runtime.group(name).unwrap());
    (runtime, cache, groups)
}

/// Returns the number of entries of the cache's own group, and of each of these groups.
fn counts(cache: &Cache<u64, Vec<u8>>, groups: &[&Memcg]) -> Vec<u64> {
    std::iter::once(cache.group()).chain(groups.iter().copied()).map(|group| cache.len_of(group)).collect()
}

#[test]
fn a_replaced_entry_keeps_its_group_unless_another_is_named() {
    let cache = cache_of(ByteSize::mib(4));
    let runtime = cache.runtime().clone();
    let (a, b) = (runtime.group("a").unwrap(), runtime.group("b").unwrap());
    let all = || counts(&cache, &[&a, &b]);
    // Keys that are no `TenantKey`s are shared by all groups: 7 is one entry.
    cache.entry(7).group(&a).insert(vec![1]).unwrap();
    assert_eq!(cache.entry(7).group(&b).or_insert_with(|| vec![2]), [1]);
    assert_eq!(all(), [0, 1, 0]);

    assert_eq!(cache.insert(7, vec![2]).unwrap(), Some(vec![1]));
    assert_eq!(all(), [0, 1, 0], "an insert keeps the group");
    for op in [Op::Put, Op::Update] {
        let computed = cache.entry(7).and_compute(|current| {
            assert_eq!(current.expect("the entry is present").group(), &a);
            op(vec![2])
        });
        assert_eq!(computed, Ok(Computed::Replaced(vec![2])));
        assert_eq!(all(), [0, 1, 0], "a computation keeps the group");
    }
    cache.entry(7).group(&b).insert(vec![3]).unwrap();
    assert_eq!(all(), [0, 0, 1], "a named group moves the entry");
    cache.entry(7).group(&a).and_compute(|_| Op::Update(vec![4])).unwrap();
    assert_eq!(all(), [0, 1, 0]);
    cache.entry(7).group(cache.group()).insert(vec![5]).unwrap();
    assert_eq!(all(), [1, 0, 0], "a named group moves the entry, also to the cache's own");
    cache.insert(8, vec![0]).unwrap();
    assert_eq!(all(), [2, 0, 0], "a new entry is the cache's own group's");
    cache.clear();
    cache.collect();
    assert_eq!((a.usage(), b.usage()), (ByteSize::ZERO, ByteSize::ZERO));
}

#[test]
fn a_replaced_entry_whose_group_has_ended_goes_to_the_nearest_online_ancestor() {
    let cache = cache_of(ByteSize::mib(4));
    let runtime = cache.runtime().clone();
    let (parent, group) = (runtime.group("p").unwrap(), runtime.group("p/a").unwrap());
    for key in 0..2 {
        cache.entry(key).group(&group).insert(vec![1]).unwrap();
    }
    runtime.end_group(&group).unwrap();
    cache.insert(0, vec![2]).unwrap();
    assert_eq!(counts(&cache, &[&parent, &group]), [0, 2, 0]);
    runtime.end_group(&parent).unwrap();
    cache.entry(1).and_compute(|_| Op::Update(vec![3])).unwrap();
    cache.insert(0, vec![2]).unwrap();
    assert_eq!(counts(&cache, &[&parent, &group]), [2, 0, 0], "the root is always online");
    // The named group has ended.
    cache.entry(0).group(&group).insert(vec![4]).unwrap();
    assert_eq!(cache.len_of(runtime.root()), 2);
}

/// While a group is being emptied, its replaced entries are charged to the parent: an overwrite
/// whose caller names no group must not fail because the entry's group, which must not be charged
/// any more, has a `max` of 0.
#[test]
fn a_replaced_entry_whose_group_is_being_dropped_goes_to_the_parent() {
    for _ in 0..100 {
        let cache = cache_of(ByteSize::mib(16));
        let runtime = cache.runtime().clone();
        let (parent, group) = (runtime.group("p").unwrap(), runtime.group("p/a").unwrap());
        (0..20_000).for_each(|key| drop(cache.entry(key).group(&group).insert(vec![1]).unwrap()));
        runtime.drop_group(&group).unwrap();
        if cache.entry(20_000).group(&group).insert(vec![1]).is_ok() {
            // The group had ended before the insert, which therefore has charged the parent.
            assert!(!group.is_online(), "the named group is being emptied");
            continue;
        }
        // In reverse order, as the housekeeper evicts the oldest entries first.
        let replaced = (0..20_000).rev().filter(|key| cache.insert(*key, vec![2]).unwrap().is_some()).count() as u64;
        let counts = counts(&cache, &[&parent, &group]);
        assert_eq!((counts.iter().sum::<u64>(), counts[2]), (20_000, 0));
        // Fewer than `replaced`: an isolated entry has no group, so its replacement is charged to
        // the cache's own group. More: the housekeeper evicts a batch of 64 while an insert that
        // has chosen the parent has yet to replace the entry.
        assert!(counts[1] <= replaced + 100, "{counts:?} of {replaced}");
        if counts[1] >= 1_000 {
            return;
        }
    }
    panic!("no entry was replaced before the housekeeper evicted it");
}

/// As above, where the group is the cache's own one: new entries are refused then.
#[test]
fn an_entry_that_is_replaced_while_the_own_group_is_being_dropped_goes_to_the_parent() {
    for _ in 0..100 {
        let runtime = Runtime::builder().budget(ByteSize::mib(16)).build().unwrap();
        let (parent, own) = (runtime.group("p").unwrap(), runtime.group("p/own").unwrap());
        let builder = Cache::<u64, u64>::builder(&runtime).group(&own);
        let cache = builder.weigher(|_, _| ByteSize::ZERO).build().unwrap();
        (0..20_000).for_each(|key| assert_eq!(cache.insert(key, 1), Ok(None)));
        runtime.drop_group(&own).unwrap();
        let mut replaced = 0;
        for key in (0..20_000).rev() {
            let put = match key % 2 {
                0 => cache.insert(key, 2).map(|old| old.is_some()),
                _ => cache.entry(key).and_compute(|_| Op::Put(2)).map(|done| matches!(done, Computed::Replaced(_))),
            };
            match put {
                Ok(has_replaced) => replaced += u64::from(has_replaced),
                Err(error) => assert!(!cache.contains_key(&key), "a value to replace is there: {:?}", error.reason),
            }
        }
        eventually(Duration::from_secs(60), "the group has ended", || !own.is_online());
        assert_eq!(cache.len() as u64, cache.len_of(&parent));
        if replaced >= 1_000 {
            return;
        }
    }
    panic!("no entry was replaced before the housekeeper evicted it");
}

/// The drop begins when the insert has chosen the group already.
#[test]
fn an_entry_whose_group_is_dropped_during_the_insert_goes_to_the_parent() {
    let runtime = Runtime::builder().budget(ByteSize::mib(16)).build().unwrap();
    let (parent, group) = (runtime.group("p").unwrap(), runtime.group("p/a").unwrap());
    let (theirs, dropped) = (runtime.clone(), group.clone());
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .expire_after(move |_, _, event| {
            if let ExpiryEvent::Update { .. } = event {
                theirs.drop_group(&dropped).unwrap();
            }
            Lifetime::Forever
        })
        .build()
        .unwrap();
    (0..20_000).for_each(|key| assert_eq!(cache.entry(key).group(&group).insert(1), Ok(None)));
    // Bytes that no shrinker frees: the group is being dropped for 100 ms at least.
    let charge = runtime.charge_guard(&group, ByteSize::kib(1)).unwrap();
    let previous = cache.insert(19_999, 2).unwrap();
    // Perhaps the root's, if the housekeeper has evicted the replaced entry meanwhile.
    let of_root = if previous.is_some() { 0 } else { cache.len_of(runtime.root()) };
    assert_eq!((cache.peek(&19_999), cache.len_of(&parent) + of_root), (Some(2), 1));
    assert_eq!(cache.stats().rejected, 0);
    drop(charge);
}

#[test]
fn an_expired_entry_does_not_keep_its_group() {
    let cache = cache_of(ByteSize::mib(4));
    let a = cache.runtime().group("a").unwrap();
    cache.entry(1).group(&a).time_to_live(Duration::ZERO).insert(vec![1]).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    cache.insert(1, vec![2]).unwrap();
    assert_eq!(counts(&cache, &[&a]), [1, 0]);
}

#[test]
fn after_its_own_group_ended_a_cache_charges_the_parent() {
    let runtime = Runtime::builder().budget(ByteSize::mib(4)).build().unwrap();
    let own = runtime.group("p/own").unwrap();
    let builder = Cache::<u64, u64>::builder(&runtime).group(&own);
    let cache = builder.weigher(|_, _| ByteSize::ZERO).build().unwrap();
    cache.insert(1, 1).unwrap();
    runtime.end_group(&own).unwrap();
    cache.insert(1, 2).unwrap();
    cache.insert(2, 2).unwrap();
    cache.insert(1, 3).unwrap();
    assert_eq!(cache.len_of(&runtime.group("p").unwrap()), 2);
}

#[test]
fn one_key_of_two_tenants_is_two_entries() {
    let (runtime, cache, [a, b]) = tenants();
    let (of_a, of_b) = (cache.tenant(&a).unwrap(), cache.tenant(&b).unwrap());
    assert_eq!(of_a.insert(7, 1).unwrap(), None);
    assert_eq!((of_b.get(&7), of_b.peek(&7), of_b.contains_key(&7), of_b.remove(&7)), (None, None, false, None));
    assert!(!of_b.touch(&7, None));
    assert_eq!(of_b.get_or_insert_with(7, || 2), 2);
    assert_eq!(of_b.try_get_or_insert_with(7, || Err(())), Ok(2));
    assert_eq!(of_b.try_get_or_insert_with(8, || Err(3)), Err(3));
    assert_eq!((of_a.get(&7), of_b.get(&7)), (Some(1), Some(2)));
    assert_eq!((cache.len_of(&a), cache.len_of(&b), cache.len_of(runtime.root())), (1, 1, 0));
    of_a.entry(7).and_compute(|current| Op::Update(current.unwrap().value() + 10)).unwrap();
    assert_eq!((of_a.peek(&7), of_b.peek(&7)), (Some(11), Some(2)));
    assert_eq!((of_a.remove(&7), of_b.peek(&7)), (Some(11), Some(2)));
    // An entry may be charged to another group. Its key stays in the name space of `b`, and an
    // overwrite by `b` keeps the other group charged.
    of_b.entry(9).group(&a).insert(3).unwrap();
    of_b.insert(9, 4).unwrap();
    assert_eq!((of_a.get(&9), of_b.get(&9), cache.len_of(&a)), (None, Some(4), 1));
    let mut keys: Vec<_> = cache.pin().iter().map(|(key, _)| (key.group().path(), *key.key())).collect();
    keys.sort();
    assert_eq!(keys, [("/b".into(), 7), ("/b".into(), 9)]);
    assert_eq!(cache.pin().get(&of_b.key_ref(&9)), Some(&4));
    cache.retain(|key, _| key.group() != &b);
    assert!(cache.is_empty());
}

#[test]
fn a_view_is_two_references_and_a_key_is_a_pointer_more() {
    assert_eq!(size_of::<TenantView<'_, String, String>>(), 2 * size_of::<usize>());
    assert_eq!(size_of::<TenantKey<u64>>(), size_of::<usize>() + size_of::<u64>());
    let (_runtime, cache, [a, _]) = tenants();
    cache.tenant(&a).unwrap().insert(1, 1).unwrap();
    let allocated = allocation_counter::measure(|| {
        assert_eq!(cache.tenant(&a).unwrap().get(&1), Some(1));
        assert_eq!(cache.tenant(&a).unwrap().get(&2), None);
    });
    assert_eq!(allocated.count_total, 0);
}

#[test]
fn keys_of_text_are_looked_up_without_a_clone() {
    let runtime = Runtime::builder().budget(ByteSize::mib(8)).build().unwrap();
    let cache = Cache::<TenantKey<String>, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let a = runtime.group("a").unwrap();
    let view = cache.tenant(&a).unwrap();
    view.insert("x".into(), 1).unwrap();
    assert_eq!((view.get("x"), view.get(&String::from("x")), view.remove("x")), (Some(1), Some(1), Some(1)));
    assert_eq!(view.key("x".into()).into_key(), "x");
}

#[test]
fn a_load_belongs_to_one_tenants_name_space() {
    let (_runtime, cache, [a, b]) = tenants();
    let (of_a, of_b) = (cache.tenant(&a).unwrap(), cache.tenant(&b).unwrap());
    // The inner load neither waits for the outer one nor takes its value.
    let both = of_a.get_or_insert_with(1, || of_b.get_or_insert_with(1, || 2) * 10);
    assert_eq!((both, of_a.get(&1), of_b.get(&1)), (20, Some(20), Some(2)));
    let before = cache.stats();
    of_a.get_or_insert_with(1, || unreachable!());
    of_a.get_or_insert_with(2, || 5);
    let after = cache.stats();
    assert_eq!((after.hits - before.hits, after.misses - before.misses), (1, 1));
}

#[test]
fn a_new_group_finds_no_entries_of_an_ended_one() {
    let (runtime, cache, [a, _]) = tenants();
    cache.tenant(&a).unwrap().insert(7, 1).unwrap();
    runtime.end_group(&a).unwrap();
    let again = runtime.group("a").unwrap();
    assert_ne!(again.id(), a.id(), "an entry's key holds the group");
    let id = a.id();
    assert_eq!(cache.tenant(&again).unwrap().get(&7), None);
    assert_eq!(cache.len_of(runtime.root()), 1, "the entry is the parent's");
    // A handle on the ended group still leads to its name space; the parent is charged.
    let of_dead = cache.tenant(&a).unwrap();
    assert_eq!(of_dead.get(&7), Some(1));
    of_dead.insert(8, 2).unwrap();
    of_dead.insert(7, 3).unwrap();
    assert_eq!((cache.len_of(&a), cache.len_of(runtime.root()), cache.len_of(&again)), (0, 2, 0));
    drop(a);
    // The keys alone keep the id in use, so no new group gets it.
    let groups: Vec<_> = (0..32).map(|n| runtime.group(&format!("g{n}")).unwrap()).collect();
    assert!(groups.iter().all(|group| group.id() != id && cache.tenant(group).unwrap().get(&7).is_none()));
    cache.clear();
    // After the drop of the last key, which readers of other tests may delay, a new group gets the
    // id.
    let mut later = Vec::new();
    while later.last().is_none_or(|group: &Memcg| group.id() != id) {
        assert!(later.len() < 30_000);
        cache.collect();
        std::thread::sleep(Duration::from_millis(1));
        later.push(runtime.group(&format!("later{}", later.len())).unwrap());
    }
}

#[test]
fn drop_group_removes_the_name_space() {
    let (runtime, cache, [a, b]) = tenants();
    for key in 0..1_000 {
        cache.tenant(&a).unwrap().insert(key, key).unwrap();
        cache.tenant(&b).unwrap().insert(key, key).unwrap();
    }
    runtime.drop_group(&a).unwrap();
    match cache.tenant(&a).unwrap().insert(5_000, 1) {
        Err(error) => assert!(matches!(error.reason, RejectReason::TooLarge { .. }), "{error}"),
        // The group has ended already, and the entry is the parent's.
        Ok(_) => {
            assert!(!a.is_online(), "bytes were charged to a group that is dropped");
            cache.tenant(&a).unwrap().remove(&5_000);
        }
    }
    eventually(Duration::from_secs(60), "the group and its entries are gone", || {
        runtime.find_group("a").is_none() && (cache.len(), cache.len_of(&b)) == (1_000, 1_000)
    });
    assert!((0..1_000).all(|key| cache.tenant(&a).unwrap().get(&key).is_none()));
    assert!((0..1_000).all(|key| cache.tenant(&b).unwrap().get(&key) == Some(key)));
}

#[test]
fn a_foreign_group_has_no_name_space() {
    let (_runtime, cache, [a, _]) = tenants();
    let (theirs, other, [stranger, _]) = tenants();
    assert_eq!(a.id(), stranger.id());
    cache.tenant(&a).unwrap().insert(1, 1).unwrap();
    assert_eq!(cache.tenant(&stranger).err(), Some(MemcgError::Foreign));
    // A key of another runtime's tenant finds nothing here, although its group has the same id and
    // path.
    let key = other.tenant(&stranger).unwrap().key(1);
    assert_eq!((cache.get(&key), cache.remove(&key)), (None, None));
    assert!(matches!(
        cache.entry(key).group(&stranger).insert(1).unwrap_err().reason,
        RejectReason::ForeignGroup { .. }
    ));
    drop((theirs, other));
    assert_eq!(cache.tenant(&stranger).err(), Some(MemcgError::Foreign));
}

#[test]
fn name_spaces_are_saved_by_the_paths_of_their_groups() {
    let (_runtime, cache, [a, b]) = tenants();
    cache.tenant(&a).unwrap().insert(7, 1).unwrap();
    cache.tenant(&b).unwrap().insert(7, 2).unwrap();
    let mut saved = Vec::new();
    let shown = cache.save(|key, value, meta| {
        saved.push((key.group().path(), *key.key(), *value, meta.clone()));
        Ok::<(), ()>(())
    });
    assert_eq!(shown, Ok(2));
    let (runtime, cache, _) = tenants();
    let entries = saved.into_iter().map(|(path, key, value, meta): (_, _, _, Meta)| {
        let group = runtime.group(&path).unwrap();
        let key = cache.tenant(&group).unwrap().key(key);
        (key, value, meta)
    });
    assert_eq!(cache.load(entries).put, 2);
    for (path, value) in [("a", 1), ("b", 2)] {
        let group = runtime.group(path).unwrap();
        assert_eq!((cache.tenant(&group).unwrap().get(&7), cache.len_of(&group)), (Some(value), 1));
    }
}

#[cfg(feature = "async")]
#[test]
fn tasks_load_for_the_name_space_of_their_tenant() {
    let (_runtime, cache, [a, b]) = tenants();
    let (of_a, of_b) = (cache.tenant(&a).unwrap(), cache.tenant(&b).unwrap());
    let executor = tokio::runtime::Builder::new_current_thread().build().unwrap();
    executor.block_on(async {
        assert_eq!(of_a.get_or_insert_with_async(1, async { 1 }).await, 1);
        assert_eq!(of_b.try_get_or_insert_with_async(1, async { Err(7) }).await, Err(7));
        assert_eq!(of_b.try_get_or_insert_with_async(1, async { Ok::<_, ()>(2) }).await, Ok(2));
        assert_eq!(of_a.get_or_insert_with_async(1, async { 9 }).await, 1);
    });
}

#[test]
fn many_keys_of_a_tenant_are_loaded_by_one_call_and_charged_to_the_tenant() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    let cache = Cache::<TenantKey<String>, u64>::builder(&runtime)
        .weigher(|_, value| if *value == 0 { ByteSize::mib(2) } else { ByteSize::ZERO })
        .build()
        .unwrap();
    let groups = [runtime.group("a").unwrap(), runtime.group("b").unwrap()];
    let [a, b] = [0, 1].map(|at| cache.tenant(&groups[at]).unwrap());
    b.insert("x".into(), 9).unwrap();
    a.insert("y".into(), 1).unwrap();
    assert_eq!(a.get_many(["x", "y"]), [None, Some(1)]);
    let keys = || ["x", "y", "z", "x"].map(String::from);
    let filled = a.get_or_fill_many(keys(), |absent| {
        assert_eq!(absent, ["x", "z"]);
        Ok::<_, &str>(vec![2, 0])
    });
    let filled = filled.unwrap();
    assert_eq!([0, 1, 2, 3].map(|at| filled[at].value), [2, 1, 0, 2]);
    assert_eq!((&filled[0].origin, &filled[1].origin), (&Origin::Loaded, &Origin::Cached));
    let Origin::Rejected(RejectReason::TooLarge { group, .. }) = &filled[2].origin else {
        panic!("{:?}", filled[2].origin)
    };
    assert_eq!(group, "/", "the budget");
    assert_eq!([&groups[0], &groups[1]].map(|group| cache.len_of(group)), [2, 1]);
    assert_eq!([a.get("x"), b.get("x")], [Some(2), Some(9)]);
    assert_eq!(a.get_or_load_many(keys(), |_| Err("away")), Err("away"));
    assert_eq!(a.get_or_load_many(["y".to_string()], |_| Err("not called")), Ok(vec![1]));
}

#[test]
fn a_tenant_reloads_its_own_entry() {
    let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).clock(&clock).build().unwrap();
    let cache = Cache::<TenantKey<String>, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .time_to_live(10 * second)
        .refresh_ahead(3 * second)
        .build()
        .unwrap();
    let groups = [runtime.group("a").unwrap(), runtime.group("b").unwrap()];
    let [a, b] = [0, 1].map(|at| cache.tenant(&groups[at]).unwrap());
    a.insert("x".into(), 1).unwrap();
    b.insert("x".into(), 2).unwrap();
    assert!(a.get_or_refresh("x").is_some_and(|hit| hit.refresh.is_none()));
    clock.advance(8 * second);
    let hit = a.get_or_refresh("x").unwrap();
    assert_eq!((hit.value, hit.refresh.unwrap().load_with(|| 3)), (1, 3));
    assert_eq!([a.get("x"), b.get("x")], [Some(3), Some(2)]);
    assert!(a.get_or_refresh("y").is_none());
}

type OnHash = Box<dyn FnOnce()>;

thread_local! {
    /// Called first by the next hash of a [`Hooked`] on this thread.
    static ON_HASH: Cell<Option<OnHash>> = const { Cell::new(None) };
}

#[derive(Clone, PartialEq, Eq)]
struct Hooked(u64);

impl Hash for Hooked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Some(call) = ON_HASH.take() {
            call();
        }
        self.0.hash(state);
    }
}

/// An eviction hashes the key while the entry is on no list, so that a reload which begins in the
/// hash function cannot read the entry's group from its list.
#[test]
fn a_reload_that_begins_during_an_eviction_is_charged_to_the_tenant() {
    let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).topology(one_node()).clock(&clock);
    let runtime = runtime.build().unwrap();
    let cache = Cache::<TenantKey<Hooked>, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::ZERO)
        .time_to_live(10 * second)
        .refresh_ahead(3 * second)
        .build()
        .unwrap();
    let group = runtime.group("tenant").unwrap();
    for by_entry in [false, true] {
        cache.tenant(&group).unwrap().insert(Hooked(1), 1).unwrap();
        clock.advance(8 * second);
        let (evicted, kept, tenant) = (cache.clone(), Rc::new(Cell::new(None)), group.clone());
        let begun = Rc::clone(&kept);
        ON_HASH.set(Some(Box::new(move || {
            let view = evicted.tenant(&tenant).unwrap();
            if by_entry {
                let value = view.entry(Hooked(1)).refresh().or_insert_with(|| 3);
                assert_eq!(value, 3);
            } else {
                begun.set(view.get_or_refresh(&Hooked(1)).unwrap().refresh);
            }
        })));
        // Not by `drop_caches`, which may evict the entry of the reload as well.
        let evicted = cache.inner.core.evict(&group, NodeId::ZERO, 1);
        assert!(ON_HASH.take().is_none(), "an entry was evicted");
        assert_eq!(evicted.freed, 1);
        if !by_entry {
            assert_eq!(cache.len(), 0);
            assert_eq!(kept.take().expect("the entry was due").load_with(|| 3), 3);
        }
        assert_eq!((cache.len(), cache.len_of(&group)), (1, 1), "by an entry: {by_entry}");
        cache.clear();
    }
}
