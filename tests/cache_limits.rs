//! Limits of one cache: they protect and bound the cache, and their group ends with it.
//!
//! The group must not outlive the cache, or a program that makes caches would run out of groups.
//!
//! A new limit gets a test in which inserts flood the cache, or its neighbours.

#![forbid(unsafe_code)]

#[path = "common/deadline.rs"]
mod deadline;
#[path = "common/one_node.rs"]
mod one_node;
#[path = "common/usage.rs"]
mod usage;
#[path = "common/wait.rs"]
mod wait;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadline::in_time;
use lowwater::cache::{CacheBuildError, CacheBuilder, Meta, RejectReason, TenantKey};
use lowwater::lru_core::MemcgError;
use lowwater::pressure::{Level, PressureConfig};
use lowwater::{ByteSize, Cache, Charged, Count, Memcg, Runtime, Scan, ShrinkControl, Shrinker};
use one_node::runtime;
use usage::used;
use wait::until;

const BUDGET: ByteSize = ByteSize::mib(16);
const LOW: ByteSize = ByteSize::mib(4);
const VALUE: u64 = 1_000;

type Sized = Cache<u64, ()>;
/// The type of a builder's weigher.
type Weigher = Box<dyn Fn(&u64, &()) -> ByteSize + Send + Sync>;

/// A cache of values of [`VALUE`] bytes.
fn builder(runtime: &Runtime, name: &str) -> CacheBuilder<u64, (), Weigher> {
    Cache::builder(runtime).name(name).weigher(|_, ()| ByteSize::new(VALUE))
}

fn fill(cache: &Sized, keys: std::ops::Range<u64>) {
    for key in keys {
        cache.insert(key, ()).unwrap();
    }
}

/// Entries that use nearly this many bytes.
fn entries_in(bytes: ByteSize) -> u64 {
    bytes.get() * 9 / 10 / (VALUE + Sized::ENTRY_BYTES.get())
}

/// The number of groups without the root.
fn groups(runtime: &Runtime) -> usize {
    runtime.tree().len() - 1
}

/// A foreign pool: the number of its objects, and the root group, to which they are charged.
#[derive(Default)]
struct Pool(Mutex<u64>, Mutex<Option<Memcg>>);

const OBJECT: ByteSize = ByteSize::kib(4);

impl Shrinker for Pool {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        match *self.0.lock().unwrap() {
            // Not `Empty`: the pool notifies no map when it has objects again.
            0 => Count::Unknown,
            objects => Count::Objects(objects),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let mut objects = self.0.lock().unwrap();
        let freed = sc.nr_to_scan().min(*objects);
        *objects -= freed;
        sc.set_nr_scanned(freed);
        let root = self.1.lock().unwrap().clone().unwrap();
        root.uncharge(ByteSize::new(freed * OBJECT.get()));
        Scan::Freed(freed)
    }
}

#[test]
fn a_caches_low_protects_it_from_all_floods() {
    let runtime = runtime(BUDGET);
    let sessions = builder(&runtime, "sessions").low(LOW).build().unwrap();
    let working_set = entries_in(LOW);
    fill(&sessions, 0..working_set);
    let is_whole = |after: &str| {
        assert_eq!(sessions.len_of(sessions.group()), working_set, "{after}");
        assert!((0..working_set).all(|key| sessions.contains_key(&key)), "{after}");
    };

    let pages = builder(&runtime, "pages").build().unwrap();
    fill(&pages, 0..100_000);
    is_whole("another cache");
    assert!(pages.group().usage() > ByteSize::mib(12), "the others use the rest");

    let tenant = runtime.group("tenant").unwrap();
    for key in 0..100_000 {
        pages.entry(key).group(&tenant).insert(()).unwrap();
    }
    is_whole("a tenant of another cache");

    // A tenant with entries in the cache itself.
    for key in 1_000_000..1_100_000 {
        sessions.entry(key).group(&tenant).insert(()).unwrap();
    }
    is_whole("a tenant of the cache itself");

    let pool = Arc::new(Pool::default());
    *pool.1.lock().unwrap() = Some(runtime.root().clone());
    let prepared = runtime.registry().builder("pool").memcg_aware(false).numa_aware(false).alloc().unwrap();
    let registration = prepared.register(Arc::clone(&pool) as _);
    let mut refused = 0;
    for _ in 0..50_000 {
        match runtime.charge(runtime.root(), OBJECT) {
            Ok(()) => *pool.0.lock().unwrap() += 1,
            Err(_) => refused += 1,
        }
    }
    is_whole("a foreign shrinker");
    println!("the pool holds {} objects, {refused} were refused", pool.0.lock().unwrap());
    drop(registration);
}

#[test]
fn unused_low_of_a_cache_is_lent_to_others() {
    let runtime = runtime(BUDGET);
    let sessions = builder(&runtime, "sessions").low(LOW).build().unwrap();
    let pages = builder(&runtime, "pages").build().unwrap();
    fill(&pages, 0..100_000);
    assert!(pages.group().usage() > ByteSize::mib(14), "nothing is set aside");
    // The cache gets its `low` back when it uses it.
    fill(&sessions, 0..entries_in(LOW));
    fill(&pages, 100_000..200_000);
    assert_eq!(sessions.len() as u64, entries_in(LOW));
}

#[test]
fn a_caches_max_is_never_exceeded_and_evicts_its_own_entries() {
    let runtime = runtime(BUDGET);
    let neighbour = builder(&runtime, "neighbour").build().unwrap();
    fill(&neighbour, 0..5_000);
    let max = ByteSize::mib(2);
    let bounded = builder(&runtime, "bounded").max(max).build().unwrap();
    std::thread::scope(|scope| {
        let bounded = &bounded;
        let insert = |thread: u64| {
            scope.spawn(move || {
                for key in 0..30_000 {
                    if let Err(error) = bounded.insert(thread << 32 | key, ()) {
                        assert!(matches!(error.reason, RejectReason::NoRoom { .. }), "{error}");
                    }
                }
            })
        };
        let threads = [insert(0), insert(1)];
        while threads.iter().any(|thread| !thread.is_finished()) {
            assert!(bounded.group().usage() <= max);
        }
    });
    assert!(bounded.len() as u64 > entries_in(max) / 2, "{} entries", bounded.len());
    assert!(bounded.stats().rejected < 600, "{} of 60,000 were refused", bounded.stats().rejected);
    assert_eq!((neighbour.len(), neighbour.stats().evictions), (5_000, 0));
}

#[test]
fn the_reclaimer_keeps_a_cache_at_its_high() {
    let runtime = runtime(BUDGET);
    let cache = builder(&runtime, "cache").high(ByteSize::mib(2)).build().unwrap();
    fill(&cache, 0..20_000);
    assert_eq!(cache.stats().rejected, 0);
    until("it comes down", || {
        // Bytes in stock are charged, but used by no entry.
        runtime.tree().drain_stock();
        cache.group().usage() <= ByteSize::mib(2)
    });
}

#[test]
fn inserts_above_high_evict() {
    let runtime = runtime(BUDGET);
    let cache = builder(&runtime, "cache").high(ByteSize::mib(2)).build().unwrap();
    fill(&cache, 0..20_000);
    let stats = runtime.registry().snapshot().shrinkers;
    let foreground: u64 = stats.iter().map(|stats| stats.freed - stats.freed_in_background).sum();
    assert!(foreground > 0, "{stats:?}");
}

#[test]
fn entries_of_tenants_are_charged_to_the_tenants() {
    let runtime = runtime(BUDGET);
    let cache = Cache::<TenantKey<u64>, ()>::builder(&runtime)
        .weigher(|_, ()| ByteSize::new(VALUE))
        .max(ByteSize::kib(16))
        .build()
        .unwrap();
    let tenant = runtime.group("tenant").unwrap();
    let view = cache.tenant(&tenant).unwrap();
    for key in 0..1_000 {
        view.insert(key, ()).unwrap();
    }
    assert_eq!((cache.len_of(&tenant), cache.len_of(cache.group())), (1_000, 0));
    assert_eq!(cache.group().usage(), ByteSize::ZERO);
    assert_eq!(groups(&runtime), 2);
}

#[test]
fn limits_can_be_changed_while_the_cache_is_used() {
    let runtime = runtime(BUDGET);
    let cache = builder(&runtime, "cache").max(ByteSize::mib(1)).build().unwrap();
    fill(&cache, 0..5_000);
    let few = cache.len();
    cache.group().set_max(ByteSize::mib(4));
    fill(&cache, 0..5_000);
    assert!(cache.len() > 2 * few);
    cache.group().set_max(ByteSize::MAX);
    fill(&cache, 0..10_000);
    assert!(cache.len() >= 9_900, "{}: the reclaimer may end a batch", cache.len());
    // Repeated, as it may still end the batch.
    until("all entries stay", || {
        fill(&cache, 0..10_000);
        cache.len() == 10_000
    });
}

#[test]
fn caches_of_one_name_have_different_groups() {
    let runtime = runtime(BUDGET);
    let named = |name: &str| builder(&runtime, name).low(ByteSize::kib(1)).build().unwrap();
    let path = |cache: &Sized| cache.group().path();
    let long = "ä".repeat(1_000);
    let [plain, again, slash, empty, long, longer] =
        ["pages", "pages", "a/b", "", &long, &(long.clone() + "x")].map(named);
    assert_eq!([&plain, &again, &slash, &empty].map(path), ["/cache:pages", "/cache:pages#2", "/cache:a_b", "/cache:"]);
    assert!(path(&long).starts_with("/cache:ää") && path(&longer).ends_with("ä#2"));
    assert_eq!(runtime.find_group("cache:pages#2").as_ref(), Some(again.group()));
    // A number is reused.
    drop(plain);
    assert_eq!(path(&named("pages")), "/cache:pages");
    // A user's group with such a name is not touched.
    let taken = runtime.group("shop/cache:pages").unwrap();
    let shop = runtime.group("shop").unwrap();
    let below = builder(&runtime, "pages").group(&shop).low(ByteSize::kib(1)).build().unwrap();
    assert_eq!(path(&below), "/shop/cache:pages#2");
    assert!(below.group() != &taken && taken.low() == ByteSize::ZERO);
    // All numbers that the search doubles are taken.
    for number in (1..64).map(|power| 1_u64 << power).chain([u64::MAX]) {
        runtime.group(&format!("hostile/cache:pages#{number}")).unwrap();
    }
    runtime.group("hostile/cache:pages").unwrap();
    let hostile = runtime.group("hostile").unwrap();
    let below = builder(&runtime, "pages").group(&hostile).low(ByteSize::kib(1)).build().unwrap();
    assert_eq!(path(&below), "/hostile/cache:pages#3");
    // Without limits there is no group.
    let before = groups(&runtime);
    let plain = builder(&runtime, "plain").build().unwrap();
    assert_eq!((plain.group(), groups(&runtime)), (runtime.root(), before));
}

#[test]
fn wrong_limits_are_refused_and_leave_no_group() {
    let runtime = runtime(BUDGET);
    let mib = ByteSize::mib;
    let refused = |builder: CacheBuilder<u64, (), Weigher>| {
        let error = builder.build().unwrap_err();
        println!("{error}");
        error
    };
    let new = || builder(&runtime, "cache");
    for (zero, limit) in [
        (new().min(ByteSize::ZERO), "min"),
        (new().low(ByteSize::ZERO), "low"),
        (new().high(ByteSize::ZERO), "high"),
        (new().low(mib(1)).max(ByteSize::ZERO), "max"),
    ] {
        assert_eq!(refused(zero), CacheBuildError::ZeroLimit { limit });
    }
    for (crossed, lower, upper) in [
        (new().low(mib(2)).max(mib(1)), "low", "max"),
        (new().min(mib(2)).low(mib(1)).max(mib(3)), "min", "low"),
        (new().min(mib(2)).high(mib(1)), "min", "high"),
        (new().high(mib(2)).max(mib(1)), "high", "max"),
    ] {
        let expected = CacheBuildError::LimitsOutOfOrder { lower, lower_bytes: mib(2), upper, upper_bytes: mib(1) };
        assert_eq!(refused(crossed), expected);
    }
    let too_large = |limit, bytes, group: &str, max| {
        let group = group.to_string();
        CacheBuildError::LimitTooLarge { limit, bytes, group, max }
    };
    assert_eq!(refused(new().low(mib(17))), too_large("low", mib(17), "/", BUDGET));
    assert_eq!(refused(new().low(mib(1)).max(ByteSize::MAX)), too_large("max", ByteSize::MAX, "/", BUDGET));
    let shop = runtime.group("shop").unwrap();
    shop.set_max(mib(2));
    assert_eq!(refused(new().group(&shop).low(mib(3))), too_large("low", mib(3), "/shop", mib(2)));
    runtime.end_group(&shop).unwrap();
    assert!(matches!(refused(new().group(&shop).low(mib(1))), CacheBuildError::OwnGroup { .. }));
    assert!(builder(&runtime, "plain").group(&shop).build().is_ok(), "as before");
    assert_eq!(groups(&runtime), 0);

    let deep = runtime.group("d/".repeat(Memcg::DEPTH_MAX - 1).trim_end_matches('/')).unwrap();
    assert!(new().group(&deep).low(mib(1)).build().is_ok());
    let deeper = deep.create("d").unwrap();
    assert!(matches!(refused(new().group(&deeper).low(mib(1))), CacheBuildError::OwnGroup { .. }));

    let other = one_node::runtime(BUDGET);
    assert!(matches!(refused(new().group(other.root()).low(mib(1))), CacheBuildError::ForeignGroup(_)));
    let times = new().low(mib(1)).time_to_live(Duration::from_secs(1)).refresh_ahead(Duration::from_secs(1));
    assert!(matches!(refused(times), CacheBuildError::RefreshTooEarly { .. }));
    assert_eq!(groups(&runtime), Memcg::DEPTH_MAX);
}

#[test]
fn a_budget_that_is_less_for_a_while_refuses_no_limit() {
    let runtime = Runtime::builder().budget(BUDGET).pressure(PressureConfig::default()).build().unwrap();
    let filler = builder(&runtime, "filler").build().unwrap();
    fill(&filler, 0..5_000);
    runtime.pressure().unwrap().raise(Level::Critical);
    until("the budget is less", || runtime.root().max() < BUDGET);
    assert!(builder(&runtime, "cache").max(BUDGET).build().is_ok());
    runtime.set_budget(ByteSize::mib(8));
    assert!(builder(&runtime, "cache").max(BUDGET).build().is_err());
}

#[test]
fn ten_thousand_caches_leave_no_group() {
    let runtime = runtime(ByteSize::gib(1));
    let make = || builder(&runtime, "cache").low(ByteSize::kib(1)).max(ByteSize::kib(64)).build().unwrap();
    let footprint = runtime.tree().footprint();
    for n in 0..10_000 {
        let cache = make();
        cache.insert(n, ()).unwrap();
        assert_eq!(cache.group().name(), "cache:cache", "the name is free again");
        drop(cache);
        assert_eq!(groups(&runtime), 0, "after {n} caches");
    }
    // Each processor's stock may keep the memory of one ended group, and readers of other tests
    // hold some back. 220 bytes a group are 2.2 MB.
    let is_freed = || runtime.tree().footprint() <= footprint.saturating_add(ByteSize::kib(64));
    until("the groups' memory is freed", is_freed);
    let mut all: Vec<_> = (0..10_000).map(|_| make()).collect();
    assert_eq!(groups(&runtime), 10_000);
    assert!(all.iter().all(|cache| cache.group().name().len() < 20));
    // In a different order than their creation.
    for at in (0..all.len()).rev().step_by(3).collect::<Vec<_>>() {
        all.swap_remove(at);
    }
    assert_eq!(groups(&runtime), all.len());
    drop(all);
    assert_eq!((groups(&runtime), used(&runtime)), (0, 0));
    assert_eq!(runtime.registry().snapshot().shrinkers.len(), 0);
}

/// Returns a slot with a cache with limits: the removal of the first entry drops the last handle,
/// which the slot has.
fn ends_in_its_listener(runtime: &Runtime) -> Arc<Mutex<Option<Sized>>> {
    let slot = Arc::new(Mutex::new(None));
    let theirs = Arc::clone(&slot);
    let builder = builder(runtime, "cache").low(ByteSize::mib(1)).eviction_listener(move |_, (), _| {
        let taken: Option<Sized> = theirs.lock().unwrap().take();
        drop(taken);
    });
    let cache = builder.build().unwrap();
    fill(&cache, 0..2_000);
    *slot.lock().unwrap() = Some(cache);
    slot
}

#[test]
fn the_group_ends_when_the_last_handle_is_dropped_inside_a_callback() {
    /// Removes an entry of the cache, or drops the last handle in a callback of another cache.
    type Way = fn(&Runtime, &Arc<Mutex<Option<Sized>>>);
    let ways: [Way; 5] = [
        // On this thread, by reclaim, and by an insert into another cache.
        |runtime, _| assert!(runtime.reclaim(runtime.root(), BUDGET) > ByteSize::ZERO),
        |runtime, _| {
            let other = builder(runtime, "other").build().unwrap();
            // Its ghost hits move the idle cache's memory to it.
            for key in (0..20).flat_map(|_| 0..entries_in(BUDGET)) {
                other.get_or_insert_with(key, || ());
            }
        },
        // On the housekeeper's thread.
        |_, slot| assert!(slot.lock().unwrap().as_ref().unwrap().touch(&0, Some(Duration::from_millis(1)))),
        // In another cache's load, and in its listener.
        |runtime, slot| {
            let other = builder(runtime, "other").build().unwrap();
            other.get_or_insert_with(0, || *slot.lock().unwrap() = None);
        },
        |runtime, slot| {
            let slot = Arc::clone(slot);
            let other = builder(runtime, "other").eviction_listener(move |_, (), _| *slot.lock().unwrap() = None);
            let other = other.build().unwrap();
            fill(&other, 0..1);
            other.clear();
        },
    ];
    for (n, way) in ways.into_iter().enumerate() {
        in_time(move || {
            let runtime = runtime(BUDGET);
            let slot = ends_in_its_listener(&runtime);
            way(&runtime, &slot);
            until("the cache ends", || slot.lock().unwrap().is_none());
            until("the group ends", || groups(&runtime) == 0);
            until("all is uncharged", || used(&runtime) == 0);
            println!("way {n}");
        });
    }
}

#[test]
fn the_group_ends_when_cache_and_runtime_end_inside_a_callback() {
    in_time(|| {
        let runtime = runtime(BUDGET);
        let slot = ends_in_its_listener(&runtime);
        let group = slot.lock().unwrap().as_ref().unwrap().group().clone();
        slot.lock().unwrap().as_ref().unwrap().touch(&0, Some(Duration::from_millis(100)));
        // The last handle on the runtime, except the cache's.
        drop(runtime);
        until("the cache ends", || slot.lock().unwrap().is_none());
        until("the group ends", || !group.is_online());
    });
}

#[test]
fn the_group_ends_with_a_cache_that_outlives_its_runtime() {
    let runtime = runtime(BUDGET);
    let cache = builder(&runtime, "cache").low(ByteSize::mib(1)).build().unwrap();
    let group = cache.group().clone();
    drop(runtime);
    fill(&cache, 0..100);
    let clone = cache.clone();
    drop(cache);
    assert!(group.is_online(), "a clone is the same cache");
    drop(clone);
    assert!(!group.is_online());
}

#[test]
fn the_drop_tolerates_an_ended_group_and_children() {
    let runtime = runtime(BUDGET);
    let new = || builder(&runtime, "cache").low(ByteSize::mib(1)).build().unwrap();
    let ended = new();
    fill(&ended, 0..100);
    runtime.end_group(ended.group()).unwrap();
    fill(&ended, 100..200);
    assert_eq!((ended.len(), ended.len_of(runtime.root())), (200, 200), "they are the parent's");
    drop(ended);
    assert_eq!((groups(&runtime), used(&runtime)), (0, 0));

    let dropped = new();
    fill(&dropped, 0..100);
    runtime.drop_group(dropped.group()).unwrap();
    drop(dropped);
    until("the housekeeper ends it", || groups(&runtime) == 0);

    let parent = new();
    let child = runtime.group("cache:cache/child").unwrap();
    let other = builder(&runtime, "other").build().unwrap();
    other.entry(1).group(&child).insert(()).unwrap();
    let group = parent.group().clone();
    other.entry(2).group(&group).insert(()).unwrap();
    drop(parent);
    assert_eq!(groups(&runtime), 2, "a group has no online child that it does not outlive");
    other.entry(3).group(&child).insert(()).unwrap();
    other.entry(4).group(&group).insert(()).unwrap();
    // The housekeeper tries to end the group meanwhile, every 100 ms.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!((1..=4).all(|key| other.contains_key(&key)) && group.is_online(), "other caches' entries stay");
    let second = runtime.group("cache:cache/second").unwrap();
    other.entry(5).group(&second).insert(()).unwrap();
    runtime.drop_group(&second).unwrap();
    until("a child can be dropped", || !second.is_online());
    runtime.end_group(&child).unwrap();
    // The entries move after the group has gone offline.
    until("it ends after its children, and the entries are the parent's", || {
        groups(&runtime) == 0 && (other.len(), other.len_of(runtime.root())) == (4, 4)
    });
    assert_eq!(runtime.find_group("cache:cache"), None);
}

/// Returns a cache with 100 entries of the group, whose drop is held up in the listener until the
/// returned sender is dropped.
fn held_up(runtime: &Runtime, group: &Memcg) -> (Cache<u64, ()>, std::sync::mpsc::Sender<()>) {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (began, begins) = std::sync::mpsc::channel();
    let released = std::sync::Mutex::new(released);
    let listener = move |_: &u64, _: &(), _| {
        let _ = began.send(());
        // Fails once the sender is dropped.
        let _ = released.lock().unwrap().recv();
    };
    let cache = builder(runtime, "held up").eviction_listener(listener).build().unwrap();
    for key in 0..100 {
        cache.entry(key).group(group).insert(()).unwrap();
    }
    runtime.drop_group(group).unwrap();
    begins.recv().unwrap();
    (cache, release)
}

#[test]
fn a_group_that_is_dropped_ends_without_entries_whoever_else_ends_it() {
    let runtime = runtime(BUDGET);
    let group = runtime.group("dropped").unwrap();
    let (cache, release) = held_up(&runtime, &group);
    assert_eq!(runtime.end_group(&group), Err(MemcgError::AlreadyDying));
    drop(release);
    until("it ends", || !group.is_online());
    assert_eq!(cache.len(), 0);

    let owner = builder(&runtime, "owner").low(ByteSize::mib(1)).build().unwrap();
    let (cache, release) = held_up(&runtime, &owner.group().clone());
    drop(owner);
    drop(release);
    until("it ends", || groups(&runtime) == 0);
    assert_eq!(cache.len(), 0);
}

#[test]
fn a_limit_that_is_set_during_a_drop_does_not_open_the_group_again() {
    let runtime = runtime(BUDGET);
    let group = runtime.group("dropped").unwrap();
    let (cache, release) = held_up(&runtime, &group);
    group.set_max(ByteSize::mib(1));
    drop(release);
    let mut key = 1_000;
    until("inserts are refused again, or go to the parent of the ended group", || {
        key += 1;
        cache.entry(key).group(&group).insert(()).is_err() || !group.is_online()
    });
    until("it ends", || !group.is_online());
}

#[test]
fn entries_of_another_cache_in_the_group_join_the_parent() {
    let runtime = runtime(BUDGET);
    let ends = builder(&runtime, "ends").low(ByteSize::mib(1)).build().unwrap();
    let stays = builder(&runtime, "stays").build().unwrap();
    stays.entry(1).group(ends.group()).insert(()).unwrap();
    drop(ends);
    assert_eq!((stays.len_of(runtime.root()), groups(&runtime)), (1, 0));
    drop(stays);
    assert_eq!(used(&runtime), 0);
}

#[test]
fn values_that_readers_hold_stay_charged_after_the_end() {
    let runtime = runtime(BUDGET);
    let blobs = Cache::<u64, Charged<Vec<u8>>>::builder(&runtime)
        .weigher(|_, blob| Charged::<Vec<u8>>::BYTES.saturating_add(ByteSize::new(blob.capacity() as u64)))
        .charge_held_values()
        .max(ByteSize::mib(1))
        .build()
        .unwrap();
    blobs.insert(1, vec![0; 1_000].into()).unwrap();
    let held = blobs.get(&1).unwrap();
    drop(blobs);
    assert_eq!(groups(&runtime), 0);
    assert!(used(&runtime) >= 1_000);
    drop(held);
    assert_eq!(used(&runtime), 0);
}

#[test]
fn saved_entries_are_loaded_into_the_group_of_the_cache_that_loads_them() {
    let runtime = runtime(BUDGET);
    let cache = |name, is_limited| {
        let builder = builder(&runtime, name);
        if is_limited { builder.low(ByteSize::mib(1)) } else { builder }.build().unwrap()
    };
    let old = cache("old", true);
    fill(&old, 0..10);
    old.entry(10).group(&runtime.group("tenant").unwrap()).insert(()).unwrap();
    let mut saved: Vec<(u64, (), Meta)> = Vec::new();
    old.save(|key, (), meta| {
        saved.push((*key, (), meta.clone()));
        Ok::<(), ()>(())
    })
    .unwrap();
    drop(old);
    for is_limited in [true, false] {
        let new = cache("new", is_limited);
        assert_eq!(new.load(saved.iter().cloned()).put, 11);
        assert_eq!(new.len_of(new.group()), 10);
        assert_eq!(new.len_of(&runtime.group("tenant").unwrap()), 1);
    }
    assert_eq!(runtime.find_group("cache:old"), None);
}
