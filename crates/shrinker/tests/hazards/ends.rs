//! Numbers at their limits, and groups, nodes and shrinkers that do not exist.
//!
//! Sums must saturate and every call must return.

use crate::common::{one_shelf, shelf_on, Shelf};
use crate::hazard::within;
use crate::tree_and_registry;
use lowwater_lru_core::{ByteSize, MemcgId, MemcgTree, NodeId};
use lowwater_shrinker::baseline::FullScan;
use lowwater_shrinker::{
    Caches, Count, Job, Reclaim, Registry, RegistryConfig, Scan, ScanError, ScanRequest, Select, Step, Work,
};
use std::sync::Arc;

const N0: NodeId = NodeId::ZERO;

#[test]
fn a_shrinker_with_extreme_numbers_terminates() {
    within("shrinkers", || {
        let ends = [0, 1, u64::MAX];
        for (n, batch) in ends.into_iter().enumerate() {
            for counted in ends {
                for scanned in ends {
                    let tree = MemcgTree::new(0);
                    // Bounds on objects, here and in each `Work`, and batches of at least 1,000: a
                    // shrinker that counts `u64::MAX` objects and scans one at a time would be
                    // called a million times.
                    let config = RegistryConfig::new(1).direct_scan_max(1000).direct_time_max_ns(counted);
                    let registry = Registry::with_config(&tree, config);
                    let shelf = Arc::new(Shelf::new());
                    let builder = registry.builder("").batch(batch.max(1000)).seeks([0, 1, u32::MAX][n]);
                    let registration = shelf.register(builder.alloc().unwrap());
                    shelf.add(tree.root(), N0, 1);
                    let freed = move |sc: &mut lowwater_shrinker::ShrinkControl<'_>| {
                        sc.set_nr_scanned(scanned);
                        Some(Scan::Freed(scanned))
                    };
                    assert!(shelf.scan.set(Box::new(freed)).is_ok());
                    assert!(shelf.count.set(Box::new(move |_| Some(Count::Objects(counted)))).is_ok());
                    for priority in [0, 12, 63, 64, 255] {
                        let mut work = Work::objects(10_000);
                        registry.shrink(tree.root(), N0, priority, Reclaim::FOREGROUND, &mut work);
                        registry.shrink(tree.root(), N0, priority, Reclaim::KSWAPD, &mut work);
                    }
                    registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false);
                    let _ = (registry.survey(), registry.owed(tree.root(), N0, registration.id()));
                    for command in ["0 0 18446744073709551615", "0 0 0", "0 0 1"] {
                        registry.debugfs_scan(registration.id(), command).unwrap();
                    }
                    registration.unregister().unwrap();
                }
            }
        }
    });
}

#[test]
fn maximal_requests_saturate() {
    within("a shrinker that holds everything there is", || {
        let tree = MemcgTree::new(0);
        let registry = Registry::new(&tree, 1);
        let shelf = Arc::new(Shelf::new());
        let registration = shelf.register(registry.builder("all").batch(u64::MAX).alloc().unwrap());
        shelf.add(tree.root(), N0, 1);
        let looks_at_one = |sc: &mut lowwater_shrinker::ShrinkControl<'_>| {
            sc.set_nr_scanned(1);
            Some(Scan::Freed(0))
        };
        assert!(shelf.scan.set(Box::new(looks_at_one)).is_ok());
        assert!(shelf.count.set(Box::new(|_| Some(Count::Objects(u64::MAX)))).is_ok());
        for _ in 0..2 {
            let calls = std::cell::Cell::new(0);
            let enough = || calls.replace(calls.get() + 1) > 9;
            let mut work = Work::unlimited().while_not(&enough);
            assert!(registry.shrink(tree.root(), N0, 0, Reclaim::KSWAPD, &mut work).scanned > 2);
        }
        assert_eq!(registration.stats().requested, u64::MAX);
        registration.unregister().unwrap();
    });
}

#[test]
fn unknown_flags_and_ids_have_no_effect() {
    within("flags", || {
        let (tree, registry, shelf, registration) = one_shelf();
        shelf.add(tree.root(), N0, 100);
        // Ids of another registry, which has more.
        let (_other_tree, other) = tree_and_registry();
        let first = other.builder("0").alloc().unwrap();
        let stranger = other.builder("1").alloc().unwrap();
        let id = stranger.id();
        assert!(registry.debugfs_count(id).is_none());
        assert_eq!(registry.debugfs_scan(id, "0 0 1"), Err(ScanError::NoShrinker));
        assert_eq!(registry.owed(tree.root(), N0, id), 0);
        assert_eq!(registry.drop_selected(&Select::all().shrinker(id)), 0);
        drop((first, stranger));

        assert_eq!(registry.drop_selected(&Select::all().caches(Caches::empty())), 0);
        assert_eq!(registry.drop_selected(&Select::all().caches(Caches::from_bits_retain(0xf0))), 0);
        let odd = Reclaim::from_bits_retain(0xff);
        shelf.add(tree.root(), N0, 1000);
        assert!(registry.shrink(tree.root(), N0, 0, odd, &mut Work::objects(10)).freed > 0);
        assert!(registry.direct_reclaim(tree.root(), Reclaim::empty(), &|| false).freed > 0);
        assert!(registry.drop_selected(&Select::all().caches(Caches::from_bits_retain(0xff))) > 0);
        assert_eq!(registration.id().get(), 0);
        // A group id that no group has.
        let request = ScanRequest { memcg: MemcgId::new(u32::MAX), node: u16::MAX, objects: u64::MAX };
        assert_eq!(ScanRequest::parse("99999999999 99999999 18446744073709551615"), Ok(request));
        assert_eq!(registry.debugfs_scan(registration.id(), "99999999999 0 1"), Err(ScanError::NoGroup(request.memcg)));
    });
}

#[test]
fn missing_nodes_groups_and_shrinkers_are_empty() {
    within("parts", || {
        let (tree, registry, shelf, registration) = shelf_on(2, Shelf::new());
        let beyond = NodeId::new(u16::MAX);
        // A report for a node that does not exist, from a list or a topology that lies.
        shelf.add(tree.root(), beyond, 7);
        shelf.add(tree.root(), N0, 100);
        assert_eq!(registry.debugfs_count(registration.id()).unwrap(), "0 100 0\n");
        let _ = (registry.snapshot(), registry.survey(), registry.footprint());
        for node in [NodeId::new(2), beyond] {
            let mut work = Work::unlimited();
            registry.shrink(tree.root(), node, 0, Reclaim::KSWAPD, &mut work);
            FullScan::new(&registry).shrink(tree.root(), node, 0, Reclaim::KSWAPD, &mut work);
            registry.drop_selected(&Select::all().node(node));
            registry.reclaim_selected(&Select::all().node(node), ByteSize::MAX);
            registry.pay_debts(tree.root(), node, &mut work);
            assert_eq!(registry.owed(tree.root(), node, registration.id()), 0);
            let mut job = Job::new(tree.root().clone(), ByteSize::ZERO);
            while matches!(job.step(&registry, node, 10), Step::Again | Step::BackOff) {}
        }
        let gone = tree.root().create("gone").unwrap();
        gone.offline().unwrap();
        let mut work = Work::objects(0);
        assert_eq!(registry.shrink(&gone, N0, 0, Reclaim::KSWAPD, &mut work).callbacks, 0);
        assert_eq!(FullScan::new(&registry).shrink(&gone, N0, 0, Reclaim::KSWAPD, &mut work).callbacks, 0);
        registry.drop_caches();
        assert_eq!(shelf.len(tree.root(), N0), 0);
        registration.unregister().unwrap();
        assert!(registry.snapshot().pairs.is_empty(), "nothing is left of the node that is not there");
    });
}
