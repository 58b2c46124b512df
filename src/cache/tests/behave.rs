//! Documented behaviours of the public interface that have no test file of their own, also with
//! user code that panics, blocks or calls back.
//!
//! A test's name is the behaviour. A behaviour that is documented gets its test here.

use super::{cache_of, entry_bytes, eventually, one_node, without_reclaimer};
use crate::cache::load::fill::FillStep;
use crate::cache::load::single_flight::Join;
use crate::cache::{Computed, Op, RejectReason, RemovalCause};
use crate::{ByteSize, Cache, Runtime};
use lowwater_lru_core::MemcgError;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

/// The time limit of a wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// Each has up to three uses, and probation keeps a few however often it is walked.
#[test]
fn drop_caches_frees_entries_that_were_used_often() {
    use crate::cache::Eviction;
    for eviction in [Eviction::Adaptive, Eviction::S3Fifo, Eviction::Sieve, Eviction::SecondChance, Eviction::Lru] {
        for (seeks, entries) in [(1, 50), (2, 50), (4, 10), (4, 400), (8, 1_000)] {
            let runtime = Runtime::builder().budget(ByteSize::mib(16)).build().unwrap();
            let builder = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::ZERO);
            let cache = builder.eviction(eviction).seeks(seeks).build().unwrap();
            (0..entries).for_each(|key| assert!(cache.insert(key, key).is_ok()));
            // Two or three times.
            for round in 0..3 {
                (0..entries).filter(|key| key % 3 + round > 0).for_each(|key| assert!(cache.get(&key).is_some()));
            }
            assert_eq!(runtime.drop_caches(), entries, "{eviction:?}, seeks {seeks}");
            assert!(cache.is_empty(), "{eviction:?}, seeks {seeks}: {}", cache.len());
        }
    }
}

#[test]
fn insert_get_replace_and_remove() {
    let cache = cache_of(ByteSize::mib(1));
    assert_eq!(cache.get(&1), None);
    assert_eq!(cache.insert(1, vec![1]).unwrap(), None);
    assert_eq!(cache.insert(1, vec![2]).unwrap(), Some(vec![1]));
    assert_eq!((cache.get(&1), cache.peek(&1), cache.contains_key(&1)), (Some(vec![2]), Some(vec![2]), true));
    assert_eq!(cache.remove(&1), Some(vec![2]));
    assert_eq!((cache.remove(&1), cache.len()), (None, 0));
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.inserts, stats.replaced, stats.removed), (1, 1, 2, 1, 1));
}

#[test]
fn an_entry_is_charged_until_it_is_removed() {
    let cache = cache_of(ByteSize::mib(1));
    let usage = || {
        cache.runtime().tree().drain_stock();
        cache.runtime().root().usage().get()
    };
    assert_eq!(usage(), 0);
    cache.insert(1, Vec::with_capacity(1000)).unwrap();
    cache.insert(2, Vec::with_capacity(500)).unwrap();
    assert_eq!(usage(), 1500 + 2 * entry_bytes());
    cache.insert(1, Vec::with_capacity(100)).unwrap();
    assert_eq!(usage(), 600 + 2 * entry_bytes());
    cache.remove(&2);
    assert_eq!(usage(), 100 + entry_bytes());
    cache.clear();
    assert_eq!((usage(), cache.len()), (0, 0));
    cache.insert(3, Vec::with_capacity(10)).unwrap();
    let runtime = cache.runtime().clone();
    drop(cache);
    runtime.tree().drain_stock();
    assert_eq!(runtime.root().usage(), ByteSize::ZERO);
}

#[test]
fn a_full_cache_evicts_and_never_exceeds_its_budget() {
    let budget = ByteSize::kib(256);
    let cache = cache_of(budget);
    for key in 0..10_000 {
        cache.insert(key, vec![0; 100]).unwrap();
        assert!(cache.runtime().root().usage() <= budget);
    }
    // The reclaimer may be evicting.
    eventually(PATIENCE, "the entries are the inserts less the evictions", || {
        let stats = cache.stats();
        stats.inserts - stats.evictions == cache.len() as u64
    });
    assert!(cache.len() > 500, "the cache is nearly full: {}", cache.len());
    assert!(cache.get(&9_999).is_some(), "the youngest entry is present");
}

#[test]
fn a_too_large_value_is_returned_with_the_reason() {
    let cache = cache_of(ByteSize::kib(64));
    cache.insert(1, vec![7]).unwrap();
    let error = cache.insert(1, vec![1; 100_000]).unwrap_err();
    assert_eq!(error.value.len(), 100_000);
    let RejectReason::TooLarge { max, .. } = &error.reason else { panic!("{error}") };
    assert_eq!(*max, ByteSize::kib(64));
    assert!(error.to_string().contains("does not fit in group /"), "{error}");
    assert_eq!(cache.get(&1), Some(vec![7]), "the old value is still there");
    assert_eq!(cache.stats().rejected, 1);
}

#[test]
fn used_entries_get_a_second_chance() {
    // The reclaimer could scan the entry twice between two uses.
    let runtime = without_reclaimer(ByteSize::kib(64)).build().unwrap();
    let cache = Cache::<u64, Vec<u8>>::builder(&runtime).weigher(|_, v| ByteSize::new(v.capacity() as u64));
    let cache = cache.build().unwrap();
    cache.insert(0, vec![0; 100]).unwrap();
    for key in 1..5_000 {
        assert!(cache.get(&0).is_some(), "used before every insert, but evicted before {key}");
        cache.insert(key, vec![0; 100]).unwrap();
    }
}

#[test]
fn the_listener_receives_every_removal_cause() {
    let runtime = Runtime::builder().budget(ByteSize::kib(64)).build().unwrap();
    let causes = Arc::new(Mutex::new(Vec::new()));
    let seen = causes.clone();
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::new(1000))
        .eviction_listener(move |k, v, cause| seen.lock().unwrap().push((*k, *v, cause)))
        .build()
        .unwrap();
    cache.insert(1, 10).unwrap();
    cache.insert(1, 11).unwrap();
    cache.remove(&1);
    assert_eq!(*causes.lock().unwrap(), [(1, 10, RemovalCause::Replaced), (1, 11, RemovalCause::Explicit)]);
    causes.lock().unwrap().clear();
    for key in 0..200 {
        cache.insert(key, key).unwrap();
    }
    // The background may be evicting still: an eviction is counted before its listener is called.
    let is_called = || causes.lock().unwrap().len() as u64 == cache.stats().evictions;
    eventually(PATIENCE, "the listener is called for each eviction", is_called);
    let causes = causes.lock().unwrap();
    assert!(!causes.is_empty() && causes.iter().all(|(_, _, cause)| *cause == RemovalCause::Size));
}

#[test]
fn and_compute_sees_the_entry_and_applies_the_operation() {
    let cache = cache_of(ByteSize::mib(1));
    let compute = |op: fn(Option<&Vec<u8>>) -> Op<Vec<u8>>| {
        cache.entry(1).and_compute(|current| op(current.as_ref().map(|c| c.value()))).unwrap()
    };
    assert_eq!(compute(|_| Op::Keep), Computed::Kept);
    assert_eq!(compute(|_| Op::Remove), Computed::Kept);
    assert_eq!(compute(|there| Op::Put(vec![u8::from(there.is_some())])), Computed::Inserted);
    assert_eq!(compute(|there| Op::Put(vec![u8::from(there.is_some())])), Computed::Replaced(vec![0]));
    assert_eq!(cache.get(&1), Some(vec![1]));
    assert_eq!(compute(|_| Op::Remove), Computed::Removed(vec![1]));
    cache.entry(1).time_to_live(Duration::from_secs(50)).insert(vec![]).unwrap();
    assert_eq!(compute(|_| Op::Update(vec![2])), Computed::Replaced(vec![]));
    cache
        .entry(1)
        .and_compute(|current| {
            assert!(current.unwrap().time_left().is_some(), "an update keeps the time left");
            Op::Keep
        })
        .unwrap();
    assert_eq!(compute(|_| Op::Put(vec![3])), Computed::Replaced(vec![2]));
    cache
        .entry(1)
        .and_compute(|current| {
            assert!(current.unwrap().time_left().is_none(), "a put has the entry's time");
            Op::Keep
        })
        .unwrap();
}

#[test]
fn one_load_serves_all_waiting_callers() {
    let cache = cache_of(ByteSize::mib(1));
    let loads = AtomicU64::new(0);
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                let value = cache.get_or_insert_with(7, || {
                    std::thread::sleep(Duration::from_millis(20));
                    loads.fetch_add(1, Ordering::Relaxed);
                    vec![7]
                });
                assert_eq!(value, [7]);
            });
        }
    });
    assert_eq!((loads.into_inner(), cache.stats().loads), (1, 1));
}

#[test]
fn a_rejected_load_is_returned_to_all_callers_and_not_cached() {
    let cache = cache_of(ByteSize::kib(16));
    let is_shared = || {
        let (loads, all_there) = (AtomicU64::new(0), Barrier::new(4));
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    all_there.wait();
                    let value = cache.get_or_insert_with(7, || {
                        std::thread::sleep(Duration::from_millis(50));
                        loads.fetch_add(1, Ordering::Relaxed);
                        vec![7; 1 << 20]
                    });
                    assert_eq!(value.len(), 1 << 20);
                });
            }
        });
        assert!(cache.is_empty());
        loads.into_inner() < 4
    };
    // A caller that was suspended during the whole load begins another one.
    eventually(PATIENCE, "a caller gets the value of another one's load", is_shared);
}

/// Publishing a loaded value evicts entries, and the listener requests the key that is being
/// published.
#[test]
fn a_listener_may_request_a_key_that_is_being_published() {
    let runtime = Runtime::builder().budget(ByteSize::kib(64)).build().unwrap();
    let slot = Arc::new(Mutex::new(None::<Cache<u64, u64>>));
    let (theirs, asked) = (Arc::clone(&slot), Arc::new(AtomicU64::new(0)));
    let seen = Arc::clone(&asked);
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::new(1000))
        .eviction_listener(move |key, _, _| {
            let cache = theirs.lock().unwrap().clone();
            if let Some(cache) = cache.filter(|_| *key > 9) {
                seen.fetch_add(1, Ordering::Relaxed);
                // Both keys, so that each of two threads requests the key that the other one
                // publishes.
                for key in 7..9 {
                    cache.get_or_insert_with(key, || key);
                }
            }
        })
        .build()
        .unwrap();
    for key in 100..200 {
        cache.insert(key, key).unwrap();
    }
    *slot.lock().unwrap() = Some(cache.clone());
    let (done, wait) = std::sync::mpsc::channel();
    for t in 0..2_u64 {
        let (cache, done) = (cache.clone(), done.clone());
        std::thread::spawn(move || {
            for n in 0..1_000 {
                cache.remove(&(7 + t));
                assert_eq!(cache.get_or_insert_with(7 + t, || 7 + t), 7 + t);
                let _ = cache.insert(1_000 + 2 * n + t, 1);
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..2 {
        wait.recv_timeout(PATIENCE).expect("a thread waits for itself, or two for each other");
    }
    assert!(asked.load(Ordering::Relaxed) > 100, "{asked:?}: this test shows nothing");
    *slot.lock().unwrap() = None;
}

#[test]
fn a_load_that_requests_its_own_key_loads_alone() {
    let cache = cache_of(ByteSize::mib(1));
    let value = cache.get_or_insert_with(1, || {
        let mut inner = cache.get_or_insert_with(1, || vec![1]);
        inner.push(2);
        inner
    });
    assert_eq!((value, cache.get(&1)), (vec![1, 2], Some(vec![1])), "the value inserted first is younger");
}

/// A value whose `clone` requests the key of the value.
#[test]
fn a_values_clone_may_request_a_key_in_flight() {
    type Once = Option<Box<dyn FnOnce() + Send>>;
    #[derive(Default)]
    struct Asks(Arc<Mutex<Once>>);
    impl Clone for Asks {
        fn clone(&self) -> Self {
            let ask = self.0.lock().unwrap().take();
            if let Some(ask) = ask {
                ask();
            }
            Self(Arc::clone(&self.0))
        }
    }
    let runtime = Runtime::builder().unlimited().build().unwrap();
    let cache = Cache::<u64, Asks>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let theirs = cache.clone();
    // Runs inside `clone`, on the thread that leads the load of this key: a wait for the load would
    // never end. Joins the load directly, as a lookup would find the value in the cache.
    let ask = move || {
        let inflight = &theirs.inner.core.inflight;
        assert!(matches!(inflight.join(theirs.inner.core.hash(&1), 1), Join::Alone(1)));
    };
    let slot: Arc<Mutex<Once>> = Arc::new(Mutex::new(Some(Box::new(ask))));
    // The value is inserted between the caller's first lookup and its load.
    cache.insert(1, Asks(Arc::clone(&slot))).unwrap();
    let leader = cache.inner.core.inflight.join(cache.inner.core.hash(&1), 1);
    assert!(matches!(cache.fill_step(cache.inner.core.hash(&1), leader), FillStep::Done(_)));
    assert!(slot.lock().unwrap().is_none(), "the value was not cloned");
}

#[test]
fn a_panicking_loader_leaves_the_key_to_other_callers() {
    let cache = cache_of(ByteSize::mib(1));
    let first = std::panic::AssertUnwindSafe(|| cache.get_or_insert_with(7, || panic!("the loader's own fault")));
    assert!(std::panic::catch_unwind(first).is_err());
    assert_eq!(cache.get_or_insert_with(7, || vec![7]), [7]);
}

#[test]
fn a_weigher_that_panics_changes_nothing() {
    let runtime = Runtime::builder().budget(ByteSize::mib(1)).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, v| if *v == 13 { panic!("the weigher's own fault") } else { ByteSize::ZERO })
        .build()
        .unwrap();
    cache.insert(1, 1).unwrap();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cache.insert(1, 13))).is_err());
    assert_eq!(cache.get(&1), Some(1));
    cache.insert(1, 2).unwrap();
}

/// A weigher or cost function that blocks holds no lock, and delays no reclamation of entries that
/// other threads remove.
#[test]
fn a_blocking_weigher_or_cost_function_delays_no_other_thread() {
    for blocks_in_cost in [false, true] {
        let (blocked, go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let block = {
            let (blocked, go) = (Arc::clone(&blocked), Arc::clone(&go));
            move |key: u64| {
                if key == u64::MAX {
                    blocked.wait();
                    go.wait();
                }
            }
        };
        let (block, blocks_too) = (block.clone(), block);
        // Without a reclaimer, which may evict the entry: adds that wait for its walks split the
        // list, and then the youngest entry may be alone on its shard.
        let runtime = without_reclaimer(ByteSize::kib(256)).build().unwrap();
        let cache = Cache::<u64, u64>::builder(&runtime)
            .weigher(move |key, _| {
                if !blocks_in_cost {
                    block(*key);
                }
                ByteSize::ZERO
            })
            .recreation_cost(move |key, _| {
                if blocks_in_cost {
                    blocks_too(*key);
                }
                1
            })
            .build()
            .unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| cache.insert(u64::MAX, 7).unwrap());
            blocked.wait();
            for key in 0..20_000 {
                cache.insert(key, key).unwrap();
            }
            // Some entries wait for readers, and other tests have readers, too. The weigher must
            // return before this thread fails, as the scope waits for it.
            let begun = Instant::now();
            let mut is_freed = false;
            while !is_freed && begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
                is_freed = cache.collect() == ByteSize::ZERO;
            }
            go.wait();
            assert!(is_freed);
        });
        assert_eq!(cache.get(&u64::MAX), Some(7));
    }
}

#[test]
fn a_cache_handle_is_send_and_sync() {
    fn goes<T: Send + Sync + Clone + 'static>() {}
    goes::<Cache<u64, Vec<u8>>>();
    goes::<Runtime>();
}

#[test]
fn a_listener_or_a_drop_that_panics_does_not_stop_reclaim() {
    struct Bomb(Arc<AtomicBool>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(!self.0.load(Ordering::Relaxed), "the value's own fault");
        }
    }
    let runtime = Runtime::builder().budget(ByteSize::kib(64)).build().unwrap();
    let cache = Cache::<u64, Arc<Option<Bomb>>>::builder(&runtime)
        .weigher(|_, _| ByteSize::new(1000))
        .eviction_listener(|k, _, _| assert!(k % 10 != 0, "the listener's own fault"))
        .build()
        .unwrap();
    let armed = Arc::new(AtomicBool::new(true));
    for key in 0..1_000 {
        cache.insert(key, Arc::new((key % 7 == 0).then(|| Bomb(Arc::clone(&armed))))).unwrap();
    }
    // Also by the registry, which quarantines a shrinker whose callback panics.
    eventually(PATIENCE, "all entries are evicted", || {
        runtime.drop_caches();
        cache.is_empty()
    });
    // Some entries wait for readers, and other tests have readers, too.
    let are_dropped = || cache.collect() == ByteSize::ZERO && cache.stats().drop_panics == 143;
    eventually(PATIENCE, "each seventh value panics in its drop", are_dropped);
    // An eviction is counted before its listener is called.
    eventually(PATIENCE, "the listener panics for each tenth key", || cache.stats().listener_panics == 100);
    assert_eq!(cache.stats().evictions, 1_000);
    let shrinkers = runtime.stats().registry.shrinkers;
    assert!(shrinkers[0].freed > 0 && shrinkers[0].panics == 0 && !shrinkers[0].quarantined, "{shrinkers:?}");
    armed.store(false, Ordering::Relaxed);
}

#[test]
fn a_listener_may_use_the_cache() {
    let runtime = Runtime::builder().budget(ByteSize::kib(64)).build().unwrap();
    let slot = Arc::new(Mutex::new(None::<Cache<u64, u64>>));
    let theirs = slot.clone();
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::new(1000))
        .eviction_listener(move |k, _, _| {
            let cache = theirs.lock().unwrap().clone();
            if let Some(cache) = cache {
                cache.remove(&(k + 1));
                cache.get(k);
            }
        })
        .build()
        .unwrap();
    *slot.lock().unwrap() = Some(cache.clone());
    for key in 0..1_000 {
        cache.insert(key, key).unwrap();
    }
    *slot.lock().unwrap() = None;
}

/// Without a bound, each insert by the listener would cause further evictions: a batch evicts eight
/// entries, and the listener of each inserts two.
#[test]
fn inserts_of_a_listener_evict_no_further_entries() {
    thread_local! { static DEPTH: Cell<usize> = const { Cell::new(0) } }
    const ENTRIES: u64 = 500;
    let runtime = Runtime::builder().budget(ByteSize::new(ENTRIES * 200)).build().unwrap();
    let slot = Arc::new(Mutex::new(None::<Cache<u64, u64>>));
    let (theirs, next, deepest) = (Arc::clone(&slot), AtomicU64::new(1 << 40), Arc::new(AtomicUsize::new(0)));
    let (seen, kept) = (Arc::clone(&deepest), Arc::new(AtomicUsize::new(0)));
    let told = Arc::clone(&kept);
    let cache = Cache::<u64, u64>::builder(&runtime)
        .weigher(|_, _| ByteSize::new(100))
        .eviction_listener(move |_, _, cause| {
            let cache = theirs.lock().unwrap().clone();
            let Some(cache) = cache.filter(|_| cause == RemovalCause::Size && DEPTH.get() < 2) else { return };
            DEPTH.set(DEPTH.get() + 1);
            seen.fetch_max(DEPTH.get(), Ordering::Relaxed);
            for _ in 0..2 {
                match cache.insert(next.fetch_add(1, Ordering::Relaxed), 0) {
                    Ok(_) => drop(told.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => assert!(matches!(error.reason, RejectReason::NoRoom { .. }), "{error}"),
                }
            }
            DEPTH.set(DEPTH.get() - 1);
        })
        .build()
        .unwrap();
    *slot.lock().unwrap() = Some(cache.clone());
    for key in 0..4 * ENTRIES {
        // Rejected if the listener has used the memory that this insert freed.
        let _ = cache.insert(key, key);
        assert!(runtime.root().usage() <= runtime.root().max());
    }
    // The same for evictions by the reclaimer.
    runtime.reclaim(runtime.root(), ByteSize::new(ENTRIES * 50));
    *slot.lock().unwrap() = None;
    assert_eq!(deepest.load(Ordering::Relaxed), 1, "listeners run inside listeners");
    assert!(kept.load(Ordering::Relaxed) > 0 && cache.len() > 100, "{kept:?} of {}", cache.len());
}

type Probes = Cache<u64, Arc<()>>;

/// Returns a cache whose listener drops the last handle on the cache and on its runtime once `may`
/// returns true. Each entry has a clone of `probe`.
fn dropped_by_its_listener(
    probe: &Arc<()>,
    may: impl Fn() -> bool + Send + Sync + 'static,
) -> (Probes, Arc<Mutex<Option<Probes>>>) {
    let runtime = Runtime::builder().budget(ByteSize::new(100_000)).topology(one_node()).build().unwrap();
    let slot = Arc::new(Mutex::new(None));
    let theirs = Arc::clone(&slot);
    let cache = Probes::builder(&runtime)
        .weigher(|_, _| ByteSize::new(100))
        .eviction_listener(move |_, _, _| {
            if may() {
                let last = theirs.lock().unwrap().take();
                drop(last);
            }
        })
        .build()
        .unwrap();
    (0..100).for_each(|key| drop(cache.insert(key, Arc::clone(probe)).unwrap()));
    (cache, slot)
}

fn wait_until_freed(probe: &Arc<()>) {
    eventually(PATIENCE, "all entries are dropped", || Arc::strong_count(probe) == 1);
}

#[test]
fn a_listener_may_drop_the_last_handle_inside_of_reclaim() {
    let probe = Arc::new(());
    let (cache, slot) = dropped_by_its_listener(&probe, || true);
    let runtime = cache.runtime().clone();
    *slot.lock().unwrap() = Some(cache);
    runtime.reclaim(runtime.root(), ByteSize::new(1_000));
    assert!(slot.lock().unwrap().is_none(), "the listener was called");
    wait_until_freed(&probe);
    runtime.tree().drain_stock();
    assert_eq!(runtime.root().usage(), ByteSize::ZERO);
}

/// The reclaimer's thread drops the cache, and with it the runtime to which the thread belongs.
#[test]
fn a_listener_may_drop_the_last_handle_and_the_runtime_on_the_reclaimers_thread() {
    let probe = Arc::new(());
    let (begun, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (tell, told) = (Arc::clone(&begun), Arc::clone(&dropped));
    let (cache, slot) = dropped_by_its_listener(&probe, move || {
        // The name that `reclaimer/thread.rs` of `lowwater-shrinker` gives the thread of node 0.
        let is_reclaimer = std::thread::current().name() == Some("lowwater/0");
        tell.fetch_or(is_reclaimer, Ordering::Relaxed);
        while is_reclaimer && !told.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        is_reclaimer
    });
    let runtime = cache.runtime().clone();
    *slot.lock().unwrap() = Some(cache);
    runtime.reclaimer().wake(runtime.root(), lowwater_shrinker::ReclaimReason::Manual(ByteSize::new(1_000)));
    eventually(PATIENCE, "the reclaimer evicts", || begun.load(Ordering::Relaxed));
    drop(runtime);
    dropped.store(true, Ordering::Relaxed);
    wait_until_freed(&probe);
}

#[test]
fn a_group_of_another_runtime_is_refused() {
    let (a, b) = (Runtime::builder().unlimited().build().unwrap(), Runtime::builder().unlimited().build().unwrap());
    let group = b.group("g").unwrap();
    let result = Cache::<u64, u64>::builder(&a).group(&group).weigher(|_, _| ByteSize::ZERO).build();
    assert!(result.unwrap_err().to_string().contains("/g"));

    // Has the same id as a group of this runtime.
    let ours = a.group("ours").unwrap();
    assert_eq!(ours.id(), group.id());
    let cache = Cache::<u64, u64>::builder(&a).weigher(|_, _| ByteSize::new(100)).build().unwrap();
    cache.entry(1).group(&ours).insert(1).unwrap();
    let reason = RejectReason::ForeignGroup { group: "/g".into() };
    let error = cache.entry(1).group(&group).insert(2).unwrap_err();
    assert_eq!((&error.reason, error.value), (&reason, 2));
    assert!(error.to_string().contains("/g"), "{error}");
    let error = cache.entry(1).group(&group).and_compute(|_| Op::Put(3)).unwrap_err();
    assert_eq!((&error.reason, error.value), (&reason, 3));
    assert_eq!(cache.entry(2).group(&group).or_insert_with(|| 4), 4);
    assert_eq!((cache.get(&1), cache.len(), cache.stats().rejected), (Some(1), 1, 3));
    assert_eq!((cache.len_of(&ours), cache.len_of(&group)), (1, 0));

    assert_eq!(a.end_group(&group), Err(MemcgError::Foreign));
    assert_eq!(a.drop_group(&group), Err(MemcgError::Foreign));
    assert_eq!(a.reclaim(&group, ByteSize::mib(1)), ByteSize::ZERO);
    let charge = std::panic::AssertUnwindSafe(|| a.charge(&group, ByteSize::new(1)));
    assert!(std::panic::catch_unwind(charge).is_err());
    assert!(group.is_online() && group.max() == ByteSize::MAX && group.usage() == ByteSize::ZERO);
}

#[test]
fn the_budget_can_be_changed_while_it_is_used() {
    let cache = cache_of(ByteSize::mib(1));
    for key in 0..2_000 {
        cache.insert(key, vec![0; 400]).unwrap();
    }
    cache.runtime().set_budget(ByteSize::kib(256));
    let is_below = || cache.runtime().root().usage() <= ByteSize::kib(256);
    eventually(PATIENCE, "the reclaimer brings usage below the new budget", is_below);
    cache.insert(1, vec![0; 400]).unwrap();
}
