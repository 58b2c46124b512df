//! The cost of a get and an insert of the keyed cache, compared with a concurrent map without
//! bookkeeping or eviction, against the number of threads, of entries, of nodes, and of tenants.
//!
//! | row | operation |
//! |---|---|
//! | `get, spread` | hits on keys all over the cache |
//! | `get, hot` | hits on one key only: all threads contend for one cache line |
//! | `get, miss` | a key that is not in the cache |
//! | `insert, replace` | a value replaces another of its size |
//! | `insert, evict` | a new key when the budget is used up: each insert evicts, or uses memory that the reclaimer has freed |
//! | `mixed` | 19 hits, then a replacement; in `tenants`, whose cache is full, some gets miss |
//! | `DashMap ..` | the same on a map: the difference is the cost of a budget, an eviction order and tenants |
//!
//! The time is that of one operation on one thread, while the other threads do the same. Curves
//! against entries, nodes and tenants have one thread.
//!
//! In `nodes` each operation runs on another node than the last one. A get uses neither the node
//! nor the tenant: its curves against both show how entries lie in memory.
//!
//! A change must ensure that map and cache get the same keys in the same order, and hash them
//! alike. `ci/bench.sh` repeats the names of the benchmark groups.

mod settings;
mod threads;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use criterion::{AxisScale, BenchmarkId, Criterion, PlotConfiguration, Throughput};
use dashmap::DashMap;
use hashbrown::DefaultHashBuilder;
use lowwater::runtime::RuntimeBuilder;
use lowwater::topology::Fixed;
use lowwater::{ByteSize, Cache, NodeId, Runtime};

const KEYS: u64 = 100_000;
const VALUE_BYTES: u64 = 100;
/// Entries of the curves against the size.
const SIZES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// One operation in this many of `mixed` is an insert.
const INSERT_ONE_IN: u64 = 20;
/// Nodes of the curves against the nodes.
const NODES: [u16; 4] = [1, 2, 4, 8];
/// Groups of the curves against the tenants.
const TENANTS: [usize; 4] = [1, 10, 100, 1_000];

type Value = Arc<[u8]>;

fn value() -> Value {
    Arc::from([7; VALUE_BYTES as usize])
}

/// Returns a cache that holds keys up to `keys`, with room for twice as many.
fn cache(keys: u64) -> Cache<u64, Value> {
    let cache = empty_cache(2 * keys);
    (0..keys).for_each(|key| drop(cache.insert(key, value())));
    assert_eq!(cache.len() as u64, keys, "there is room for all keys");
    cache
}

/// Returns a cache and a map that hold keys up to `keys`. Both hash alike, because the difference
/// of two hashes would count as the cost of a cache.
fn cache_and_map(keys: u64) -> (Cache<u64, Value>, DashMap<u64, Value, DefaultHashBuilder>) {
    /// Compiles only with one type of hasher.
    fn same_hash<S>(_: &Cache<u64, Value, S>, _: &DashMap<u64, Value, S>) {}

    let (cache, map) = (cache(keys), (0..keys).map(|key| (key, value())).collect());
    same_hash(&cache, &map);
    (cache, map)
}

/// Returns a cache with room for `entries`. The 16 bytes are the two counts of an `Arc`.
fn empty_cache(entries: u64) -> Cache<u64, Value> {
    cache_of(Runtime::builder(), entries)
}

fn cache_of(runtime: RuntimeBuilder, entries: u64) -> Cache<u64, Value> {
    let entry = Cache::<u64, Value>::ENTRY_BYTES.get() + VALUE_BYTES + 16;
    let runtime = runtime.budget(ByteSize::new(entries * entry)).build().expect("a budget that is not 0");
    let builder = Cache::builder(&runtime).weigher(|_, value: &Value| ByteSize::new(value.len() as u64 + 16));
    builder.build().expect("a shrinker id is free")
}

/// Returns keys in an order that no hardware prefetcher predicts, different for each thread.
fn keys(thread: usize) -> impl Iterator<Item = u64> {
    random(thread).map(|number| number % KEYS)
}

fn random(thread: usize) -> impl Iterator<Item = u64> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(thread as u64 + 1);
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}

/// Returns whether the `n`-th operation of `mixed` is an insert.
fn is_insert(n: u64) -> bool {
    n % INSERT_ONE_IN == INSERT_ONE_IN - 1
}

/// Measures the rows about `get`, of the cache and of the map.
fn get(criterion: &mut Criterion) {
    threads::print_control();
    let (cache, map) = cache_and_map(KEYS);
    let mut rows = criterion.benchmark_group("get");
    for threads in threads::counts() {
        // Operations of all threads together, so that reports print their throughput.
        rows.throughput(Throughput::Elements(threads as u64));
        let mut row = |name: &str, get: &(dyn Fn(usize, u64) + Sync)| {
            rows.bench_function(BenchmarkId::new(name, threads), |b| {
                b.iter_custom(|iters| threads::timed(threads, |thread| get(thread, iters)));
            });
        };
        row("spread", &|thread, n| keys(thread).take(n as usize).for_each(|key| drop(black_box(cache.get(&key)))));
        row("hot", &|_, n| (0..n).for_each(|_| drop(black_box(cache.get(&1)))));
        row("miss", &|thread, n| {
            keys(thread).take(n as usize).for_each(|key| drop(black_box(cache.get(&(key + KEYS)))))
        });
        row("DashMap, spread", &|thread, n| {
            keys(thread)
                .take(n as usize)
                .for_each(|key| drop(black_box(map.get(&key).map(|value| Arc::clone(&value)))));
        });
        row("DashMap, hot", &|_, n| (0..n).for_each(|_| drop(black_box(map.get(&1).map(|value| Arc::clone(&value))))));
    }
}

/// Measures the rows about `insert`, of the cache and of the map.
fn insert(criterion: &mut Criterion) {
    let full = empty_cache(KEYS);
    let (cache, map) = cache_and_map(KEYS);
    let mut rows = criterion.benchmark_group("insert");
    let mut fresh = 0;
    for threads in threads::counts() {
        // Operations of all threads together, so that reports print their throughput.
        rows.throughput(Throughput::Elements(threads as u64));
        rows.bench_function(BenchmarkId::new("replace", threads), |b| {
            b.iter_custom(|iters| {
                threads::timed(threads, |thread| {
                    keys(thread).take(iters as usize).for_each(|key| drop(cache.insert(key, value())));
                })
            });
        });
        rows.bench_function(BenchmarkId::new("evict", threads), |b| {
            b.iter_custom(|iters| {
                let first = fresh;
                fresh += iters * threads as u64;
                threads::timed(threads, |thread| {
                    let first = first + iters * thread as u64;
                    (first..first + iters).for_each(|key| drop(full.insert(key, value())));
                })
            });
        });
        rows.bench_function(BenchmarkId::new("DashMap, replace", threads), |b| {
            b.iter_custom(|iters| {
                threads::timed(threads, |thread| {
                    keys(thread).take(iters as usize).for_each(|key| drop(map.insert(key, value())));
                })
            });
        });
    }
    let stats = full.stats();
    println!("evict: {} inserts, {} evictions, {} found no room", stats.inserts, stats.evictions, stats.rejected);
}

/// Measures gets with a few inserts among them, of the cache and of the map.
fn mixed(criterion: &mut Criterion) {
    let (cache, map) = cache_and_map(KEYS);
    let mut rows = criterion.benchmark_group("mixed");
    for threads in threads::counts() {
        rows.throughput(Throughput::Elements(threads as u64));
        let mut row = |name: &str, get: &(dyn Fn(u64) + Sync), insert: &(dyn Fn(u64) + Sync)| {
            rows.bench_function(BenchmarkId::new(name, threads), |b| {
                b.iter_custom(|iters| {
                    threads::timed(threads, |thread| {
                        for (n, key) in (0..iters).zip(keys(thread)) {
                            if is_insert(n) {
                                insert(key);
                            } else {
                                get(key);
                            }
                        }
                    })
                });
            });
        };
        row("cache", &|key| drop(black_box(cache.get(&key))), &|key| drop(cache.insert(key, value())));
        row("DashMap", &|key| drop(black_box(map.get(&key).map(|value| Arc::clone(&value)))), &|key| {
            drop(map.insert(key, value()));
        });
    }
}

/// Measures one thread's operations against the number of entries.
fn sizes(criterion: &mut Criterion) {
    let mut rows = criterion.benchmark_group("entries");
    rows.plot_config(PlotConfiguration::default().summary_scale(AxisScale::Logarithmic));
    for size in SIZES {
        let ((cache, map), full) = (cache_and_map(size), empty_cache(size));
        (0..size).for_each(|key| drop(full.insert(key, value())));
        let (mut fresh, mut operations) = (size, 0);
        let spread = || random(0).map(|number| number % size);
        let mut row = |name: &str, work: &mut dyn FnMut(u64)| {
            rows.bench_function(BenchmarkId::new(name, size), |b| {
                b.iter_custom(|iters| {
                    let begin = Instant::now();
                    spread().take(iters as usize).for_each(&mut *work);
                    begin.elapsed()
                });
            });
        };
        row("get", &mut |key| drop(black_box(cache.get(&key))));
        row("replace", &mut |key| drop(cache.insert(key, value())));
        row("evict", &mut |_| {
            fresh += 1;
            drop(full.insert(fresh, value()));
        });
        row("mixed", &mut |key| {
            operations += 1;
            if is_insert(operations) {
                drop(cache.insert(key, value()));
            } else {
                drop(black_box(cache.get(&key)));
            }
        });
        row("DashMap, get", &mut |key| drop(black_box(map.get(&key).map(|value| Arc::clone(&value)))));
        row("DashMap, replace", &mut |key| drop(map.insert(key, value())));
    }
}

/// Measures one thread's operations against the number of nodes, on each of which the operations
/// run in turn.
fn nodes(criterion: &mut Criterion) {
    let mut rows = criterion.benchmark_group("nodes");
    rows.plot_config(PlotConfiguration::default().summary_scale(AxisScale::Logarithmic));
    for count in NODES {
        let topology = Arc::new(Fixed::new(count.into()));
        let node_of = |n: u64| topology.set_current(NodeId::new((n % u64::from(count)) as u16));
        let on_nodes = |entries| cache_of(Runtime::builder().topology(Arc::clone(&topology) as _), entries);
        let (cache, full) = (on_nodes(2 * KEYS), on_nodes(KEYS));
        for key in 0..KEYS {
            node_of(key);
            drop(cache.insert(key, value()));
            drop(full.insert(key, value()));
        }
        let mut row = |name: &str, work: &mut dyn FnMut(u64, u64)| {
            let mut operations = 0;
            rows.bench_function(BenchmarkId::new(name, count), |b| {
                b.iter_custom(|iters| {
                    let begin = Instant::now();
                    for key in keys(0).take(iters as usize) {
                        operations += 1;
                        node_of(operations);
                        work(operations, key);
                    }
                    begin.elapsed()
                });
            });
        };
        row("get", &mut |_, key| drop(black_box(cache.get(&key))));
        row("replace", &mut |_, key| drop(cache.insert(key, value())));
        row("evict", &mut |n, _| drop(full.insert(KEYS + n, value())));
        row("mixed", &mut |n, key| {
            if is_insert(n) {
                drop(cache.insert(key, value()));
            } else {
                drop(black_box(cache.get(&key)));
            }
        });
    }
}

/// Measures one thread's operations against the number of tenants that share the cache, each in
/// turn.
fn tenants(criterion: &mut Criterion) {
    let mut rows = criterion.benchmark_group("tenants");
    rows.plot_config(PlotConfiguration::default().summary_scale(AxisScale::Logarithmic));
    for count in TENANTS {
        let cache = empty_cache(KEYS);
        let runtime = cache.runtime();
        let groups: Vec<_> = (0..count).map(|n| runtime.group(&n.to_string()).expect("a valid name")).collect();
        let insert = |key: u64| {
            let group = &groups[key as usize % count];
            cache.entry(key).group(group).insert(value()).expect("older entries can be evicted");
        };
        (0..2 * KEYS).for_each(insert);
        let mut fresh = 2 * KEYS;
        rows.bench_function(BenchmarkId::new("evict", count), |b| {
            b.iter(|| {
                insert(fresh);
                fresh += 1;
            });
        });
        // The newest entries that are there. Few of them leave before the gets.
        let newest = (0..fresh).rev().filter(|key| cache.contains_key(key));
        let there: Vec<u64> = newest.take(KEYS as usize / 10).collect();
        let mut reads = random(0).map(|number| there[(number % there.len() as u64) as usize]);
        let mut next = || reads.next().expect("the iterator does not end");
        let before = cache.stats();
        rows.bench_function(BenchmarkId::new("get", count), |b| {
            b.iter(|| black_box(cache.get(&next())));
        });
        let (hits, misses) = (cache.stats().hits - before.hits, cache.stats().misses - before.misses);
        assert!(misses <= hits / 100, "{count} tenants: {hits} hits, {misses} misses");
        let mut operations = 0;
        rows.bench_function(BenchmarkId::new("mixed", count), |b| {
            b.iter(|| {
                operations += 1;
                let key = next();
                if is_insert(operations) {
                    insert(key);
                } else {
                    drop(black_box(cache.get(&key)));
                }
            });
        });
    }
}

fn main() {
    let mut criterion = settings::criterion(20);
    get(&mut criterion);
    insert(&mut criterion);
    mixed(&mut criterion);
    sizes(&mut criterion);
    nodes(&mut criterion);
    tenants(&mut criterion);
    criterion.final_summary();
}
