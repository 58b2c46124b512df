//! Values that readers hold stay charged until their last clone is dropped.
//!
//! A value that a reader keeps is memory as well: these tests check that it is counted exactly
//! once, as charged or as retired, until its last clone is dropped (`src/runtime/charged.rs`).
//!
//! A change must ensure that the bytes are 0 when the last clone is dropped.
#![forbid(unsafe_code)]

#[path = "common/wait.rs"]
mod wait;

use lowwater::cache::{RejectReason, RemovalCause};
use lowwater::runtime::ChargeError;
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Charge, Charged, Memcg, Runtime};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wait::until;

type Blob = Charged<Vec<u8>>;

const BUDGET: ByteSize = ByteSize::mib(16);
const BLOB: usize = 64 << 10;
const BLOB_SIZE: ByteSize = ByteSize::new(BLOB as u64);

fn runtime() -> Runtime {
    Runtime::builder().budget(BUDGET).topology(Arc::new(Fixed::new(1))).build().unwrap()
}

fn weight(_: &u64, blob: &Blob) -> ByteSize {
    Blob::BYTES.saturating_add(ByteSize::new(blob.capacity() as u64))
}

fn blobs(runtime: &Runtime) -> Cache<u64, Blob> {
    Cache::builder(runtime).weigher(weight).charge_held_values().build().unwrap()
}

fn blob() -> Blob {
    vec![7; BLOB].into()
}

/// Waits until nothing is charged or retired: the reclaimer uncharges the objects it has just
/// isolated, and readers of other tests hold back removed entries.
fn assert_empty(runtime: &Runtime, collect: impl Fn()) {
    until("all bytes came back", || {
        collect();
        usage(runtime, runtime.root()) == ByteSize::ZERO && is_retired(runtime, ByteSize::ZERO)
    });
}

/// Returns whether this many bytes are retired, except for those that the caches have yet to
/// report: 32 KiB is half a value, so that each value counts.
fn is_retired(runtime: &Runtime, bytes: ByteSize) -> bool {
    runtime.stats().retired.get().abs_diff(bytes.get()) <= 32 << 10
}

/// The usage without the stock.
fn usage(runtime: &Runtime, group: &Memcg) -> ByteSize {
    runtime.tree().drain_stock();
    group.usage()
}

/// Inserts under these keys, and keeps a clone of each inserted value. Returns the clones, how many
/// inserts were refused, and how many values were evicted before they were cloned: the cache may be
/// full of values that readers hold, and then the reclaimer evicts all others.
fn hold(cache: &Cache<u64, Blob>, keys: std::ops::Range<u64>) -> (Vec<Blob>, usize, usize) {
    let (mut held, mut refused, mut evicted) = (Vec::new(), 0, 0);
    for key in keys {
        match cache.insert(key, blob()) {
            Ok(_) => match cache.get(&key) {
                Some(blob) => held.push(blob),
                None => evicted += 1,
            },
            Err(error) => {
                // On a busy machine a reader of another test may not run for long.
                let is_expected =
                    matches!(error.reason, RejectReason::NoRoom { .. } | RejectReason::HeldByReaders { .. });
                assert!(is_expected, "{error}");
                refused += 1;
            }
        }
        assert!(cache.runtime().root().usage() <= BUDGET);
    }
    (held, refused, evicted)
}

#[test]
fn two_thousand_held_values_stay_within_the_budget() {
    let runtime = runtime();
    let cache = blobs(&runtime);
    let (held, refused, evicted) = hold(&cache, 0..2_000);
    let bytes = ByteSize::new(held.len() as u64 * BLOB_SIZE.get());
    assert!(bytes <= BUDGET && bytes >= ByteSize::mib(12), "{bytes} are held");
    assert_eq!(held.len() + refused + evicted, 2_000);
    assert!(evicted <= 100, "{evicted} were evicted at once");
    assert!(runtime.root().usage() >= bytes, "all that is held is charged");
    assert!(held.iter().all(|blob| blob.iter().all(|byte| *byte == 7)));
    // The cache accepts inserts again when the readers leave.
    drop(held);
    until("no insert is refused", || {
        let (held, refused, evicted) = hold(&cache, 5_000..5_020);
        assert_eq!(held.len() + evicted + refused, 20);
        refused == 0
    });
    assert_empty(&runtime, || cache.clear());
}

#[test]
fn threads_that_hold_and_drop_leave_the_bytes_exact() {
    let runtime = runtime();
    let cache = blobs(&runtime);
    let groups = ["a", "b"].map(|name| runtime.group(name).unwrap());
    let is_over = AtomicBool::new(false);
    let mut held: Vec<Blob> = Vec::new();
    std::thread::scope(|scope| {
        let spawn = |thread: u64| {
            let (cache, group, is_over) = (&cache, &groups[thread as usize % 2], &is_over);
            scope.spawn(move || {
                let mut held = Vec::new();
                for turn in 0..3_000_u64 {
                    let key = (turn * 7 + thread) % 300;
                    let _refused = cache.entry(key).group(group).insert(blob());
                    held.extend(cache.get(&((key * 31) % 300)));
                    let pinned = cache.pin();
                    let found = pinned.get(&((key * 17) % 300));
                    cache.remove(&((key * 17) % 300));
                    held.extend(found.cloned());
                    drop(pinned);
                    if held.len() > 40 {
                        held.drain(..30);
                    }
                    is_over.fetch_or(cache.runtime().root().usage() > BUDGET, Ordering::Relaxed);
                }
                held
            })
        };
        let threads = [0, 1, 2, 3].map(spawn);
        held.extend(threads.into_iter().flat_map(|thread| thread.join().unwrap()));
    });
    assert!(!is_over.load(Ordering::Relaxed));
    // Each held value is counted once.
    let is_first = |at: &usize| !held[..*at].iter().any(|other| Charged::ptr_eq(other, &held[*at]));
    let values = (0..held.len()).filter(is_first).count() as u64;
    until("only held values are counted", || {
        cache.clear();
        let counted = usage(&runtime, runtime.root()).saturating_add(runtime.stats().retired);
        counted.get().abs_diff(values * weight(&1, &blob()).get()) <= 32 << 10
    });
    assert!(values > 0);
    drop(held);
    assert_empty(&runtime, || cache.clear());
}

#[test]
fn a_charge_ends_with_the_last_clone_whichever_way_the_entry_left() {
    type Leave = fn(&Cache<u64, Blob>);
    let ways: [Leave; 5] = [
        |cache| drop(cache.remove(&1)),
        |cache| drop(cache.insert(1, Vec::new().into()).unwrap()),
        |cache| cache.retain(|_, _| false),
        |cache| assert!(cache.runtime().drop_caches() > 0),
        |cache| drop((cache.touch(&1, Some(std::time::Duration::ZERO)), cache.get(&1), cache.remove(&1))),
    ];
    for (way, leave) in ways.into_iter().enumerate() {
        let runtime = runtime();
        let cache = blobs(&runtime);
        let group = runtime.group("a").unwrap();
        cache.entry(1).group(&group).insert(blob()).unwrap();
        let (held, other) = (cache.get(&1).unwrap(), cache.peek(&1).unwrap());
        assert_eq!(Charged::held_bytes(&held), ByteSize::ZERO, "the entry is charged");
        assert!(Charged::ptr_eq(&held, &other));
        leave(&cache);
        assert!(cache.peek(&1).is_none_or(|there| there.is_empty()));
        let expected = weight(&1, &held);
        assert!(Charged::held_bytes(&held) == expected, "{way}: {}", Charged::held_bytes(&held));
        drop(cache);
        assert_eq!(usage(&runtime, &group), expected, "{way}");
        drop(held);
        assert_eq!(usage(&runtime, &group), expected, "{way}");
        drop(other);
        assert_eq!(usage(&runtime, &group), ByteSize::ZERO, "{way}");
    }
}

#[test]
fn an_unheld_entry_is_uncharged_at_once() {
    let builder = Runtime::builder().budget(BUDGET).topology(Arc::new(Fixed::new(1)));
    // Readers of other tests may hold evicted entries back for a while.
    let runtime = builder.direct_time_max(Duration::from_secs(60)).build().unwrap();
    let cache = blobs(&runtime);
    for key in 0..1_000 {
        cache.insert(key, blob()).expect("others are evicted");
    }
    drop(cache.get(&999));
    // Evicted entries that this reader holds back are retired, and not charged: no clone of their
    // values exists. So reclaim frees 4 MiB, if there are 64 values of 64 KiB.
    let pinned = cache.pin();
    let there = cache.len();
    assert_eq!(runtime.reclaim(runtime.root(), ByteSize::mib(4)) >= ByteSize::mib(4), there > 64);
    drop(pinned);
    drop(cache);
    assert_eq!(usage(&runtime, runtime.root()), ByteSize::ZERO);
}

#[test]
fn a_late_clone_is_charged_or_counted_as_retired() {
    let runtime = runtime();
    let cache = blobs(&runtime);
    for has_room in [true, false] {
        cache.insert(1, blob()).unwrap();
        let expected = weight(&1, &blob());
        let pinned = cache.pin();
        let found = pinned.get(&1).unwrap();
        cache.retain(|_, _| false);
        assert_eq!(usage(&runtime, runtime.root()), ByteSize::ZERO, "there was no clone");
        let rest = if has_room { ByteSize::kib(1) } else { BUDGET };
        let charge = runtime.charge_guard(runtime.root(), rest).unwrap();
        let late = found.clone();
        let again = found.clone();
        drop(pinned);
        let (held, retired) = if has_room { (expected, ByteSize::ZERO) } else { (ByteSize::ZERO, expected) };
        assert_eq!(Charged::held_bytes(&late), held);
        until("the record is dropped", || {
            cache.collect();
            is_retired(&runtime, retired)
        });
        drop(late);
        assert!(Charged::held_bytes(&again) == held && is_retired(&runtime, retired));
        drop((again, charge));
        assert_empty(&runtime, || ());
    }
}

#[test]
fn held_values_are_counted_once_as_charged_or_retired() {
    let runtime = runtime();
    let cache = blobs(&runtime);
    cache.insert(1, blob()).unwrap();
    let expected = weight(&1, &blob());
    let (held, pinned) = (cache.get(&1).unwrap(), cache.pin());
    cache.remove(&1);
    assert!(usage(&runtime, runtime.root()) == expected && is_retired(&runtime, ByteSize::ZERO));
    // The record is in memory until the pinned reader leaves.
    drop(held);
    assert!(usage(&runtime, runtime.root()) == ByteSize::ZERO && is_retired(&runtime, expected));
    drop(pinned);
    assert_empty(&runtime, || _ = cache.collect());
}

#[test]
fn a_leaked_clone_stays_charged() {
    let runtime = runtime();
    let cache = blobs(&runtime);
    cache.insert(1, blob()).unwrap();
    std::mem::forget(cache.get(&1));
    std::mem::forget(runtime.charge_guard(runtime.root(), ByteSize::kib(3)).unwrap());
    cache.clear();
    drop(cache);
    let expected = weight(&1, &blob()).saturating_add(ByteSize::kib(3));
    assert_eq!(usage(&runtime, runtime.root()), expected);
    // The rest of the budget can be used.
    drop(runtime.charge_guard(runtime.root(), BUDGET.saturating_sub(expected)).unwrap());
    assert!(runtime.charge_guard(runtime.root(), BUDGET).is_err());
}

#[test]
fn held_values_may_outlive_the_runtime() {
    let runtime = runtime();
    let cache = blobs(&runtime);
    let group = runtime.group("a").unwrap();
    cache.entry(1).group(&group).insert(blob()).unwrap();
    let held = cache.get(&1).unwrap();
    let charge = runtime.charge_guard(&group, ByteSize::kib(3)).unwrap();
    let own = Charged::new(5_u64, runtime.charge_guard(&group, ByteSize::kib(3)).unwrap());
    drop((cache, runtime));
    assert_eq!(held.len(), BLOB);
    let other = held.clone();
    std::thread::spawn(move || drop((held, charge, own))).join().unwrap();
    drop(other);
    // A lower limit drains the group's stocks.
    group.set_max(ByteSize::ZERO);
    assert_eq!(group.usage(), ByteSize::ZERO);
}

#[test]
fn held_values_stay_charged_after_their_groups_end() {
    let runtime = runtime();
    let cache = blobs(&runtime);
    let parent = runtime.group("p").unwrap();
    for is_dropped in [false, true] {
        let group = runtime.group("p/a").unwrap();
        cache.entry(1).group(&group).insert(blob()).unwrap();
        let held = cache.get(&1).unwrap();
        let mut charge = runtime.charge_guard(&group, ByteSize::kib(3)).unwrap();
        if is_dropped {
            runtime.drop_group(&group).unwrap();
        } else {
            runtime.end_group(&group).unwrap();
            assert_eq!(charge.grow(&runtime, ByteSize::kib(1)), Ok(()));
            assert_eq!(charge.shrink(ByteSize::kib(1)), ByteSize::kib(1));
            cache.remove(&1);
        }
        let expected = weight(&1, &held).saturating_add(ByteSize::kib(3));
        // The housekeeper empties a dropped group, and drains its stock after the group has ended.
        until("the group has ended, and only the charges are left", || {
            !group.is_online() && (usage(&runtime, &parent), cache.len()) == (expected, 0)
        });
        drop((held, charge));
        assert_eq!(usage(&runtime, &parent), ByteSize::ZERO);
    }
}

#[test]
fn any_weigher_leaves_exact_bytes_of_held_values() {
    for bytes in [0, 1, 255, (1 << 18) + 1, 5_000_001] {
        let runtime = runtime();
        let builder = Cache::<u64, Charged<u64>>::builder(&runtime).weigher(move |_, _| ByteSize::new(bytes));
        let cache = builder.charge_held_values().build().unwrap();
        cache.insert(1, 1.into()).unwrap();
        let held = cache.get(&1).unwrap();
        cache.remove(&1);
        assert!(Charged::held_bytes(&held).get() >= bytes);
        drop((held, cache));
        assert_eq!(usage(&runtime, runtime.root()), ByteSize::ZERO, "{bytes}");
    }
}

#[test]
fn a_charged_value_keeps_its_own_charge() {
    let runtime = runtime();
    let cache = Cache::<u64, Blob>::builder(&runtime)
        // Bytes that the value's own charge covers are not charged again.
        .weigher(|key, blob| weight(key, blob).saturating_sub(Charged::held_bytes(blob)))
        .charge_held_values()
        .build()
        .unwrap();
    let size = weight(&1, &blob());
    let own = || Charged::new(vec![7; BLOB], runtime.charge_guard(runtime.root(), size).unwrap());
    cache.insert(1, own()).unwrap();
    let entry = Cache::<u64, Blob>::ENTRY_BYTES;
    assert_eq!(usage(&runtime, runtime.root()), size.saturating_add(entry));
    let held = cache.get(&1).unwrap();
    cache.remove(&1);
    // The removed entry holds the charge, too, until no reader of the process can use it.
    until("no reader holds the entry back", || cache.collect() == ByteSize::ZERO);
    assert_eq!(usage(&runtime, runtime.root()), size);
    drop(held);
    assert_eq!(usage(&runtime, runtime.root()), ByteSize::ZERO);
}

#[test]
fn an_entry_is_charged_in_place_of_its_value() {
    let runtime = runtime();
    let cache = blobs(&runtime);
    let (size, entry) = (weight(&1, &blob()), Cache::<u64, Blob>::ENTRY_BYTES);
    for more in [ByteSize::ZERO, ByteSize::kib(64)] {
        let charge = runtime.charge_guard(runtime.root(), size.saturating_add(more)).unwrap();
        let value = Charged::new(vec![7; BLOB], charge);
        assert_eq!(Charged::held_bytes(&value), size.saturating_add(more));
        cache.insert(1, value.clone()).unwrap();
        assert_eq!(Charged::held_bytes(&value), more, "what the entry is not charged for");
        let all = size.saturating_add(entry).saturating_add(more);
        assert!(usage(&runtime, runtime.root()).get().abs_diff(all.get()) < 64, "charged once");
        // With a reader the charge passes back to the value; without one it ends at once.
        cache.remove(&1);
        assert_eq!(Charged::held_bytes(&value), size.saturating_add(more));
        cache.insert(1, value).unwrap();
        cache.remove(&1);
        assert_eq!(usage(&runtime, runtime.root()), ByteSize::ZERO, "no reader has the value");
        assert_empty(&runtime, || _ = cache.collect());
    }
    // A value that is refused keeps its charge.
    let all = runtime.charge_guard(runtime.root(), BUDGET.saturating_sub(size)).unwrap();
    let value = Charged::new(vec![7; BLOB], runtime.charge_guard(runtime.root(), size).unwrap());
    let value = cache.insert(1, value).unwrap_err().value;
    assert_eq!((usage(&runtime, runtime.root()), Charged::held_bytes(&value)), (BUDGET, size));
    drop((value, all));
    assert_empty(&runtime, || ());
}

#[test]
fn a_value_charged_in_another_runtime_leaves_exact_bytes() {
    for is_held in [true, false] {
        let (ours, theirs) = (runtime(), runtime());
        let cache = blobs(&ours);
        let size = weight(&1, &blob()).saturating_add(ByteSize::kib(64));
        let value = Charged::new(vec![7; BLOB], theirs.charge_guard(theirs.root(), size).unwrap());
        cache.insert(1, value.clone()).unwrap();
        assert_eq!(usage(&theirs, theirs.root()), ByteSize::kib(64), "what the entry is not charged for");
        let mut held = Some(value).filter(|_| is_held);
        cache.remove(&1);
        let both = usage(&ours, ours.root()).saturating_add(usage(&theirs, theirs.root()));
        assert_eq!(both, if is_held { size } else { ByteSize::ZERO });
        drop((held.take(), cache));
        assert_empty(&ours, || ());
        assert_empty(&theirs, || ());
    }
}

#[test]
fn loads_that_charge_their_values_evict_only_what_they_need() {
    let runtime = runtime();
    let protected = Cache::<u64, u64>::builder(&runtime).low(ByteSize::mib(2)).weigher(|_, _| 0_u64).build().unwrap();
    for key in 0..1_000 {
        protected.insert(key, key).unwrap();
    }
    let plain = |key: &u64, blob: &Blob| weight(key, blob);
    let without_charge = |key: &u64, blob: &Blob| weight(key, blob).saturating_sub(Charged::held_bytes(blob));
    let weighers: [fn(&u64, &Blob) -> ByteSize; 2] = [plain, without_charge];
    for weigher in weighers {
        let cache = Cache::builder(&runtime).weigher(weigher).charge_held_values().build().unwrap();
        let size = weight(&1, &blob());
        for key in 0..3_000_u64 {
            let loaded = cache.try_get_or_insert_with(key, || {
                let charge = runtime.charge_guard(runtime.root(), size)?;
                Ok::<_, ChargeError>(Charged::new(vec![7; BLOB], charge))
            });
            assert!(loaded.is_ok(), "{key}: {:?}", loaded.err());
        }
        assert_eq!(protected.len(), 1_000, "protected entries stay");
        // Of about 220 that the budget has room for. A reader of another test may have held evicted
        // entries back, so that more were evicted.
        let mut keys = 3_000..;
        until("the cache is full", || {
            for key in keys.by_ref().take(300) {
                let _filled = cache.insert(key, blob());
            }
            cache.len() > 150
        });
    }
}

/// A value that calls a closure when it is dropped.
struct Calls(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Drop for Calls {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

#[test]
fn charges_and_values_may_be_dropped_in_any_callback() {
    let runtime = runtime();
    let group = runtime.group("a").unwrap();
    let kept: Arc<Mutex<Vec<(Blob, Charge)>>> = Arc::default();
    let take = |kept: &Mutex<Vec<(Blob, Charge)>>| drop(kept.lock().unwrap().pop());
    let (in_listener, in_weigher) = (Arc::clone(&kept), Arc::clone(&kept));
    let cloned: Arc<Mutex<Vec<Blob>>> = Arc::default();
    let clones = Arc::clone(&cloned);
    let cache = Cache::<u64, Blob>::builder(&runtime)
        .eviction_listener(move |_, blob: &Blob, cause| {
            take(&in_listener);
            // A late clone: made after the entry was removed.
            if cause == RemovalCause::Explicit {
                clones.lock().unwrap().push(blob.clone());
            }
        })
        .weigher(move |key, blob| {
            take(&in_weigher);
            weight(key, blob)
        })
        .charge_held_values()
        .build()
        .unwrap();
    for key in 0..600 {
        let charge = runtime.charge_guard(&group, ByteSize::kib(1)).unwrap();
        let _refused = cache.entry(key).group(&group).insert(blob());
        kept.lock().unwrap().extend(cache.get(&key).map(|blob| (blob, charge)));
        cache.entry(key + 1_000).group(&group).or_insert_with(|| {
            take(&kept);
            blob()
        });
        if key % 3 == 0 {
            cache.remove(&key);
            let last = cloned.lock().unwrap().pop();
            assert!(last.is_none_or(|last| last.len() == BLOB));
        }
        assert!(runtime.root().usage() <= BUDGET);
    }
    kept.lock().unwrap().clear();
    cache.clear();
    cloned.lock().unwrap().clear();
    assert_empty(&runtime, || {
        cache.clear();
        cloned.lock().unwrap().clear();
    });

    // The value is dropped inside the drop of the last clone.
    let cache = Cache::<u64, Charged<Calls>>::builder(&runtime).weigher(|_, _| ByteSize::kib(1));
    let cache = cache.charge_held_values().build().unwrap();
    let again = cache.clone();
    let inserts = move || drop(again.insert(77, Calls(None).into()));
    cache.insert(1, Calls(Some(Box::new(inserts))).into()).unwrap();
    let held = cache.remove(&1).unwrap();
    cache.collect();
    drop(held);
    until("the value is dropped, and inserts", || {
        cache.collect();
        cache.contains_key(&77)
    });
}

#[test]
fn a_value_that_panics_in_its_drop_is_uncharged() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let runtime = runtime();
    let value = Charged::new(Panics, runtime.charge_guard(runtime.root(), ByteSize::kib(64)).unwrap());
    let clone = value.clone();
    drop(value);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(clone)));
    assert!(panicked.is_err());
    assert_eq!(usage(&runtime, runtime.root()), ByteSize::ZERO);
}

#[test]
fn held_values_are_sent_and_shared() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Blob>();
}
