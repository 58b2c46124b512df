//! Pairs, reports and selections with an allocator that fails: nothing panics, nothing is lost, and
//! once there is memory everything works.
//!
//! A change must ensure that a later pass or reclaim adds a pair for which there was no memory.

// crossbeam-epoch, the read side with `lowwater_epoch`, aborts when there is no memory.
#![cfg(all(feature = "std", not(lowwater_loom), not(lowwater_epoch)))]

#[path = "../../base/tests/faulty/mod.rs"]
mod faulty;

use faulty::refused_after;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use lowwater_lru_core::topology::{Fixed, Topology};
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId, Occupancy};
use lowwater_shrinker::{
    Count, Miss, MissReporter, PairHint, Reclaim, Registration, Registry, RegistryConfig, Scan, ShrinkControl,
    Shrinker, ShrinkerAllocError, Work,
};

const N0: NodeId = NodeId::ZERO;

/// Reports the same objects for each group.
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
fn each_allocation_of_a_registry_with_utility_may_fail() {
    let tree = MemcgTree::new(0);
    // Makes the one-time allocations of the thread and the tree.
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

/// A registry that selects victims by utility, with one registered pool.
struct Setup {
    registry: Registry,
    registration: Registration,
    reporter: MissReporter,
    occupancy: Arc<dyn Occupancy>,
}

impl Setup {
    /// Creates a pool that holds objects of each of these groups.
    fn new(tree: &MemcgTree, groups: &[Memcg]) -> Self {
        let registry = Registry::with_config(tree, RegistryConfig::new(1).by_utility(true));
        let prepared = registry.builder("pool").reports_misses(true).alloc().unwrap();
        let (reporter, occupancy) = (prepared.miss_reporter(), prepared.occupancy());
        let registration = prepared.register(Arc::new(Pool(AtomicU64::new(1_000_000))));
        groups.iter().for_each(|group| occupancy.occupied(group, N0));
        Self { registry, registration, reporter, occupancy }
    }
}

/// The allocations for the last of 1, 2 or 70 pairs, and for the first tallies: those of the
/// table's first part (64 pairs), and with 70 pairs also those of its second.
#[test]
fn each_allocation_of_a_pair_and_its_tallies_may_fail() {
    let tree = MemcgTree::new(0);
    tree.root().set_max(ByteSize::mib(1));
    let groups: Vec<_> = (0..70).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    for pairs in [1, 2, 70] {
        for nth in 0..1_000 {
            let (last, others) = groups[..pairs].split_last().unwrap();
            let Setup { registry, registration, reporter, occupancy } = Setup::new(&tree, others);
            let choose = || {
                let mut work = Work::one_batch(64);
                registry.shrink_least_useful(tree.root(), None, Reclaim::FOREGROUND, &mut work).freed
            };
            let (_, refused) = refused_after(nth, || {
                occupancy.occupied(last, N0);
                reporter.miss(last, Miss::at(ByteSize::ZERO));
                choose()
            });
            // With memory again nothing is missing: a pass finds a missing pair.
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

/// A missing pair is added by the next pass, or by the next reclaim in the background.
#[test]
fn a_pair_without_memory_is_added_and_selected_later() {
    let tree = MemcgTree::new(0);
    tree.root().set_max(ByteSize::mib(1));
    let groups: Vec<_> = (0..70).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    for (pairs, by_pass) in [(1, true), (1, false), (65, false), (65, true)] {
        let mut left_out = 0;
        for nth in 0..1_000 {
            let (last, others) = groups[..pairs].split_last().unwrap();
            let Setup { registry, registration, reporter, occupancy } = Setup::new(&tree, others);
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

/// Records how often it is counted for one group.
struct OfGroup {
    group: Memcg,
    counts: AtomicU64,
}

impl Shrinker for OfGroup {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        self.counts.fetch_add(u64::from(*sc.memcg() == self.group), Relaxed);
        Count::Objects(100)
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        Scan::Freed(sc.nr_to_scan())
    }
}

/// The 65th pair is the first in the second part of the table, so its tallies need an allocation,
/// which fails. If the pair then had no state, it would be the one that was counted longest ago,
/// and each call in the foreground would count it instead of another.
#[test]
fn a_pair_without_memory_for_its_tallies_is_counted_once_an_epoch() {
    let tree = MemcgTree::new(0);
    tree.root().set_max(ByteSize::mib(1));
    let groups: Vec<_> = (0..65).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    let (last, others) = groups.split_last().unwrap();
    let registry = Registry::with_config(&tree, RegistryConfig::new(1).by_utility(true));
    let prepared = registry.builder("of group").reports_misses(true).alloc().unwrap();
    let (reporter, occupancy) = (prepared.miss_reporter(), prepared.occupancy());
    let shrinker = Arc::new(OfGroup { group: last.clone(), counts: AtomicU64::new(0) });
    let _registration = prepared.register(Arc::clone(&shrinker) as Arc<dyn Shrinker>);
    let choose = |needy: Option<&PairHint>, flags| {
        registry.shrink_least_useful(tree.root(), needy, flags, &mut Work::one_batch(64)).freed
    };
    others.iter().for_each(|group| occupancy.occupied(group, N0));
    (0..2).for_each(|_| assert!(choose(None, Reclaim::KSWAPD) > 0));
    occupancy.occupied(last, N0);
    let hint = PairHint::default();
    assert!(reporter.is_known(&hint, last));
    for _ in 0..10 {
        let (freed, _) = refused_after(0, || choose(Some(&hint), Reclaim::FOREGROUND));
        assert!(freed > 0, "other pairs give way");
    }
    assert_eq!(shrinker.counts.load(Relaxed), 1);
    assert!(choose(Some(&hint), Reclaim::FOREGROUND) > 0);
}
