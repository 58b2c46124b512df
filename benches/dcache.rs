//! The cost of lookups that the dentry cache answers, against threads, cached names, groups and
//! nodes; and of a watch, against the negatives of its directory.
//!
//! | row | operation |
//! |---|---|
//! | `lookup` | a lookup of a cached name, which takes a reference: all threads look up the same 64 names |
//! | `stat` | as `lookup`, without a reference |
//! | `stat, missing` | 64 cached names that do not exist |
//! | `stat, own names` | each thread has names of its own |
//! | `first lookup` | a missing name that is not cached; its negative is in the next group, or on the next node |
//! | `control` | a loop on registers, without shared data: growth with the threads comes from the machine, not from the cache |
//!
//! Times against threads are processor time, which other load distorts less; the others are
//! wall-clock time.
//!
//! A lookup of a cached name uses neither a group nor a node: both are chosen when the dentry is
//! allocated. So the curves of `lookup` against groups and nodes should be flat: the same 1,000
//! names belong to all groups or nodes in turn. `first lookup` has the default policy, which bounds
//! the negatives of each group.
//!
//! A change must ensure that only hits are measured: names are cached before the clock starts,
//! except the missing ones, which the first iterations cache, and those of `first lookup`.
//! `ci/bench.sh` repeats the names of the benchmark groups.

mod common;
mod settings;
mod threads;

use std::hint::black_box;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

use common::cpu::ns_each;
use common::Fixture;
use criterion::measurement::WallTime;
use criterion::{AxisScale, BenchmarkGroup, BenchmarkId, Criterion, PlotConfiguration, Throughput};
use lowwater::topology::Fixed;
use lowwater::{Memcg, NodeId};
use lowwater_dcache_model::negative::{Probation, Unbounded};
use lowwater_dcache_model::Kind;

/// Names of each set.
const NAMES: usize = 64;
const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];
const GROUPS: [usize; 4] = [1, 10, 100, 1_000];
const NODES: [usize; 4] = [1, 2, 4, 8];
/// Names of the curves against groups and nodes.
const SPREAD_NAMES: usize = 1_000;
const NEGATIVES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

fn cached(fixture: &Fixture, paths: &[Vec<u8>]) {
    for path in paths {
        fixture.memory.create_path(path, Kind::File).expect("the path is valid");
        // The second lookup sets the referenced flag, which later ones find set.
        for _ in 0..2 {
            drop(fixture.mount.lookup(path).expect("memory does not fail"));
        }
    }
}

/// Returns the path for the `n`-th operation of a thread: all threads go through the set in equal
/// steps, from different starts. 7 has no common divisor with any size, so each path has its turn.
fn pick(paths: &[Vec<u8>], n: u64, thread: usize) -> &[u8] {
    &paths[(n as usize * 7 + thread * 13) % paths.len()]
}

/// Returns the mean processor time of `work` on all threads, which run at once.
fn on_processors(threads: usize, work: impl Fn(usize) + Sync) -> Duration {
    let ns = AtomicU64::new(0);
    // Relaxed: the join of the threads makes the sum visible.
    threads::timed(threads, |thread| {
        ns.fetch_add(ns_each(1, || work(thread)) as u64, Relaxed);
    });
    Duration::from_nanos(ns.into_inner() / threads as u64)
}

fn against_threads(criterion: &mut Criterion) {
    threads::print_control();
    let fixture = Fixture::new(1 << 16, Box::new(Unbounded));
    let paths: Vec<_> = (0..NAMES).map(|n| format!("/usr/include/{}/{n}.h", n % 4).into_bytes()).collect();
    let own: Vec<Vec<_>> = (0..threads::most())
        .map(|thread| (0..NAMES).map(|n| format!("/usr/own/{thread}/{n}.h").into_bytes()).collect())
        .collect();
    cached(&fixture, &paths);
    own.iter().for_each(|paths| cached(&fixture, paths));
    let missing: Vec<_> = paths.iter().map(|path| [path, &b"pp"[..]].concat()).collect();
    let mut rows = criterion.benchmark_group("dcache, threads");
    let stat = |path| drop(black_box(fixture.mount.stat(path)));
    for threads in threads::counts() {
        rows.throughput(Throughput::Elements(threads as u64));
        let mut row = |name: &str, work: &(dyn Fn(u64, usize) + Sync)| {
            rows.bench_function(BenchmarkId::new(name, threads), |b| {
                b.iter_custom(|iters| on_processors(threads, |thread| (0..iters).for_each(|n| work(n, thread))));
            });
        };
        row("lookup", &|n, thread| drop(black_box(fixture.mount.lookup(pick(&paths, n, thread)))));
        row("stat", &|n, thread| stat(pick(&paths, n, thread)));
        row("stat, missing", &|n, thread| stat(pick(&missing, n, thread)));
        row("stat, own names", &|n, thread| stat(pick(&own[thread], n, thread)));
        row("control", &|n, _| {
            let step = |x: u64, _| black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            black_box((0..NAMES).fold(n, step));
        });
    }
}

fn against_names(criterion: &mut Criterion) {
    let mut rows = criterion.benchmark_group("dcache, names");
    rows.plot_config(PlotConfiguration::default().summary_scale(AxisScale::Logarithmic));
    for size in SIZES {
        let fixture = Fixture::new(1 << 18, Box::new(Unbounded));
        let paths: Vec<_> = (0..size).map(|n| format!("/usr/include/{}/{n}.h", n % 4).into_bytes()).collect();
        cached(&fixture, &paths);
        let mut n = 0;
        rows.bench_function(BenchmarkId::new("stat", size), |b| {
            b.iter(|| {
                n += 1;
                fixture.mount.stat(pick(&paths, n, 0))
            });
        });
    }
}

/// Measures lookups that `place` puts into one of `count` groups or nodes, by their numbers.
fn in_places<'f>(
    rows: &mut BenchmarkGroup<'_, WallTime>,
    count: usize,
    fixture: &'f Fixture,
    place: impl Fn(usize) -> &'f Memcg,
) {
    let lookup = |path: &[u8], n| drop(black_box(fixture.mount.lookup_for(path, place(n))));
    let paths: Vec<_> = (0..SPREAD_NAMES).map(|n| format!("/usr/include/{}/{n}.h", n % 4).into_bytes()).collect();
    for path in &paths {
        fixture.memory.create_path(path, Kind::File).expect("the path is valid");
    }
    paths.iter().enumerate().for_each(|(n, path)| lookup(path, n));
    cached(fixture, &paths);
    let mut n = 0;
    rows.bench_function(BenchmarkId::new("lookup", count), |b| {
        b.iter(|| {
            n += 1;
            lookup(pick(&paths, n as u64, 0), n);
        });
    });
    let mut path = Vec::new();
    rows.bench_function(BenchmarkId::new("first lookup", count), |b| {
        b.iter(|| {
            n += 1;
            path.clear();
            write!(path, "/usr/include/0/missing-{n}").expect("a vector grows");
            lookup(&path, n);
        });
    });
}

fn against_groups(criterion: &mut Criterion) {
    let mut rows = criterion.benchmark_group("dcache, groups");
    rows.plot_config(PlotConfiguration::default().summary_scale(AxisScale::Logarithmic));
    for count in GROUPS {
        let fixture = Fixture::new(1 << 18, Box::new(Probation::default()));
        let root = fixture.tree.root();
        let groups: Vec<_> = (0..count).map(|n| root.create(&n.to_string()).expect("a new name")).collect();
        in_places(&mut rows, count, &fixture, |n| &groups[n % count]);
    }
}

fn against_nodes(criterion: &mut Criterion) {
    let mut rows = criterion.benchmark_group("dcache, nodes");
    rows.plot_config(PlotConfiguration::default().summary_scale(AxisScale::Logarithmic));
    for count in NODES {
        let topology = Arc::new(Fixed::new(count));
        let fixture = Fixture::on_nodes(1 << 18, Box::new(Probation::default()), &topology);
        in_places(&mut rows, count, &fixture, |n| {
            topology.set_current(NodeId::new((n % count) as u16));
            fixture.mount.group()
        });
    }
}

fn watch(criterion: &mut Criterion) {
    let mut rows = criterion.benchmark_group("dcache, negatives in a watched directory");
    rows.plot_config(PlotConfiguration::default().summary_scale(AxisScale::Logarithmic));
    for negatives in NEGATIVES {
        let fixture = Fixture::new(1 << 20, Box::new(Unbounded));
        drop(fixture.mount.mkdir(b"/d").expect("the root is empty"));
        for n in 0..100 {
            drop(fixture.mount.create(format!("/d/{n}").as_bytes()).expect("the name is free"));
        }
        for n in 0..negatives {
            drop(fixture.mount.lookup(format!("/d/missing-{n}").as_bytes()).expect("memory does not fail"));
        }
        rows.bench_function(BenchmarkId::new("watch", negatives), |b| b.iter(|| fixture.mount.watch(b"/d")));
    }
}

fn main() {
    let mut criterion = settings::criterion(10);
    against_threads(&mut criterion);
    against_names(&mut criterion);
    against_groups(&mut criterion);
    against_nodes(&mut criterion);
    watch(&mut criterion);
    criterion.final_summary();
}
