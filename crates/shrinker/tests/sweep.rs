//! Sweeps free the lists that became empty without reclaim, and clear their bits in the map of the
//! registry, so that a group that was used once costs no memory until its end.
//!
//! Afterwards the footprints must be those from before, to the byte (the row "the same, empty again
//! and idle" of the cost table in docs/DESIGN.md). Numbers such as S25 are those of
//! docs/INVARIANTS.md.

#![cfg(all(feature = "std", not(lowwater_loom)))]

use std::sync::Arc;
use std::time::{Duration, Instant};

use lowwater_lru_core::list_lru::Swept;
use lowwater_lru_core::topology::Fixed;
use lowwater_lru_core::{linked, ByteSize, Isolated, Links, ListLru, MemcgTree, NodeId};
use lowwater_shrinker::{Count, Reclaimer, Registration, Registry, RegistryConfig, Scan, ShrinkControl, Shrinker};
use lowwater_shrinker::{ReclaimReason, Watermarks};

const N0: NodeId = NodeId::ZERO;

struct Page(Links);

linked!(impl[] for Page { 0, handle: Arc<Page> });

fn page() -> Arc<Page> {
    Arc::new(Page(Links::new()))
}

struct Pages(ListLru<Page>);

impl Shrinker for Pages {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        match self.0.count_one(sc.memcg(), sc.node()) {
            0 => Count::Empty,
            n => Count::Objects(n),
        }
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let (mut left, mut unused) = (sc.nr_to_scan(), Isolated::new());
        self.0.walk_one(sc.memcg(), sc.node(), &mut left, |it| it.isolate(&mut unused));
        sc.set_nr_scanned(sc.nr_to_scan() - left);
        Scan::Freed(unused.count() as u64)
    }
}

fn pages(registry: &Registry) -> (Arc<Pages>, Registration) {
    let prepared = registry.builder("pages").alloc().unwrap();
    let pages = Arc::new(Pages(ListLru::with_occupancy(prepared.occupancy())));
    let registration = prepared.register(pages.clone());
    (pages, registration)
}

#[test]
fn s25_lists_that_emptied_without_pressure_leave_neither_lists_nor_bits() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    let (pages, _registration) = pages(&registry);
    let bytes = || (registry.footprint(), pages.0.footprint());
    let before = bytes();
    let groups: Vec<_> = (0..100).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    let objects: Vec<_> = groups.iter().map(|group| (page(), group)).collect();
    for (object, group) in &objects {
        pages.0.add(object.clone(), group, N0).unwrap();
    }
    assert_eq!(registry.sweep().given_back, 0);
    for (object, _) in &objects[1..] {
        pages.0.del(object).unwrap();
    }
    while registry.sweep() != Swept::default() {}
    assert_eq!(
        (pages.0.pairs(), registry.snapshot().live_pairs),
        (2, 1),
        "the list with the one object, and that of the root, its ancestor"
    );
    pages.0.del(&objects[0].0).unwrap();
    while registry.sweep() != Swept::default() {}
    assert_eq!((pages.0.pairs(), registry.snapshot().live_pairs), (0, 0));
    assert_eq!(bytes(), before, "to the byte");
    pages.0.add(page(), &groups[3], N0).unwrap();
    assert_eq!(registry.drop_caches(), 1, "an object that is added after a sweep is found");
}

#[test]
fn a_reclaimer_takes_every_time_between_sweeps() {
    for time in [Duration::ZERO, Duration::MAX] {
        let tree = MemcgTree::new(0);
        let topology = Arc::new(Fixed::new(1));
        let config = RegistryConfig::with_topology(topology.clone()).sweep_every(time);
        let registry = Registry::with_config(&tree, config);
        let reclaimer = Reclaimer::start(&registry, topology, Watermarks::for_budget(ByteSize::mib(1))).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while reclaimer.stats()[0].wakeups == 0 {
            assert!(Instant::now() < until, "the thread does not work with {time:?}");
            reclaimer.wake(tree.root(), ReclaimReason::Manual(ByteSize::ZERO));
            std::thread::sleep(Duration::from_millis(1));
        }
        // Panics if a thread has panicked.
        drop(reclaimer);
    }
}

#[test]
fn an_idle_reclaimer_sweeps() {
    let tree = MemcgTree::new(0);
    let topology = Arc::new(Fixed::new(2));
    let config = RegistryConfig::with_topology(topology.clone()).sweep_every(Duration::from_millis(1));
    let registry = Registry::with_config(&tree, config);
    let (pages, _registration) = pages(&registry);
    let before = (registry.footprint(), pages.0.footprint());
    let _reclaimer = Reclaimer::start(&registry, topology, Watermarks::for_budget(ByteSize::mib(1))).unwrap();
    let group = tree.root().create("g").unwrap();
    let object = page();
    pages.0.add(object.clone(), &group, NodeId::new(1)).unwrap();
    pages.0.del(&object).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while (registry.footprint(), pages.0.footprint()) != before {
        assert!(Instant::now() < until, "{} lists are still there", pages.0.pairs());
        std::thread::sleep(Duration::from_millis(1));
    }
}
