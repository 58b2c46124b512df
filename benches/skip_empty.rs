//! The cost of a pass when most groups and caches are empty. It should depend on the non-empty
//! pairs, not on all that exist.
//!
//! Three curves: against the number of groups, of non-empty pairs, and of nodes. Two more against
//! the number of threads: `pass, threads`, in which each thread makes whole passes, and `map,
//! threads`, in which each makes pairs of its own non-empty and empty again, in one map of
//! non-empty pairs.
//!
//! N groups, 100 caches, and a few (group, cache) pairs with ten objects each. The objects are in
//! use, so a pass scans them and frees none, and the next pass finds the same state.
//!
//! | row | implementation |
//! |---|---|
//! | `pass` | [`Registry::shrink`], which follows the map of non-empty pairs |
//! | `every` | the baseline, [`FullScan`], which counts each cache for each group: N x 100 calls |
//!
//! A change must ensure that both rows of a curve have the same non-empty pairs. `ci/bench.sh`
//! repeats the curves' names; `ci/measured/shrinkers.py` repeats the names of two curves and of the
//! rows, and reads the numbers of groups, caches and pairs from this file.

mod settings;
mod threads;

use std::sync::Arc;

use criterion::{AxisScale, BenchmarkId, Criterion, PlotConfiguration, Throughput};
use lowwater::{
    linked, Count, Links, ListLru, Memcg, MemcgTree, NodeId, Reclaim, Registration, Registry, Scan, ShrinkControl,
    Shrinker,
};
use lowwater_shrinker::baseline::FullScan;
use lowwater_shrinker::Work;

/// Objects of each non-empty pair.
const OBJECTS: usize = 10;
/// Groups where they do not vary.
const GROUPS: usize = 10_000;
/// Caches of all worlds.
const CACHES: usize = 100;
/// Non-empty pairs where they do not vary.
const LIVE: usize = 3;
/// The priority at which a pass scans every pair.
const PRIORITY: u8 = 0;

struct Item {
    links: Links,
}

linked!(impl[] for Item { links, handle: Arc<Item> });

struct Pool(ListLru<Item>);

impl Shrinker for Pool {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        match self.0.count_one(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let mut left = sc.nr_to_scan();
        self.0.walk_one(sc.memcg(), sc.node(), &mut left, |it| it.rotate());
        sc.set_nr_scanned(sc.nr_to_scan() - left);
        Scan::Freed(0)
    }
}

/// Fields are dropped in this order: the registrations before the registry.
struct World {
    _registrations: Vec<Registration>,
    pools: Vec<Arc<Pool>>,
    registry: Registry,
    groups: Vec<Memcg>,
    _tree: MemcgTree,
}

/// Creates a world whose non-empty pairs are spread over groups and caches, on the first node.
fn world(groups: usize, caches: usize, live: usize, nodes: usize) -> World {
    let tree = MemcgTree::default();
    let groups: Vec<_> = (0..groups).map(|n| tree.root().create(&n.to_string()).expect("a new name")).collect();
    let registry = Registry::new(&tree, nodes);
    let (pools, registrations): (Vec<_>, _) = (0..caches)
        .map(|n| {
            let prepared = registry.builder(&n.to_string()).alloc().expect("a shrinker id is free");
            let pool = Arc::new(Pool(ListLru::with_occupancy(prepared.occupancy())));
            (Arc::clone(&pool), prepared.register(pool))
        })
        .unzip();
    for n in 0..live {
        let group = &groups[n * groups.len() / live];
        for _ in 0..OBJECTS {
            let item = Arc::new(Item { links: Links::new() });
            pools[n % caches].0.add(item, group, NodeId::ZERO).expect("a new object is on no list");
        }
    }
    World { _registrations: registrations, pools, registry, groups, _tree: tree }
}

/// Registers the rows of one curve: a world for each value on its axis.
fn curve(criterion: &mut Criterion, name: &str, worlds: &[(usize, World)], live: impl Fn(usize) -> usize) {
    let mut rows = criterion.benchmark_group(name);
    rows.plot_config(PlotConfiguration::default().summary_scale(AxisScale::Logarithmic));
    for (value, world) in worlds {
        let root = world.registry.root();
        let pass = || world.registry.shrink(root, NodeId::ZERO, PRIORITY, Reclaim::KSWAPD, &mut Work::unlimited());
        let visited = pass();
        assert_eq!((visited.callbacks, visited.freed), (live(*value) as u64, 0), "only non-empty pairs are scanned");
        rows.bench_function(BenchmarkId::new("pass", value), |b| b.iter(pass));
        rows.bench_function(BenchmarkId::new("every", value), |b| {
            let every = FullScan::new(&world.registry);
            b.iter(|| every.shrink(root, NodeId::ZERO, PRIORITY, Reclaim::KSWAPD, &mut Work::unlimited()));
        });
    }
}

fn skip_empty(criterion: &mut Criterion) {
    // A million calls per pass of the baseline are enough to show the trend.
    let groups = [100, 1_000, 10_000].map(|groups| (groups, world(groups, CACHES, LIVE, 1)));
    curve(criterion, "pass, groups", &groups, |_| LIVE);
    drop(groups);
    let pairs = [1, 10, 100, 1_000].map(|live| (live, world(GROUPS, CACHES, live, 1)));
    curve(criterion, "pass, non-empty pairs", &pairs, |live| live);
    drop(pairs);
    let nodes = [1, 2, 4, 8].map(|nodes| (nodes, world(1_000, CACHES, LIVE, nodes)));
    curve(criterion, "pass, nodes", &nodes, |_| LIVE);
}

/// Measures passes that several threads make at once, and changes to the map that they make at
/// once.
fn against_threads(criterion: &mut Criterion) {
    threads::print_control();
    let world = world(1_000, CACHES, LIVE, 1);
    let mut rows = criterion.benchmark_group("pass, threads");
    for threads in threads::counts() {
        let root = world.registry.root();
        let pass = || world.registry.shrink(root, NodeId::ZERO, PRIORITY, Reclaim::KSWAPD, &mut Work::unlimited());
        rows.throughput(Throughput::Elements(threads as u64));
        rows.bench_function(BenchmarkId::new("lowwater", threads), |b| {
            b.iter_custom(|passes| threads::timed(threads, |_| (0..passes).for_each(|_| _ = pass())));
        });
    }
    rows.finish();
    let mut rows = criterion.benchmark_group("map, threads");
    for threads in threads::counts() {
        rows.throughput(Throughput::Elements(threads as u64));
        rows.bench_function(BenchmarkId::new("lowwater", threads), |b| {
            b.iter_custom(|times| threads::timed(threads, |thread| fill_and_empty(&world, thread, times)));
        });
    }
}

/// Adds an object to an empty list and takes it off, `times` times. No list is used by two threads,
/// if there are no more than 64 of them: each uses every 64th group.
fn fill_and_empty(world: &World, thread: usize, times: u64) {
    let item = Arc::new(Item { links: Links::new() });
    let lists = world.pools.iter().skip(LIVE).cycle();
    for (pool, group) in lists.zip(world.groups.iter().skip(thread).step_by(64).cycle()).take(times as usize) {
        pool.0.add(Arc::clone(&item), group, NodeId::ZERO).expect("a deleted item is on no list");
        pool.0.del(&item).expect("an added item is on the list");
    }
}

fn main() {
    let mut criterion = settings::criterion(10);
    skip_empty(&mut criterion);
    against_threads(&mut criterion);
    criterion.final_summary();
}
