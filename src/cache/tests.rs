//! Tests of the cache: contents, byte counts, removal causes, tenants, and isolation of faults.
//!
//! Helpers for the files of this folder. Each runtime has its reclaimer and housekeeper threads, so
//! a test waits ([`eventually`]) for a count that they change, or takes the cache from them.
//!
//! A helper that is added must not depend on the time at which these threads run.

mod behave;
mod both_times;
mod bytes;
mod clear;
mod compaction;
mod core;
mod expired_ghosts;
mod lifetimes;
mod loads;
mod lookups;
mod manual_time;
mod model;
mod nodes;
#[path = "../../tests/common/one_processor.rs"]
mod one_processor;
mod orders;
mod overwrite;
mod reaper;
mod refresh;
mod save;
mod sweeps;
mod tenant_keys;
mod tenants;
mod threads;
mod times;
#[path = "../../tests/common/two_of_three.rs"]
mod two_of_three;

use crate::cache::DefaultHashBuilder;
use crate::runtime::RuntimeBuilder;
use crate::topology::Fixed;
use crate::{ByteSize, Cache, Runtime};
use lowwater_shrinker::{ReclaimReason, Watermarks};
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Waits until `is` returns true, which other threads of the cache, or readers of other tests, may
/// delay.
///
/// # Panics
///
/// If that takes longer than `patience`.
fn eventually(patience: Duration, what: &str, is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < patience, "{what}, within {patience:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Wakes the reclaimer, and waits until it has nothing more to do: the usage is at the mark at
/// which it stops, and has not changed for half a second, in which it may end the batch that
/// reached the mark.
fn wait_for_reclaimer(runtime: &Runtime) {
    let usage = || {
        runtime.tree().drain_stock();
        runtime.root().usage()
    };
    eventually(Duration::from_secs(60), "the reclaimer is done", || {
        let is_done = usage() <= runtime.reclaimer().watermarks().target(runtime.root().max());
        if !is_done {
            // The last insert may have left the usage below the mark at which it wakes the
            // reclaimer.
            runtime.reclaimer().wake(runtime.root(), ReclaimReason::Limit);
        }
        is_done
    });
    let (mut last, mut unchanged) = (usage(), 0);
    while unchanged < 25 {
        std::thread::sleep(Duration::from_millis(20));
        unchanged = if std::mem::replace(&mut last, usage()) == last { unchanged + 1 } else { 0 };
    }
}

/// Returns a runtime in which only inserts and charges evict: the reclaimer, which evicts when its
/// thread runs, has nothing to do. They may take long, as readers of other tests may hold removed
/// entries back, and a busy machine may suspend their thread.
fn without_reclaimer(budget: ByteSize) -> RuntimeBuilder {
    let at_the_limit = Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO };
    Runtime::builder().budget(budget).watermarks(at_the_limit).direct_time_max(Duration::from_secs(60))
}

/// Returns a cache of byte vectors in a runtime of its own with this budget, with one node.
fn cache_of(budget: ByteSize) -> Cache<u64, Vec<u8>> {
    cache_in(Runtime::builder().budget(budget))
}

/// As [`cache_of`]; an insert waits for long while readers of other tests hold removed entries
/// back.
fn patient_cache_of(budget: ByteSize) -> Cache<u64, Vec<u8>> {
    cache_in(Runtime::builder().budget(budget).direct_time_max(Duration::from_secs(60)))
}

/// Returns the topology for a test that names node 0, or counts what is on it: the node of an
/// insert must not depend on the machine.
fn one_node() -> Arc<Fixed> {
    Arc::new(Fixed::new(1))
}

fn cache_in(builder: RuntimeBuilder) -> Cache<u64, Vec<u8>> {
    hashed_cache_in(builder, DefaultHashBuilder::default())
}

fn hashed_cache_in<S>(builder: RuntimeBuilder, hasher: S) -> Cache<u64, Vec<u8>, S>
where
    S: BuildHasher + Send + Sync + 'static,
{
    let runtime = builder.topology(one_node()).build().expect("a budget and one thread");
    Cache::<u64, Vec<u8>>::builder(&runtime)
        .hasher(hasher)
        .weigher(|_, v| ByteSize::new(v.capacity() as u64))
        .build()
        .expect("a shrinker id is free")
}

fn entry_bytes() -> u64 {
    entry_bytes_of::<u64, Vec<u8>>()
}

fn entry_bytes_of<K, V>() -> u64
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    Cache::<K, V>::ENTRY_BYTES.get()
}

/// Calls `f` on a thread that stays on one processor.
fn on_one_processor<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    let bound = || {
        one_processor::stay_on_one_processor();
        f()
    };
    let ended = std::thread::scope(|s| s.spawn(bound).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A hash function with the same seed in every run.
struct Seeded(u64);

impl BuildHasher for Seeded {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}

/// Returns the median of what `f` returns for five seeds of the hash function: the seed decides
/// which ghosts are forgotten or mistaken for others. Each runs on one processor, as a thread that
/// migrates leaves charged bytes in the stock of the previous processor, so that fewer entries fit.
fn median_of_seeds<R: Ord + Send>(f: impl Fn(u64) -> R + Sync) -> R {
    let mut runs = [1, 2, 3, 4, 5].map(|seed| on_one_processor(|| f(seed)));
    runs.sort_unstable();
    let [_, _, median, _, _] = runs;
    median
}
