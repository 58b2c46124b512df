//! Pairs, reports and choices against an allocator that fails: nothing panics, nothing is lost, and where there is memory again
//! all goes on.

#![cfg(all(feature = "std", not(lowwater_loom), not(lowwater_epoch)))]

#[path = "../../base/tests/faulty/mod.rs"]
mod faulty;

use faulty::refused_after;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use lowwater_lru_core::topology::{Fixed, Topology};
use lowwater_lru_core::{ByteSize, MemcgTree, NodeId};
use lowwater_shrinker::{
    Count, Miss, PairHint, Reclaim, Registry, RegistryConfig, Scan, ShrinkControl, Shrinker, ShrinkerAllocError, Work,
};

const N0: NodeId = NodeId::ZERO;

/// Holds as many objects for each group.
struct Pool(AtomicU64);

impl Shrinker for Pool {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        Count::Objects(self.0.load(Relaxed))
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        let freed = self.0.load(Relaxed).min(sc.nr_to_scan());
        self.0.fetch_sub(freed, Relaxed);
        Scan::Freed(freed)
    }
}

#[test]
fn each_allocation_of_a_registry_that_chooses_by_utility_may_fail() {
    let tree = MemcgTree::new(0);
    drop(Registry::new(&tree, 1));
    let topology: Arc<dyn Topology> = Arc::new(Fixed::new(1));
    for nth in 0.. {
        let (made, refused) = refused_after(nth, || {
            let config = RegistryConfig::try_with_topology(Arc::clone(&topology))?.by_utility(true);
            Registry::try_with_config(&tree, config)
        });
        match made {
            Ok(_) if !refused => break,
            Ok(_) => panic!("allocation {nth} was refused, and not missed"),
            Err(error) => assert_eq!((error, refused), (ShrinkerAllocError::NoMemory, true)),
        }
    }
}

/// The first pair of a table, the first tallies, and those that make a table grow.
#[test]
fn each_allocation_of_a_pair_and_its_tallies_may_fail() {
    let tree = MemcgTree::new(0);
    tree.root().set_max(ByteSize::mib(1));
    let groups: Vec<_> = (0..70).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    for pairs in [1, 2, 70] {
        for nth in 0..1_000 {
            let registry = Registry::with_config(&tree, RegistryConfig::new(1).by_utility(true));
            let prepared = registry.builder("pool").reports_misses(true).alloc().unwrap();
            let (reporter, occupancy) = (prepared.miss_reporter(), prepared.occupancy());
            let registration = prepared.register(Arc::new(Pool(AtomicU64::new(1_000_000))));
            let last = &groups[pairs - 1];
            groups[..pairs - 1].iter().for_each(|group| occupancy.occupied(group, N0));
            let choose = || {
                let mut work = Work::one_batch(64);
                registry.shrink_least_useful(tree.root(), None, Reclaim::FOREGROUND, &mut work).freed
            };
            let (_, refused) = refused_after(nth, || {
                occupancy.occupied(last, N0);
                reporter.miss(last, Miss::at(ByteSize::ZERO));
                choose()
            });
            // With memory again nothing is missing: a pair that was left out is found by a pass.
            occupancy.occupied(last, N0);
            reporter.miss(last, Miss::at(ByteSize::ZERO));
            let freed = choose();
            let passed = registry.shrink(tree.root(), N0, 6, Reclaim::FOREGROUND, &mut Work::objects(1_000)).freed;
            assert!(freed > 0 || passed > 0, "{pairs} pairs, allocation {nth}");
            assert_eq!(registration.stats().panics, 0);
            drop((registration, registry));
            if !refused {
                assert!(nth >= 2, "{nth} allocations for {pairs} pairs");
                break;
            }
        }
    }
}

/// A pair that was left out is added by the next pass, or by the next reclaim in the background.
#[test]
fn a_pair_for_which_there_was_no_memory_is_chosen_later() {
    let tree = MemcgTree::new(0);
    tree.root().set_max(ByteSize::mib(1));
    let groups: Vec<_> = (0..70).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    for (pairs, by_pass) in [(1, true), (1, false), (65, false), (65, true)] {
        let mut left_out = 0;
        for nth in 0..1_000 {
            let registry = Registry::with_config(&tree, RegistryConfig::new(1).by_utility(true));
            let prepared = registry.builder("pool").reports_misses(true).alloc().unwrap();
            let (reporter, occupancy) = (prepared.miss_reporter(), prepared.occupancy());
            let registration = prepared.register(Arc::new(Pool(AtomicU64::new(1_000_000))));
            let last = &groups[pairs - 1];
            groups[..pairs - 1].iter().for_each(|group| occupancy.occupied(group, N0));
            let is_known = || reporter.is_known(&PairHint::default(), last);
            let ((), refused) = refused_after(nth, || occupancy.occupied(last, N0));
            left_out += usize::from(!is_known() && registry.snapshot().live_pairs == pairs);
            if by_pass {
                registry.shrink(tree.root(), N0, 12, Reclaim::KSWAPD, &mut Work::unlimited());
            } else {
                registry.shrink_least_useful(tree.root(), None, Reclaim::KSWAPD, &mut Work::one_batch(64));
            }
            assert!(is_known(), "{pairs} pairs, allocation {nth}");
            drop((registration, registry));
            if !refused {
                break;
            }
        }
        assert!(left_out >= 1, "{pairs} pairs: the table of pairs allocates nothing");
    }
}
