//! Charged and retired bytes under faults of user code, and while tenants come and go: exact at the
//! end of each test.
//!
//! Every byte that is charged must be uncharged once, whatever panics in between; a server would
//! otherwise fill up with bytes that no entry uses.

#![forbid(unsafe_code)]

#[path = "common/one_node.rs"]
mod one_node;
#[path = "common/usage.rs"]
mod usage;
#[path = "common/wait.rs"]
mod wait;

use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, Runtime};
use one_node::runtime;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;
use usage::used;
use wait::until;

const WEIGHT: u64 = 500;

/// A value with a `drop` and a `clone` that panic on request.
struct Fragile(u64, Arc<Faults>);

#[derive(Default)]
struct Faults {
    live: AtomicI64,
    drops_panic: AtomicBool,
    clones_panic: AtomicBool,
    clones: AtomicU64,
}

impl Fragile {
    fn new(number: u64, faults: &Arc<Faults>) -> Self {
        faults.live.fetch_add(1, Relaxed);
        Self(number, Arc::clone(faults))
    }
}

impl Clone for Fragile {
    fn clone(&self) -> Self {
        self.1.clones.fetch_add(1, Relaxed);
        assert!(!self.1.clones_panic.load(Relaxed), "its own fault");
        Self::new(self.0, &self.1)
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        self.1.live.fetch_sub(1, Relaxed);
        assert!(!self.1.drops_panic.load(Relaxed) || std::thread::panicking(), "its own fault");
    }
}

/// Waits until nothing is charged or retired, and no value is alive. The reclaimer may still finish
/// evictions: it retires the values first, then uncharges them.
fn assert_empty(runtime: &Runtime, cache: &Cache<u64, Fragile>, faults: &Faults) {
    until("all is uncharged and dropped", || {
        used(runtime) == 0
            && cache.collect() == ByteSize::ZERO
            && (runtime.stats().retired, faults.live.load(Relaxed)) == (ByteSize::ZERO, 0)
    });
}

#[test]
fn panicking_drops_are_uncharged() {
    let (runtime, faults) = (runtime(ByteSize::mib(1)), Arc::new(Faults::default()));
    let cache = Cache::<u64, Fragile>::builder(&runtime).weigher(|_, _| ByteSize::new(WEIGHT)).build().unwrap();
    faults.drops_panic.store(true, Relaxed);
    for key in 0..10_000 {
        // The replaced value is dropped here.
        let _met = catch_unwind(AssertUnwindSafe(|| drop(cache.insert(key % 4_000, Fragile::new(key, &faults)))));
    }
    cache.clear();
    assert_empty(&runtime, &cache, &faults);
    assert!(cache.stats().drop_panics > 5_000);
    faults.drops_panic.store(false, Relaxed);
}

#[test]
fn clones_that_panic_while_entries_are_moved_leave_them_where_they_are() {
    let (runtime, faults) = (runtime(ByteSize::mib(64)), Arc::new(Faults::default()));
    let cache = Cache::<u64, Fragile>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    for key in 0..60_000 {
        cache.insert(key, Fragile::new(key, &faults)).unwrap();
    }
    faults.clones_panic.store(true, Relaxed);
    cache.retain(|key, _| key % 20 == 0);
    until("the housekeeper tries to move some", || faults.clones.load(Relaxed) > 100);
    let each = Cache::<u64, Fragile>::ENTRY_BYTES.get();
    until("nothing is retired", || cache.collect() == ByteSize::ZERO);
    assert_eq!((cache.len(), used(&runtime)), (3_000, 3_000 * each));
    assert!((0..60_000).step_by(20).all(|key| cache.contains_key(&key)));
    faults.clones_panic.store(false, Relaxed);
    drop(cache);
    assert_eq!((used(&runtime), runtime.stats().retired, faults.live.load(Relaxed)), (0, ByteSize::ZERO, 0));
}

#[test]
fn a_weigher_with_any_result_leaves_exact_bytes() {
    let (runtime, faults) = (runtime(ByteSize::mib(1)), Arc::new(Faults::default()));
    let calls = AtomicU64::new(0);
    let weigher = move |_: &u64, _: &Fragile| match calls.fetch_add(1, Relaxed) % 6 {
        0 => ByteSize::ZERO,
        1 => ByteSize::MAX,
        2 => ByteSize::new(1 << 63),
        3 => ByteSize::new((1 << 48) + 1),
        4 => std::panic::panic_any("the weigher's own fault"),
        _ => ByteSize::new(WEIGHT),
    };
    let cache = Cache::<u64, Fragile>::builder(&runtime).weigher(weigher).build().unwrap();
    for key in 0..6_000 {
        let _met = catch_unwind(AssertUnwindSafe(|| cache.insert(key % 1_500, Fragile::new(key, &faults))));
        assert!(runtime.root().usage() <= ByteSize::mib(1));
    }
    assert!(cache.len() > 100);
    drop(cache);
    assert_eq!((used(&runtime), runtime.stats().retired, faults.live.load(Relaxed)), (0, ByteSize::ZERO, 0));
}

#[test]
fn without_a_budget_weights_of_any_size_are_given_back() {
    let runtime = Runtime::builder().unlimited().topology(Arc::new(Fixed::new(1))).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|key, _| ByteSize::new(u64::MAX >> (key % 64))).build();
    let cache = cache.unwrap();
    let kept = (0..100_000).filter(|&key| cache.insert(key, key).is_ok()).count();
    assert!(kept > 50_000, "{kept} were kept");
    cache.clear();
    until("all is dropped", || cache.collect() == ByteSize::ZERO && used(&runtime) == 0);
    assert_eq!((used(&runtime), runtime.stats().retired), (0, ByteSize::ZERO));
}

/// All entries together weigh more than half of what the counters can hold.
#[test]
fn more_than_2_to_the_63_bytes_are_counted_and_given_back() {
    let runtime = Runtime::builder().unlimited().topology(Arc::new(Fixed::new(1))).build().unwrap();
    let cache = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::MAX).build().unwrap();
    (0..40_000).for_each(|key| assert!(cache.insert(key, key).is_ok()));
    let bytes = cache.stats().bytes.get();
    assert!(bytes > 1 << 63, "{bytes}");
    assert_eq!(used(&runtime), bytes);
    drop(cache);
    assert_eq!(used(&runtime), 0);
    until("the entries are dropped", || runtime.stats().retired == ByteSize::ZERO);
}

#[test]
fn dropping_groups_during_inserts_leaves_exact_bytes() {
    let (runtime, faults) = (runtime(ByteSize::mib(2)), Arc::new(Faults::default()));
    let cache = Cache::<u64, Fragile>::builder(&runtime).weigher(|_, _| ByteSize::new(WEIGHT)).build().unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for writer in 0..2_u64 {
            let (runtime, cache, faults, stop) = (&runtime, &cache, &faults, &stop);
            s.spawn(move || {
                for key in 0_u64.. {
                    if stop.load(Relaxed) {
                        return;
                    }
                    let Ok(group) = runtime.group(&format!("g{}", key % 3)) else { continue };
                    // Refused if the group is just being dropped.
                    let _kept = cache.entry(writer * 1_000 + key % 700).group(&group).insert(Fragile::new(key, faults));
                }
            });
        }
        for n in 0..60 {
            if let Some(group) = runtime.find_group(&format!("g{}", n % 3)) {
                let _under_way = runtime.drop_group(&group);
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        stop.store(true, Relaxed);
    });
    until("no group is on its way", || {
        // Groups that were created again after their drop stay, with their entries.
        let each = WEIGHT + Cache::<u64, Fragile>::ENTRY_BYTES.get();
        used(&runtime) == cache.len() as u64 * each
    });
    cache.clear();
    assert_empty(&runtime, &cache, &faults);
}

/// A leaked group, error, runtime handle or clone of a value keeps no bytes charged.
#[test]
fn leaked_handles_errors_and_clones_keep_no_bytes_charged() {
    let (runtime, faults) = (runtime(ByteSize::mib(1)), Arc::new(Faults::default()));
    let cache = Cache::<u64, Fragile>::builder(&runtime).weigher(|_, _| ByteSize::new(WEIGHT)).build().unwrap();
    let group = runtime.group("tenant").unwrap();
    for key in 0..100 {
        cache.entry(key).group(&group).insert(Fragile::new(key, &faults)).unwrap();
    }
    std::mem::forget(group);
    let too_large = Cache::<u64, u64>::builder(&runtime).weigher(|_, _| ByteSize::mib(2)).build().unwrap();
    std::mem::forget(too_large.insert(1, 1).unwrap_err());
    std::mem::forget(runtime.clone());
    std::mem::forget(cache.peek(&1));
    assert_eq!(used(&runtime), 100 * (WEIGHT + Cache::<u64, Fragile>::ENTRY_BYTES.get()));
    drop(cache);
    assert_eq!((used(&runtime), runtime.stats().retired, faults.live.load(Relaxed)), (0, ByteSize::ZERO, 1));
    // The live value is the leaked clone.
}
