//! Values of caches with `charge_held_values` that are inserted again, or are in several entries.
//!
//! A value is charged once for each entry that has it. Only while no entry has it, its readers are
//! charged for it. Otherwise a value that is removed and inserted again would be charged twice.
//!
//! A new way to insert a value needs a row in `ways`.
#![forbid(unsafe_code)]

#[path = "common/wait.rs"]
mod wait;

use lowwater::cache::{Op, RejectReason};
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Charged, Memcg, Runtime};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wait::until;

type Blob = Charged<Vec<u8>>;
type Blobs = Cache<u64, Blob>;

const BUDGET: ByteSize = ByteSize::mib(4);
const BLOB: usize = 64 << 10;
/// The charge for a value that only readers have.
const HELD: ByteSize = ByteSize::new(Blob::BYTES.get() + BLOB as u64);
/// The charge for an entry, with its value.
const ENTRY: ByteSize = ByteSize::new(HELD.get() + Blobs::ENTRY_BYTES.get());
const NOTHING: ByteSize = ByteSize::ZERO;

fn runtime() -> Runtime {
    Runtime::builder().budget(BUDGET).topology(Arc::new(Fixed::new(1))).build().unwrap()
}

fn weight(_: &u64, blob: &Blob) -> ByteSize {
    Blob::BYTES.saturating_add(ByteSize::new(blob.capacity() as u64))
}

fn blobs(runtime: &Runtime) -> Blobs {
    Cache::builder(runtime).weigher(weight).charge_held_values().build().unwrap()
}

/// Builds a cache with a weigher that subtracts the bytes for which readers are charged: such a
/// value must not become free of charge.
fn subtracting(runtime: &Runtime) -> Blobs {
    let weigher = |key: &u64, blob: &Blob| weight(key, blob).saturating_sub(Charged::held_bytes(blob));
    Cache::builder(runtime).weigher(weigher).charge_held_values().build().unwrap()
}

fn blob() -> Blob {
    vec![7; BLOB].into()
}

/// Returns the usage of a group without bytes in stocks.
fn usage(runtime: &Runtime, group: &Memcg) -> ByteSize {
    runtime.tree().drain_stock();
    group.usage()
}

fn used(runtime: &Runtime) -> ByteSize {
    usage(runtime, runtime.root())
}

/// Waits until this many bytes are charged, and nothing is retired.
fn assert_counted(runtime: &Runtime, bytes: ByteSize, caches: &[&Blobs]) {
    until("nothing else is counted", || {
        caches.iter().for_each(|cache| _ = cache.collect());
        used(runtime) == bytes && runtime.stats().retired == NOTHING
    });
}

#[test]
fn a_value_that_is_inserted_again_is_charged_once() {
    type Again = fn(&Blobs);
    let ways: [(&str, Again); 6] = [
        ("removed, inserted", |cache| {
            let removed = cache.remove(&1).unwrap();
            assert_eq!(Charged::held_bytes(&removed), HELD);
            cache.insert(1, removed).unwrap();
        }),
        ("inserted over itself", |cache| _ = cache.insert(1, cache.get(&1).unwrap()).unwrap()),
        ("updated with itself", |cache| {
            let update =
                |there: Option<lowwater::cache::Current<'_, u64, Blob>>| Op::Update(there.unwrap().value().clone());
            cache.entry(1).and_compute(update).unwrap();
        }),
        ("loaded", |cache| {
            let removed = cache.remove(&1).unwrap();
            drop(cache.get_or_insert_with(1, || removed));
        }),
        ("expired, inserted", |cache| {
            let held = cache.get(&1).unwrap();
            cache.touch(&1, Some(Duration::ZERO));
            cache.insert(1, held).unwrap();
        }),
        ("cloned late, inserted", |cache| {
            let pinned = cache.pin();
            let found = pinned.get(&1).unwrap();
            cache.retain(|_, _| false);
            cache.insert(1, found.clone()).unwrap();
        }),
    ];
    for (way, again) in ways {
        let runtime = runtime();
        let cache = blobs(&runtime);
        cache.insert(1, blob()).unwrap();
        for is_held in [false, true] {
            let held = is_held.then(|| cache.get(&1).unwrap());
            for _ in 0..3 {
                again(&cache);
                // The housekeeper may be removing the expired entry.
                until(&format!("one entry is charged, {way}, {is_held}"), || used(&runtime) == ENTRY);
                let there = cache.get(&1).unwrap();
                assert_eq!(Charged::held_bytes(&there), NOTHING, "{way}, {is_held}");
            }
            assert_counted(&runtime, ENTRY, &[&cache]);
            assert!(held.is_none_or(|held| Charged::ptr_eq(&held, &cache.get(&1).unwrap())));
        }
        let held = cache.get(&1).unwrap();
        cache.clear();
        assert_counted(&runtime, HELD, &[&cache]);
        drop(held);
        assert_counted(&runtime, NOTHING, &[&cache]);
    }
}

#[test]
fn entries_that_are_refreshed_with_their_own_values_stay() {
    let runtime = runtime();
    let cache = blobs(&runtime);
    for key in 0..200 {
        cache.insert(key, blob()).unwrap();
    }
    let before = cache.len();
    for _ in 0..3 {
        for key in 0..200 {
            // The old entry is charged until the new one is in the index, so an insert may evict.
            cache.peek(&key).into_iter().for_each(|value| drop(cache.insert(key, value)));
        }
    }
    assert!(cache.len() >= before - 8, "{} of {before}", cache.len());
    // The reclaimer may still be evicting.
    until("the entries are all that is counted", || {
        cache.collect();
        let entries = ByteSize::new(cache.len() as u64 * ENTRY.get());
        used(&runtime) == entries && runtime.stats().retired == NOTHING
    });
}

#[test]
fn a_value_moved_by_a_listener_is_charged_in_its_new_cache_only() {
    let runtime = runtime();
    let second = blobs(&runtime);
    let to = second.clone();
    let first = Cache::<u64, Blob>::builder(&runtime)
        .weigher(weight)
        .charge_held_values()
        .eviction_listener(move |key: &u64, value: &Blob, _| _ = to.insert(*key, value.clone()))
        .build()
        .unwrap();
    for key in 0..20 {
        first.insert(key, blob()).unwrap();
    }
    let held = first.get(&7).unwrap();
    first.clear();
    assert_eq!((first.len(), second.len()), (0, 20));
    assert_counted(&runtime, ByteSize::new(20 * ENTRY.get()), &[&first, &second]);
    second.clear();
    assert_counted(&runtime, HELD, &[&first, &second]);
    drop(held);
    assert_counted(&runtime, NOTHING, &[&first, &second]);
}

#[test]
fn a_value_in_two_entries_is_charged_for_each_that_is_left() {
    for (is_held, other_runtime) in [(false, false), (true, false), (true, true)] {
        let runtimes = [runtime(), runtime()];
        let [ours, theirs] = [&runtimes[0], &runtimes[usize::from(other_runtime)]];
        let (group, other) = (ours.group("a").unwrap(), theirs.group("b").unwrap());
        let (first, second) = (blobs(ours), blobs(theirs));
        let value = blob();
        first.entry(1).group(&group).insert(value.clone()).unwrap();
        second.entry(1).group(&other).insert(value.clone()).unwrap();
        let held = is_held.then_some(value);
        assert_eq!((usage(ours, &group), usage(theirs, &other)), (ENTRY, ENTRY));
        first.remove(&1);
        assert_eq!((usage(ours, &group), usage(theirs, &other)), (NOTHING, ENTRY));
        assert_counted(ours, if other_runtime { NOTHING } else { ENTRY }, &[&first]);
        second.remove(&1);
        let expected = if is_held { HELD } else { NOTHING };
        assert_eq!((usage(ours, &group), usage(theirs, &other)), (NOTHING, expected));
        assert_counted(theirs, expected, &[&first, &second]);
        // The charge moves into the other group with an insert, and to the readers when the caches
        // end.
        if let Some(held) = held {
            first.entry(2).group(&group).insert(held.clone()).unwrap();
            assert_eq!((usage(ours, &group), usage(theirs, &other)), (ENTRY, NOTHING));
            drop((first, second));
            assert_eq!((usage(ours, &group), usage(theirs, &other)), (HELD, NOTHING));
            drop(held);
        }
        assert_eq!((used(ours), used(theirs)), (NOTHING, NOTHING));
    }
}

#[test]
fn a_weigher_without_held_bytes_loses_none() {
    let runtime = runtime();
    let cache = subtracting(&runtime);
    let groups = ["a", "b"].map(|name| runtime.group(name).unwrap());
    cache.entry(0).group(&groups[0]).insert(blob()).unwrap();
    let held = cache.remove(&0).unwrap();
    for key in 1..5 {
        cache.entry(key).group(&groups[key as usize % 2]).insert(held.clone()).unwrap();
        assert_eq!(used(&runtime), ENTRY, "the value is charged, and its entry");
        cache.remove(&key);
        assert_counted(&runtime, HELD, &[&cache]);
        assert_eq!(Charged::held_bytes(&held), HELD);
    }
    // No reader has the value: its entry alone keeps the charge.
    cache.insert(1, held).unwrap();
    assert_eq!(used(&runtime), ENTRY);
    let pinned = cache.pin();
    cache.retain(|_, _| false);
    assert_eq!(used(&runtime), NOTHING);
    assert!(runtime.stats().retired >= HELD, "until the reader leaves");
    drop(pinned);
    assert_counted(&runtime, NOTHING, &[&cache]);

    // With an entry in a cache of each kind the value is charged once, for the other cache's entry;
    // the subtracting cache is charged when that entry is removed.
    cache.insert(1, blob()).unwrap();
    let held = cache.remove(&1).unwrap();
    let light = cache.insert(2, held.clone());
    let heavy = blobs(&runtime);
    heavy.insert(1, held).unwrap();
    assert!(light.is_ok() && used(&runtime) == ENTRY.saturating_add(Blobs::ENTRY_BYTES));
    heavy.remove(&1);
    assert_counted(&runtime, ENTRY, &[&cache, &heavy]);
    cache.remove(&2);
    assert_counted(&runtime, NOTHING, &[&cache, &heavy]);
}

#[test]
fn an_insert_that_is_refused_leaves_the_charge_to_the_reader() {
    let runtime = runtime();
    let cache = blobs(&runtime);
    cache.insert(1, blob()).unwrap();
    let held = cache.remove(&1).unwrap();
    let rest = runtime.charge_guard(runtime.root(), BUDGET.saturating_sub(HELD)).unwrap();
    let refused = cache.insert(1, held).unwrap_err();
    assert!(matches!(refused.reason, RejectReason::NoRoom { .. }), "{refused}");
    drop(rest);
    assert_counted(&runtime, HELD, &[&cache]);
    // A load of a key that exists already does not take the charge either.
    cache.insert(1, blob()).unwrap();
    let both = ByteSize::new(ENTRY.get() + HELD.get());
    drop(cache.get_or_insert_with(1, || refused.value.clone()));
    assert_eq!(used(&runtime), both);
    drop(refused);
    assert_counted(&runtime, ENTRY, &[&cache]);
}

#[test]
fn concurrent_inserts_of_held_values_leave_exact_bytes() {
    let runtime = runtime();
    let group = runtime.group("a").unwrap();
    let idle = Duration::from_millis(5);
    let short = Cache::<u64, Blob>::builder(&runtime).weigher(weight).charge_held_values().time_to_live(idle);
    let caches = [short.build().unwrap(), subtracting(&runtime)];
    let shared: Mutex<Vec<Blob>> = Mutex::default();
    let work = |thread: u64| {
        let mut held: Vec<Blob> = Vec::new();
        let mut random = thread;
        for _ in 0..3_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (key, cache) = ((random >> 40) % 16, &caches[(random >> 33) as usize % 2]);
            match random >> 61 {
                0 => _ = cache.insert(key, vec![7; (random >> 50) as usize].into()),
                1 => held.extend(cache.get(&key)),
                2 => held.extend(cache.remove(&key)),
                3 => held.extend(cache.pin().get(&key).filter(|_| cache.remove(&key).is_some()).cloned()),
                4 => held.pop().into_iter().for_each(|value| _ = cache.entry(key).group(&group).insert(value)),
                5 => {
                    _ = cache
                        .entry(key)
                        .and_compute(|there| there.map_or(Op::Keep, |it| Op::Update(it.value().clone())))
                }
                6 => {
                    let mut shared = shared.lock().unwrap();
                    shared.extend(held.pop());
                    held.extend((shared.len() > 4).then(|| shared.swap_remove(0)));
                }
                _ => held.truncate(2),
            }
            assert!(runtime.root().usage() <= BUDGET);
        }
        held
    };
    let work = &work;
    let mut held: Vec<Blob> = std::thread::scope(|scope| {
        let threads = [1, 2, 3, 4].map(|thread| scope.spawn(move || work(thread)));
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    held.append(&mut shared.lock().unwrap());
    // Each held value is counted once.
    let is_first = |at: &usize| !held[..*at].iter().any(|other| Charged::ptr_eq(other, &held[*at]));
    let values = (0..held.len()).filter(is_first);
    let bytes: u64 = values.map(|at| weight(&1, &held[at]).get()).sum();
    until("only held values are counted", || {
        caches.iter().for_each(|cache| {
            cache.clear();
            cache.collect();
        });
        used(&runtime).saturating_add(runtime.stats().retired).get() == bytes
    });
    drop(held);
    assert_counted(&runtime, NOTHING, &[&caches[0], &caches[1]]);
}
