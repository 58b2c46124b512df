//! Groups of another tree than the registry's own. Their ids are the same numbers, but mean
//! different groups.
//!
//! A registry belongs to one tree: reports and reclaim of foreign groups must have no effect.
//! Numbers such as S17 are those of docs/INVARIANTS.md.

#![forbid(unsafe_code)]

use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId};
use lowwater_shrinker::baseline::FullScan;
use lowwater_shrinker::{
    Count, DirectStop, Prepared, Progress, Reclaim, Registry, Scan, Select, ShrinkControl, Shrinker, Work,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

const N0: NodeId = NodeId::ZERO;

/// Has 1,000 objects in each group, and counts the calls for all groups together. Panics if it is
/// called for a group of another tree than that of `ours`.
struct Pool {
    calls: AtomicU64,
    ours: Memcg,
}

impl Pool {
    fn register(prepared: Prepared, ours: &MemcgTree) -> (Arc<Self>, lowwater_shrinker::Registration) {
        let pool = Arc::new(Self { calls: AtomicU64::new(0), ours: ours.root().clone() });
        let registration = prepared.register(pool.clone());
        (pool, registration)
    }
}

impl Shrinker for Pool {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        self.calls.fetch_add(1, Relaxed);
        assert!(sc.memcg().is_in_tree_of(&self.ours), "called for {:?} of another tree", sc.memcg());
        Count::Objects(1000)
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        assert!(sc.memcg().is_in_tree_of(&self.ours), "called for {:?} of another tree", sc.memcg());
        Scan::Stop
    }
}

/// Two trees with one group each; both groups have the same id.
fn two_groups() -> [(MemcgTree, Memcg); 2] {
    [(); 2].map(|()| {
        let tree = MemcgTree::new(0);
        let group = tree.root().create("g").unwrap();
        (tree, group)
    })
}

#[test]
fn s17_no_bit_is_set_for_a_group_of_another_tree() {
    let [(ours, our), (theirs, their)] = two_groups();
    let registry = Registry::new(&ours, 1);
    let prepared = registry.builder("pool").alloc().unwrap();
    let occupancy = prepared.occupancy();
    for group in [theirs.root(), &their] {
        occupancy.occupied(group, N0);
    }
    assert_eq!(registry.snapshot().live_pairs, 0);
    occupancy.occupied(&our, N0);
    occupancy.occupied(&their, N0);
    let (pool, registration) = Pool::register(prepared, &ours);
    registry.shrink(ours.root(), N0, 0, Reclaim::KSWAPD, &mut Work::unlimited());
    assert_eq!((pool.calls.load(Relaxed), registration.stats().panics), (1, 0));
    their.offline().unwrap();
    assert_eq!(registry.snapshot().live_pairs, 1);
    drop(registration);
    assert_eq!(registry.snapshot().live_pairs, 0);
}

#[test]
fn s18_s19_nothing_is_taken_from_or_owed_for_a_group_of_another_tree() {
    let [(ours, our), (theirs, their)] = two_groups();
    let registry = Registry::new(&ours, 1);
    let prepared = registry.builder("pool").alloc().unwrap();
    for group in [ours.root(), &our] {
        prepared.occupancy().occupied(group, N0);
    }
    let (pool, registration) = Pool::register(prepared, &ours);
    // The group of this registry's tree owes objects.
    registry.direct_reclaim(&our, Reclaim::FOREGROUND, &|| false);
    let owed = registry.owed(&our, N0, registration.id());
    assert_ne!(owed, 0);
    let before = (pool.calls.load(Relaxed), registry.snapshot().live_pairs);

    for group in [theirs.root(), &their] {
        let select = Select::all().memcg(group);
        assert_eq!(registry.shrink(group, N0, 0, Reclaim::KSWAPD, &mut Work::unlimited()), Progress::default());
        assert_eq!(registry.drop_selected(&select), 0);
        assert_eq!(registry.reclaim_selected(&select, ByteSize::kib(4)), ByteSize::ZERO);
        assert_eq!(
            FullScan::new(&registry).shrink(group, N0, 0, Reclaim::KSWAPD, &mut Work::unlimited()),
            Progress::default()
        );
        let outcome = registry.direct_reclaim(group, Reclaim::FOREGROUND, &|| false);
        assert_eq!((outcome.scanned, outcome.stopped), (0, DirectStop::NothingLeft));
        assert_eq!(registry.pay_debts(group, N0, &mut Work::unlimited()), (Progress::default(), 0));
        assert_eq!(registry.owed(group, N0, registration.id()), 0);
    }
    assert_eq!((pool.calls.load(Relaxed), registry.snapshot().live_pairs), before);
    assert_eq!((registry.owed(&our, N0, registration.id()), registration.stats().panics), (owed, 0));
}
