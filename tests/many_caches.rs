//! Removed entries of one idle cache among thousands are dropped before an insert or a charge is
//! refused. In a process of its own, because a reader of another test would hold them back.
//!
//! A change must ensure that the parts run one after the other, in one test.

#![forbid(unsafe_code)]

use lowwater::cache::RejectReason;
use lowwater::{ByteSize, Cache, Charge, Runtime};
use std::sync::Arc;
use std::time::Duration;

/// More than ten sweeps visit (`VISITS_MAX` in `src/runtime/retired.rs`).
const CACHES: usize = 4_000;
const BUDGET: ByteSize = ByteSize::mib(64);
const VALUE: ByteSize = ByteSize::kib(64);
/// The pause after sweeps that made no room for a charge, as in `src/runtime/retired.rs`.
const SEARCH_PAUSE: Duration = Duration::from_millis(1);
/// The entries of the idle cache: 60 MiB.
const REMOVED: u64 = 960;

fn runtime() -> (Runtime, Vec<Cache<u64, u64>>) {
    let runtime = Runtime::builder().budget(BUDGET).build().unwrap();
    let cache = |_| Cache::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    let others = (0..CACHES).map(cache).collect();
    (runtime, others)
}

/// Removes all entries of a cache while this thread is pinned, and calls `then` before it is not.
fn remove_all<V: Clone + Send + Sync + 'static>(cache: &Cache<u64, V>, then: impl FnOnce()) {
    let _pinned = cache.pin();
    assert!((0..REMOVED).all(|key| cache.remove(&key).is_some()));
    then();
}

#[test]
fn an_idle_cache_among_thousands_refuses_no_insert_and_no_charge() {
    let (runtime, others) = runtime();
    let cache = || Cache::<u64, u64>::builder(&runtime).weigher(|_, _| VALUE).build().unwrap();
    let (idle, next) = (cache(), cache());
    assert!((0..REMOVED).all(|key| idle.insert(key, key).is_ok()));
    let first_refused = |entries| (0..entries).find_map(|key| next.insert(key, key).err());
    remove_all(&idle, || {
        let error = first_refused(REMOVED).expect("the bound");
        assert!(matches!(error.reason, RejectReason::HeldByReaders { .. }), "{error:?}");
    });
    // So few bytes that the reclaimer, which is a reader, too, sleeps.
    let refused = first_refused(REMOVED / 2);
    assert!(refused.is_none(), "{refused:?}");
    drop((runtime, others));

    let (runtime, others) = self::runtime();
    let idle = Cache::<u64, Arc<Charge>>::builder(&runtime).weigher(|_, _| ByteSize::ZERO).build().unwrap();
    for key in 0..REMOVED {
        idle.insert(key, Arc::new(runtime.charge_guard(runtime.root(), VALUE).unwrap())).unwrap();
    }
    remove_all(&idle, || {
        assert!(runtime.charge_guard(runtime.root(), ByteSize::mib(8)).is_err(), "held by this reader");
    });
    std::thread::sleep(SEARCH_PAUSE);
    let charge = runtime.charge_guard(runtime.root(), ByteSize::mib(8));
    assert!(charge.is_ok(), "{charge:?}");
    drop(others);
}
