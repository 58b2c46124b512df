//! Reloads ahead of a deadline and while stale: the caller that reloads, the value that stays, and
//! what the other calls see.
//!
//! Time is a `ManualClock`. A cache here has a time to live of ten seconds, is reloaded in the last
//! three, and keeps stale entries for five.
//!
//! Helpers for the files of this folder. A change must ensure that no helper sleeps to let time
//! pass.

mod ages;
mod changes;
mod loads;
mod model;
mod old_values;

use crate::cache::{
    CacheBuildError, CacheBuilder, Computed, ExpiryEvent, Hit, Lifetime, Op, Origin, Refresh, RejectReason,
    RemovalCause,
};
use crate::runtime::ManualClock;
use crate::{ByteSize, Cache, Runtime};
use proptest::prelude::*;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
/// The time limit of a wait, as a load that waits for itself never ends.
const PATIENCE: Duration = Duration::from_secs(60);

type Numbers = Cache<u64, u64>;
type NumbersBuilder = CacheBuilder<u64, u64, Box<dyn Fn(&u64, &u64) -> ByteSize + Send + Sync>>;

fn runtime(clock: &ManualClock) -> Runtime {
    Runtime::builder().budget(ByteSize::mib(16)).clock(clock).build().unwrap()
}

fn builder(clock: &ManualClock) -> NumbersBuilder {
    builder_in(&runtime(clock))
}

fn builder_in(runtime: &Runtime) -> NumbersBuilder {
    Cache::<u64, u64>::builder(runtime)
        .weigher(|_, value| if *value == TOO_LARGE { ByteSize::mib(20) } else { ByteSize::ZERO })
        .time_to_live(10 * SECOND)
        .refresh_ahead(3 * SECOND)
        .stale_while_revalidate(5 * SECOND)
}

/// A value that the cache rejects.
const TOO_LARGE: u64 = u64::MAX;

fn cache(clock: &ManualClock) -> Numbers {
    builder(clock).build().unwrap()
}

/// Inserts the value 1 for the key 1, advances the clock by seconds, and begins a reload.
fn begun(cache: &Numbers, clock: &ManualClock, seconds: u32) -> Refresh<u64, u64> {
    cache.insert(1, 1).unwrap();
    clock.advance(SECOND * seconds);
    ask(cache).expect("the entry is due")
}

/// Looks the key 1 up. Returns the reload if this caller is to reload the entry.
fn ask(cache: &Numbers) -> Option<Refresh<u64, u64>> {
    cache.get_or_refresh(&1).expect("a live or stale entry").refresh
}

/// Looks the key 1 up. Returns the value, whether it is stale, and whether this caller was to
/// reload it: then that reload ends here without a value.
fn seen(cache: &Numbers) -> Option<(u64, bool, bool)> {
    cache.get_or_refresh(&1).map(|Hit { value, is_stale, refresh }| (value, is_stale, refresh.is_some()))
}

/// Evicts all entries. A walk may spare an entry once for each of its uses, of which at most three
/// are counted.
fn evict(cache: &Numbers) {
    for _ in 0..10 {
        cache.runtime().drop_caches();
    }
    assert!(cache.is_empty(), "the entry was not evicted");
}

/// Inserts the value 1 for the key 1 between others, of which most are removed, so that compaction
/// copies it.
fn insert_among_others(cache: &Numbers) {
    let insert = |keys: std::ops::Range<u64>| keys.for_each(|key| assert!(cache.entry(key).forever().set(0).is_ok()));
    insert(1_000..15_000);
    cache.insert(1, 1).unwrap();
    insert(15_000..30_000);
    for key in (1_000..30_000).filter(|key| key % 100 != 0) {
        cache.remove(&key);
    }
    let slab = cache.inner.core.index.slab();
    super::eventually(PATIENCE, "removed records are freed", || slab.collect() == ByteSize::ZERO);
}

/// Lets compaction copy the entry of the key 1.
fn copy_entry(cache: &Numbers) {
    let core = &cache.inner.core;
    let address = || {
        let guard = lowwater_rcu::pin();
        let record = core.index.get(core.hash(&1), &guard, |record| record.key == 1);
        std::ptr::from_ref(record.expect("the entry is present")).addr()
    };
    let before = address();
    super::compaction::compact_all(cache);
    assert_ne!(address(), before, "the entry was not copied");
}
