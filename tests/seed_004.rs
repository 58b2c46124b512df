//! Dropping caches, through public names: `drop_caches` calls the shrinkers that hold objects, and
//! no others. The report (2018, docs/SEEDS.md) had 4,000 groups and 4,000 mounts, most pairs empty.
//!
//! Groups stand for containers, shrinkers for mounts; the lists are real. Calls are counted, which
//! do not depend on the machine: each live pair is called once to free its objects and once more to
//! find that it is empty, then none is; the baseline calls every pair. `examples/drop_caches.rs`
//! and `benches/skip_empty.rs` have the times of 4,000 x 4,000.
//!
//! A change must ensure that calls are counted and not timed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use lowwater::{
    linked, Count, Isolated, Links, ListLru, Memcg, MemcgTree, NodeId, Reclaim, Registration, Registry, Scan,
    ShrinkControl, Shrinker,
};
use lowwater_shrinker::baseline::FullScan;
use lowwater_shrinker::Work;

struct Inode {
    links: Links,
}
linked!(impl[] for Inode { links, handle: Box<Inode> });

struct Mount {
    inodes: ListLru<Inode>,
    calls: Arc<AtomicU64>,
}

impl Mount {
    fn add(&self, memcg: &Memcg, node: u16) {
        self.inodes.add(Box::new(Inode { links: Links::new() }), memcg, NodeId::new(node)).unwrap();
    }
}

impl Shrinker for Mount {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        self.calls.fetch_add(1, Relaxed);
        match self.inodes.count_one(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let mut unused = Isolated::new();
        let mut left = sc.nr_to_scan();
        self.inodes.walk_one(sc.memcg(), sc.node(), &mut left, |inode| inode.isolate(&mut unused));
        sc.set_nr_scanned(sc.nr_to_scan() - left);
        Scan::Freed(unused.len() as u64)
    }
}

struct World {
    registry: Registry,
    groups: Vec<Memcg>,
    mounts: Vec<(Arc<Mount>, Registration)>,
    calls: Arc<AtomicU64>,
    _tree: MemcgTree,
}

impl World {
    fn new(groups: usize, mounts: usize, nodes: usize) -> Self {
        let tree = MemcgTree::default();
        let registry = Registry::new(&tree, nodes);
        let container = tree.root().create("ct").unwrap();
        let groups = (0..groups).map(|n| container.create(&n.to_string()).unwrap()).collect();
        let calls = Arc::new(AtomicU64::new(0));
        let mount = |_| {
            let prepared = registry.builder("sb-tmpfs").alloc().unwrap();
            let inodes = ListLru::with_occupancy(prepared.occupancy());
            let mount = Arc::new(Mount { inodes, calls: Arc::clone(&calls) });
            let registration = prepared.register(Arc::clone(&mount) as Arc<dyn Shrinker>);
            (mount, registration)
        };
        let mounts = (0..mounts).map(mount).collect();
        Self { registry, groups, mounts, calls, _tree: tree }
    }

    /// Returns the calls that `act` makes, and its result.
    fn calls<R>(&self, act: impl FnOnce(&Registry) -> R) -> (u64, R) {
        let before = self.calls.load(Relaxed);
        let answer = act(&self.registry);
        (self.calls.load(Relaxed) - before, answer)
    }
}

#[test]
fn drop_caches_calls_only_the_live_pairs() {
    // A quarter of the report's 4,000 groups and mounts: a million possible pairs, a thousand live
    // ones.
    let world = World::new(1000, 1000, 1);
    for (n, group) in world.groups.iter().enumerate() {
        world.mounts[n].0.add(group, 0);
    }
    let (calls, freed) = world.calls(Registry::drop_caches);
    assert_eq!((calls, freed), (2000, 1000), "each pair once, and once more to make sure");
    for _ in 2..=5 {
        assert_eq!(world.calls(Registry::drop_caches), (0, 0), "nothing is left, and no shrinker is called");
    }
    let (calls, freed) = world.calls(|registry| FullScan::new(registry).drop_caches());
    // The root and the container as well.
    assert_eq!((calls, freed), (1002 * 1000, 0));
}

#[test]
fn the_calls_of_three_pairs_do_not_depend_on_the_possible_pairs() {
    for size in [10, 100, 2000] {
        for nodes in [1, 2, 4] {
            let world = World::new(size, size, nodes);
            for n in 0..3 {
                world.mounts[n * (size / 4)].0.add(&world.groups[n * (size / 3)], (n % nodes) as u16);
            }
            let priority = |registry: &Registry| {
                let work = &mut Work::unlimited();
                (0..nodes)
                    .map(|n| {
                        registry.shrink(registry.root(), NodeId::new(n as u16), 12, Reclaim::KSWAPD, work).callbacks
                    })
                    .sum()
            };
            // A light pass counts the objects of each pair, and scans none: one object is too few
            // at this priority until later passes have added up.
            assert_eq!(world.calls(priority), (3, 3), "{size} x {size} on {nodes}");
            assert_eq!(world.calls(Registry::drop_caches), (6, 3), "{size} x {size} on {nodes}");
            assert_eq!(world.calls(Registry::drop_caches), (0, 0), "{size} x {size} on {nodes}");
            assert_eq!(world.registry.snapshot().live_pairs, 0);
        }
    }
}

#[test]
fn a_refilled_pair_is_called_again() {
    let world = World::new(50, 50, 2);
    for round in 0..4 {
        world.mounts[round].0.add(&world.groups[7], 1);
        assert_eq!(world.calls(Registry::drop_caches), (2, 1));
    }
}

#[test]
fn a_dead_groups_objects_are_dropped_with_its_parent() {
    let world = World::new(20, 20, 1);
    for group in &world.groups {
        world.mounts[3].0.add(group, 0);
        group.offline().unwrap();
    }
    // All objects are the container's now: one pair.
    assert_eq!(world.calls(Registry::drop_caches), (2, 20));
}
