//! The cost of a shrinker's life: allocated, registered, unregistered.
//!
//! | curve | axis |
//! |---|---|
//! | `registration, threads` | threads that register shrinkers of one registry at once |
//! | `registration, shrinkers` | shrinkers that are registered already |
//! | `registration, groups` | groups of the tree |
//! | `registration, nodes` | nodes of the registry |
//!
//! The time is that of one life on one thread. It should not grow with the shrinkers, groups and
//! nodes.
//!
//! A change must ensure that each life ends before the next begins on its thread. `ci/bench.sh`
//! repeats the curves' names.

mod settings;
mod threads;

use std::sync::Arc;

use criterion::{AxisScale, BenchmarkId, Criterion, PlotConfiguration, Throughput};
use lowwater::{Count, MemcgTree, Registration, Registry, Scan, ShrinkControl, Shrinker};

const COUNTS: [usize; 4] = [10, 100, 1_000, 10_000];
const NODES: [usize; 4] = [1, 2, 4, 8];

/// A shrinker that is always empty.
struct Empty;

impl Shrinker for Empty {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        Count::Empty
    }

    fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
        Scan::Stop
    }
}

fn register(registry: &Registry, shrinker: &Arc<Empty>) -> Registration {
    registry
        .builder("bench")
        .alloc()
        .expect("a shrinker id is free")
        .register(Arc::clone(shrinker) as Arc<dyn Shrinker>)
}

fn live(registry: &Registry, shrinker: &Arc<Empty>) {
    drop(register(registry, shrinker));
}

fn against_threads(criterion: &mut Criterion) {
    threads::print_control();
    let tree = MemcgTree::default();
    let (registry, shrinker) = (Registry::new(&tree, 1), Arc::new(Empty));
    let mut rows = criterion.benchmark_group("registration, threads");
    for threads in threads::counts() {
        rows.throughput(Throughput::Elements(threads as u64));
        rows.bench_function(BenchmarkId::new("lowwater", threads), |b| {
            b.iter_custom(|lives| threads::timed(threads, |_| (0..lives).for_each(|_| live(&registry, &shrinker))));
        });
    }
}

fn against_others(criterion: &mut Criterion) {
    let shrinker = Arc::new(Empty);
    let scale = || PlotConfiguration::default().summary_scale(AxisScale::Logarithmic);
    let mut rows = criterion.benchmark_group("registration, shrinkers");
    rows.plot_config(scale());
    for count in COUNTS {
        let tree = MemcgTree::default();
        let registry = Registry::new(&tree, 1);
        let others: Vec<_> = (0..count).map(|_| register(&registry, &shrinker)).collect();
        rows.bench_function(BenchmarkId::new("lowwater", count), |b| b.iter(|| live(&registry, &shrinker)));
        drop(others);
    }
    rows.finish();
    let mut rows = criterion.benchmark_group("registration, groups");
    rows.plot_config(scale());
    for count in COUNTS {
        let tree = MemcgTree::default();
        let registry = Registry::new(&tree, 1);
        let groups: Vec<_> = (0..count).map(|n| tree.root().create(&n.to_string()).expect("a new name")).collect();
        rows.bench_function(BenchmarkId::new("lowwater", count), |b| b.iter(|| live(&registry, &shrinker)));
        drop(groups);
    }
    rows.finish();
    let mut rows = criterion.benchmark_group("registration, nodes");
    rows.plot_config(scale());
    for count in NODES {
        let tree = MemcgTree::default();
        let registry = Registry::new(&tree, count);
        rows.bench_function(BenchmarkId::new("lowwater", count), |b| b.iter(|| live(&registry, &shrinker)));
    }
}

fn main() {
    let mut criterion = settings::criterion(10);
    against_threads(&mut criterion);
    against_others(&mut criterion);
    criterion.final_summary();
}
