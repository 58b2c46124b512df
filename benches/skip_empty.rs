//! The cost of a pass when most groups and caches are empty. It should depend on the non-empty
//! pairs, not on all that exist.
//!
//! N groups, M caches, and a few (group, cache) pairs with ten objects each. The objects are in
//! use, so a pass scans them and frees none, and the next pass finds the same state.
//!
//! | row | implementation |
//! |---|---|
//! | `pass` | [`Registry::shrink`], which follows the map of non-empty pairs |
//! | `every` | the baseline, [`FullScan`], which counts each cache for each group: N x M calls |

use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use lowwater::{
    linked, Count, Links, ListLru, Memcg, MemcgTree, NodeId, Reclaim, Registration, Registry, Scan, ShrinkControl,
    Shrinker,
};
use lowwater_shrinker::baseline::FullScan;
use lowwater_shrinker::Work;

/// Objects of each non-empty pair.
const OBJECTS: usize = 10;
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
    registry: Registry,
    _groups: Vec<Memcg>,
    _tree: MemcgTree,
}

/// Creates a world whose non-empty pairs are spread over groups and caches.
fn world(groups: usize, caches: usize, live: usize) -> World {
    let tree = MemcgTree::default();
    let groups: Vec<_> = (0..groups).map(|n| tree.root().create(&n.to_string()).expect("a new name")).collect();
    let registry = Registry::new(&tree, 1);
    let (pools, registrations): (Vec<_>, _) = (0..caches)
        .map(|n| {
            let prepared = registry.builder(&n.to_string()).alloc().expect("there are ids");
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
    World { _registrations: registrations, registry, _groups: groups, _tree: tree }
}

fn skip_empty(criterion: &mut Criterion) {
    let mut rows = criterion.benchmark_group("pass over what is there");
    for (groups, caches, live) in [(100, 10, 3), (1000, 100, 3), (10_000, 100, 3), (10_000, 100, 1000)] {
        let world = world(groups, caches, live);
        let shape = format!("{groups} groups x {caches} caches, {live} pairs hold something");
        let root = world.registry.root();
        let visited = world.registry.shrink(root, NodeId::ZERO, PRIORITY, Reclaim::KSWAPD, &mut Work::unlimited());
        assert_eq!((visited.callbacks, visited.freed), (live as u64, 0), "only non-empty pairs are scanned");
        rows.bench_function(BenchmarkId::new("pass", &shape), |b| {
            b.iter(|| world.registry.shrink(root, NodeId::ZERO, PRIORITY, Reclaim::KSWAPD, &mut Work::unlimited()));
        });
        // A million calls per pass are enough to show the trend.
        if groups * caches <= 1_000_000 {
            rows.bench_function(BenchmarkId::new("every", &shape), |b| {
                let every = FullScan::new(&world.registry);
                b.iter(|| every.shrink(root, NodeId::ZERO, PRIORITY, Reclaim::KSWAPD, &mut Work::unlimited()));
            });
        }
    }
}

fn main() {
    let criterion = Criterion::default().sample_size(10);
    let short = criterion.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    let mut criterion = short.configure_from_args();
    skip_empty(&mut criterion);
    criterion.final_summary();
}
