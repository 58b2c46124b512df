//! Reclaim from where memory earns least, beside shrinkers and reports that lie, panic, end or come from the wrong place.
//!
//! - every call ends, after a bounded number of callbacks;
//! - an honest shrinker beside a liar is still reclaimed from;
//! - a report of misses is for a pair of the registry's own tree that holds something, or for none;
//! - the memory of pairs is counted to the byte.

#![cfg(all(feature = "std", not(lowwater_loom)))]
#![forbid(unsafe_code)]

mod common;
#[path = "../../base/tests/hazard/mod.rs"]
mod hazard;

use allocation_counter::measure;
use common::Shelf;
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId};
use lowwater_shrinker::{
    Bound, Count, Miss, MissReporter, PairHint, Progress, Reclaim, Registration, Registry, RegistryConfig, Scan,
    ShrinkControl, Watermarks, Work,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

const N0: NodeId = NodeId::ZERO;
/// Bytes of an object.
const OBJECT: u64 = 1_000;
/// The root's limit, in objects and in bytes.
const BUDGET_OBJECTS: u64 = 10_000;
const BUDGET: ByteSize = ByteSize::new(BUDGET_OBJECTS * OBJECT);
/// Callbacks of one shrinker in one call that looks at 1,000 objects, at most: one for each object, and two counts with it.
const CALLBACKS_MAX: u64 = 3_000;

/// A tree with a budget, and a registry that chooses by utility.
fn world(nodes: usize) -> (MemcgTree, Registry) {
    let tree = MemcgTree::new(0);
    tree.root().set_max(BUDGET);
    let registry = Registry::with_config(&tree, RegistryConfig::new(nodes).by_utility(true));
    (tree, registry)
}

/// A registered shelf, its registration, and its reporter.
struct Pool {
    shelf: Arc<Shelf>,
    registration: Registration,
    reporter: MissReporter,
}

impl Pool {
    fn new(tree: &MemcgTree, registry: &Registry, name: &str) -> Self {
        Self::with(tree, registry, name, Shelf::new())
    }

    fn with(tree: &MemcgTree, registry: &Registry, name: &str, shelf: Shelf) -> Self {
        let shelf = Arc::new(shelf);
        shelf.hear_of_deaths(tree);
        let prepared = registry.builder(name).reports_misses(true).alloc().unwrap();
        let reporter = prepared.miss_reporter();
        let registration = shelf.register(prepared);
        Self { shelf, registration, reporter }
    }

    /// Reports so many near misses.
    fn misses(&self, memcg: &Memcg, n: u32) {
        (0..n).for_each(|_| self.reporter.miss(memcg, Miss::at(ByteSize::new(10 * OBJECT))));
    }

    fn callbacks(&self) -> u64 {
        self.shelf.counts.load(Relaxed) + self.shelf.scans.load(Relaxed)
    }
}

/// A shelf that counts, weighs or scans as it is told.
fn shelf(
    count: Option<common::CountFn>,
    scan: Option<common::ScanFn>,
    weigh: impl Fn(&ShrinkControl<'_>) -> Option<ByteSize> + Send + Sync + 'static,
) -> Shelf {
    let shelf = Shelf::new();
    count.into_iter().for_each(|count| assert!(shelf.count.set(count).is_ok()));
    scan.into_iter().for_each(|scan| assert!(shelf.scan.set(scan).is_ok()));
    assert!(shelf.weigh.set(Box::new(weigh)).is_ok());
    shelf
}

fn honest_weight(_: &ShrinkControl<'_>) -> Option<ByteSize> {
    Some(ByteSize::new(1_000 * OBJECT))
}

fn liar_in_count(count: impl Fn() -> Count + Send + Sync + 'static) -> Shelf {
    shelf(Some(Box::new(move |_| Some(count()))), None, honest_weight)
}

fn liar_in_scan(scan: impl Fn(&mut ShrinkControl<'_>) -> Scan + Send + Sync + 'static) -> Shelf {
    shelf(None, Some(Box::new(move |sc| Some(scan(sc)))), honest_weight)
}

fn liar_in_weight(weigh: impl Fn() -> Option<ByteSize> + Send + Sync + 'static) -> Shelf {
    shelf(None, None, move |_| weigh())
}

fn batch(registry: &Registry, memcg: &Memcg, flags: Reclaim) -> Progress {
    registry.shrink_least_useful(memcg, None, flags, &mut Work::one_batch(64))
}

fn batches(n: u32, registry: &Registry, memcg: &Memcg, flags: Reclaim) {
    for _ in 0..n {
        batch(registry, memcg, flags);
    }
}

/// Calls with and without a bound to one batch, from foreground and background: each ends, and some objects of an honest
/// shrinker beside `liars` of these are freed.
fn honest_beside(liars: usize, liar: impl Fn() -> Shelf) {
    for flags in [Reclaim::FOREGROUND, Reclaim::KSWAPD] {
        let (tree, registry) = world(1);
        let liars: Vec<_> = (0..liars).map(|n| Pool::with(&tree, &registry, &format!("liar {n}"), liar())).collect();
        let honest = Pool::with(&tree, &registry, "honest", shelf(None, None, honest_weight));
        liars.iter().for_each(|liar| liar.shelf.add(tree.root(), N0, 1_000));
        honest.shelf.add(tree.root(), N0, 1_000);
        for one_batch in [true, false] {
            // Enough for all that is there, were it freed in batches of a 64th.
            for _ in 0..if one_batch { 4_000 } else { 100 } {
                let callbacks: Vec<_> = liars.iter().map(Pool::callbacks).collect();
                let mut work = if one_batch { Work::one_batch(1_000) } else { Work::objects(1_000) };
                registry.shrink_least_useful(tree.root(), None, flags, &mut work);
                for (liar, before) in liars.iter().zip(callbacks) {
                    assert!(liar.callbacks() - before <= CALLBACKS_MAX, "{} callbacks", liar.callbacks() - before);
                }
            }
        }
        let left = honest.shelf.total();
        assert!(left < 1_000, "{} liars, {flags:?}: {left} are left", liars.len());
    }
}

#[test]
fn an_honest_shrinker_beside_honest_ones_is_reclaimed_from() {
    honest_beside(1, || liar_in_weight(|| Some(ByteSize::new(1_000 * OBJECT))));
    honest_beside(6, || liar_in_weight(|| Some(ByteSize::new(1_000 * OBJECT))));
    honest_beside(6, Shelf::new);
}

#[test]
fn beside_one_that_claims_to_hold_everything() {
    honest_beside(1, || liar_in_count(|| Count::Objects(u64::MAX)));
}

#[test]
fn beside_six_that_claim_to_hold_everything() {
    honest_beside(6, || liar_in_count(|| Count::Objects(u64::MAX)));
}

#[test]
fn beside_one_whose_count_changes_each_time() {
    for liars in [1, 6] {
        honest_beside(liars, || {
            let calls = AtomicU64::new(0);
            let counts = [0, u64::MAX, 1, 1 << 40, 7];
            liar_in_count(move || Count::Objects(counts[calls.fetch_add(1, Relaxed) as usize % counts.len()]))
        });
    }
}

#[test]
fn beside_one_that_never_knows_its_count() {
    for liars in [1, 6] {
        honest_beside(liars, || liar_in_count(|| Count::Unknown));
    }
}

#[test]
fn beside_one_whose_count_panics() {
    for liars in [1, 6] {
        honest_beside(liars, || liar_in_count(|| panic!("a count that panics")));
    }
}

#[test]
fn beside_one_that_says_that_it_freed_more_than_it_holds() {
    for liars in [1, 6] {
        honest_beside(liars, || liar_in_scan(|sc| Scan::Freed(sc.nr_to_scan() + 100)));
        honest_beside(liars, || liar_in_scan(|_| Scan::Freed(u64::MAX)));
    }
}

#[test]
fn beside_one_that_frees_nothing() {
    for liars in [1, 6] {
        honest_beside(liars, || liar_in_scan(|_| Scan::Freed(0)));
        for scanned in [1, u64::MAX] {
            honest_beside(liars, move || {
                liar_in_scan(move |sc| {
                    sc.set_nr_scanned(scanned);
                    Scan::Freed(0)
                })
            });
        }
    }
}

#[test]
fn beside_one_that_always_stops() {
    honest_beside(1, || liar_in_scan(|_| Scan::Stop));
}

#[test]
fn beside_six_that_always_stop() {
    honest_beside(6, || liar_in_scan(|_| Scan::Stop));
}

#[test]
fn beside_one_whose_scan_panics() {
    for liars in [1, 6] {
        honest_beside(liars, || liar_in_scan(|_| panic!("a scan that panics")));
    }
}

#[test]
fn beside_one_that_lies_about_its_weight() {
    for liars in [1, 6] {
        for weight in [None, Some(ByteSize::ZERO), Some(ByteSize::MAX)] {
            honest_beside(liars, move || liar_in_weight(move || weight));
        }
    }
}

#[test]
fn beside_one_whose_weight_panics() {
    for liars in [1, 6] {
        honest_beside(liars, || liar_in_weight(|| panic!("a weight that panics")));
    }
}

/// A call without any bound ends too, whatever the only shrinker says.
#[test]
fn a_call_without_bound_ends() {
    const CALLS_MAX: u64 = 1_000_000;
    let answers: [fn(&mut ShrinkControl<'_>) -> Scan; 4] =
        [|_| Scan::Freed(0), |_| Scan::Freed(1), |_| Scan::Freed(u64::MAX), |_| Scan::Stop];
    for answer in answers {
        let (tree, registry) = world(1);
        let liar = Pool::with(&tree, &registry, "liar", liar_in_scan(answer));
        liar.shelf.add(tree.root(), N0, 1_000);
        // Only so that the test ends, if the call does not.
        let calls = AtomicU64::new(0);
        let is_enough = || calls.fetch_add(1, Relaxed) > CALLS_MAX;
        let mut work = Work::unlimited().while_not(&is_enough);
        registry.shrink_least_useful(tree.root(), None, Reclaim::FOREGROUND, &mut work);
        assert!(calls.load(Relaxed) <= CALLS_MAX, "the call does not end by itself");
    }
}

/// Two pools of 1,000 objects each, of which the first has the misses: the second pays.
fn assert_second_pays(registry: &Registry, memcg: &Memcg, pools: [&Pool; 2], what: &str) {
    let before = pools.map(|pool| pool.shelf.total());
    // Both are counted.
    batch(registry, memcg, Reclaim::KSWAPD);
    batches(50, registry, memcg, Reclaim::FOREGROUND);
    let paid = [0, 1].map(|n| before[n] - pools[n].shelf.total());
    assert!(paid[1] >= 100 && paid[1] > 8 * paid[0], "{what}: they paid {paid:?}");
}

/// Two pools in which a group holds 1,000 objects each; both are counted.
fn two_pools(tree: &MemcgTree, registry: &Registry, memcg: &Memcg) -> [Pool; 2] {
    let pools = ["first", "second"].map(|name| Pool::with(tree, registry, name, shelf(None, None, honest_weight)));
    pools.iter().for_each(|pool| pool.shelf.add(memcg, N0, 1_000));
    batch(registry, memcg, Reclaim::KSWAPD);
    pools
}

#[test]
fn a_pair_that_misses_keeps_its_memory() {
    let (tree, registry) = world(1);
    let pools = two_pools(&tree, &registry, tree.root());
    pools[0].misses(tree.root(), 100);
    assert_second_pays(&registry, tree.root(), [&pools[0], &pools[1]], "misses");
}

#[test]
fn reports_at_their_ends_neither_panic_nor_count_for_much() {
    let (tree, registry) = world(1);
    let group = tree.root().create("group").unwrap();
    let pools = two_pools(&tree, &registry, &group);
    pools[0].misses(&group, 10_000);
    // None of these is worth a thing: too far, free of cost, or for none.
    for miss in [
        Miss::at(ByteSize::MAX),
        Miss::at(BUDGET),
        Miss::at(ByteSize::ZERO).cost(0),
        Miss::at(ByteSize::ZERO).weight(0),
        Miss::at(ByteSize::ZERO).cost(0).weight(u32::MAX),
    ] {
        (0..1_000).for_each(|_| pools[1].reporter.miss(&group, miss));
    }
    assert_second_pays(&registry, tree.root(), [&pools[0], &pools[1]], "no miss counts");
    for miss in [
        Miss::at(ByteSize::ZERO).cost(u32::MAX).weight(u32::MAX),
        Miss::at(ByteSize::new(1)).cost(u32::MAX),
        Miss::at(ByteSize::MAX).cost(u32::MAX).weight(u32::MAX),
    ] {
        (0..100).for_each(|_| pools[1].reporter.miss(&group, miss));
    }
    pools[1].reporter.set_mean_cost(u32::MAX);
    assert_second_pays(&registry, tree.root(), [&pools[1], &pools[0]], "dear misses");
    pools[1].reporter.set_mean_cost(0);
    // A root without limit, and one without memory.
    for max in [ByteSize::MAX, ByteSize::ZERO] {
        tree.root().set_max(max);
        (0..100).for_each(|_| pools[0].reporter.miss(&group, Miss::at(ByteSize::MAX)));
        batch(&registry, tree.root(), Reclaim::FOREGROUND);
        batch(&registry, tree.root(), Reclaim::KSWAPD);
    }
}

#[test]
fn a_miss_of_another_trees_group_counts_for_none_of_ours() {
    let (tree, registry) = world(1);
    let (theirs, _their_registry) = world(1);
    let (our, their) = (tree.root().create("our").unwrap(), theirs.root().create("their").unwrap());
    assert_eq!(our.id(), their.id());
    let pools = two_pools(&tree, &registry, &our);
    pools[0].misses(&our, 100);
    pools[1].misses(&their, 10_000);
    assert!(!pools[1].reporter.is_known(&PairHint::default(), &their), "known by another group's id");
    assert_second_pays(&registry, tree.root(), [&pools[0], &pools[1]], "misses of another tree");
}

#[test]
fn a_miss_of_a_group_that_ended_counts_for_none() {
    let (tree, registry) = world(1);
    let group = tree.root().create("group").unwrap();
    let ended = tree.root().create("ended").unwrap();
    let pools = two_pools(&tree, &registry, &group);
    for pool in &pools {
        pool.shelf.add(&ended, N0, 10);
        pool.misses(&ended, 10);
    }
    ended.offline().unwrap();
    let hint = PairHint::default();
    assert!(!pools[1].reporter.is_known(&hint, &ended));
    pools[1].misses(&ended, 10_000);
    // Another group may have the number next.
    drop(ended);
    let next = tree.root().create("next").unwrap();
    pools[1].misses(&next, 10_000);
    pools[0].misses(&group, 100);
    assert!(!pools[1].reporter.is_known(&hint, &next), "it holds nothing");
    assert_second_pays(&registry, tree.root(), [&pools[0], &pools[1]], "misses of no group");
}

#[test]
fn a_reporter_outlives_its_registration_registry_and_tree() {
    let (tree, registry) = world(1);
    let [first, second] = two_pools(&tree, &registry, tree.root());
    let Pool { reporter, registration, .. } = first;
    registration.unregister().unwrap();
    let report = |reporter: &MissReporter, root: &Memcg| {
        (0..100).for_each(|_| reporter.miss(root, Miss::at(ByteSize::ZERO)));
        assert!(!reporter.is_known(&PairHint::default(), root));
    };
    report(&reporter, tree.root());
    let root = tree.root().clone();
    drop((second, registry));
    report(&reporter, &root);
    drop((tree, root));
    println!("{reporter:?}");
}

#[test]
fn what_an_ended_registration_reports_does_not_count_for_the_next() {
    let (tree, registry) = world(1);
    let [first, second] = two_pools(&tree, &registry, tree.root());
    let Pool { reporter, registration, .. } = first;
    registration.unregister().unwrap();
    let next = Pool::with(&tree, &registry, "next", shelf(None, None, honest_weight));
    assert_eq!(next.registration.id(), reporter.id());
    next.shelf.add(tree.root(), N0, 1_000);
    (0..10_000).for_each(|_| reporter.miss(tree.root(), Miss::at(ByteSize::ZERO)));
    assert!(!reporter.is_known(&PairHint::default(), tree.root()), "the next one's pair is taken for its own");
    second.misses(tree.root(), 100);
    assert_second_pays(&registry, tree.root(), [&second, &next], "misses after the end");
}

#[test]
fn a_prepared_shrinker_that_is_never_registered_may_report() {
    let (tree, registry) = world(1);
    let prepared = registry.builder("prepared").reports_misses(true).alloc().unwrap();
    let reporter = prepared.miss_reporter();
    prepared.occupancy().occupied(tree.root(), N0);
    reporter.miss(tree.root(), Miss::at(ByteSize::ZERO));
    assert_eq!(batch(&registry, tree.root(), Reclaim::FOREGROUND), Progress::default());
    drop(prepared);
    reporter.miss(tree.root(), Miss::at(ByteSize::ZERO));
    assert_eq!(batch(&registry, tree.root(), Reclaim::FOREGROUND), Progress::default());
}

#[test]
fn nothing_is_reported_to_a_registry_that_does_not_choose_by_utility() {
    let tree = MemcgTree::new(0);
    let registry = Registry::with_config(&tree, RegistryConfig::new(1));
    let pool = Pool::new(&tree, &registry, "pool");
    pool.shelf.add(tree.root(), N0, 100);
    let before = registry.footprint();
    pool.misses(tree.root(), 100);
    assert_eq!(batch(&registry, tree.root(), Reclaim::FOREGROUND), Progress::default());
    assert_eq!((registry.footprint(), pool.callbacks()), (before, 0));
}

#[test]
fn reports_from_many_threads_while_others_choose() {
    let (tree, registry) = world(1);
    let groups: Vec<_> = (0..8).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    let pools: Vec<_> = (0..3).map(|n| Pool::new(&tree, &registry, &n.to_string())).collect();
    std::thread::scope(|scope| {
        for (at, pool) in pools.iter().enumerate() {
            let (groups, registry, root) = (&groups, &registry, tree.root());
            scope.spawn(move || {
                let hints: Vec<_> = groups.iter().map(|_| PairHint::default()).collect();
                for n in 0..20_000_u64 {
                    let group = &groups[(n as usize + at) % groups.len()];
                    if n % 64 == 0 {
                        pool.shelf.add(group, N0, 10);
                    }
                    let miss = Miss::at(ByteSize::new(n * 997)).cost(n as u32).weight(at as u32);
                    pool.reporter.miss_at(&hints[(n % 5) as usize], group, miss);
                    pool.reporter.set_mean_cost(n as u32);
                    if n % 16 == 0 {
                        batch(registry, root, Reclaim::FOREGROUND);
                    }
                }
            });
        }
    });
    registry.drop_caches();
    assert!(pools.iter().all(|pool| pool.shelf.total() == 0 && pool.registration.stats().panics == 0));
}

#[test]
fn shrinkers_that_know_no_groups_or_nodes_are_chosen_too() {
    for (memcg_aware, numa_aware) in [(false, false), (false, true), (true, false), (true, true)] {
        let (tree, registry) = world(3);
        let group = tree.root().create("group").unwrap();
        let builder = registry.builder("simple").memcg_aware(memcg_aware).numa_aware(numa_aware);
        let prepared = builder.reports_misses(true).alloc().unwrap();
        let reporter = prepared.miss_reporter();
        let shelf = Arc::new(Shelf::new());
        let registration = shelf.register(prepared);
        // The shelf is asked as it says that it can be.
        let memcg = if memcg_aware { &group } else { tree.root() };
        let nodes = if numa_aware { 0..3 } else { 0..1 };
        nodes.clone().for_each(|node| shelf.add(memcg, NodeId::new(node), 300));
        reporter.miss(&group, Miss::at(ByteSize::ZERO));
        for flags in [Reclaim::FOREGROUND, Reclaim::KSWAPD] {
            let before = shelf.total();
            batches(20, &registry, tree.root(), flags);
            assert!(shelf.total() < before, "{memcg_aware} {numa_aware}: {before} are left");
        }
        for node in nodes {
            assert!(shelf.len(memcg, NodeId::new(node)) < 300, "nothing was taken from node {node}");
        }
        // Below a limit only what is the group's is taken.
        let before = shelf.total();
        batches(20, &registry, &group, Reclaim::FOREGROUND);
        assert_eq!(shelf.total() < before, memcg_aware);
        assert_eq!(registration.stats().panics, 0);
    }
}

/// It may have come just now: who inserts on a node where nothing was would find nothing there.
#[test]
fn the_last_object_of_a_node_stays_while_there_are_others() {
    let (tree, registry) = world(2);
    let pool = Pool::new(&tree, &registry, "pool");
    pool.shelf.add(tree.root(), NodeId::ZERO, 2_000);
    pool.shelf.add(tree.root(), NodeId::new(1), 30);
    let on = |node| pool.shelf.len(tree.root(), NodeId::new(node));
    while on(0) > 100 {
        batches(1, &registry, tree.root(), Reclaim::FOREGROUND);
        assert!(on(1) >= 1, "{} are left on the other", on(0));
    }
    while on(0) + on(1) > 0 {
        batches(1, &registry, tree.root(), Reclaim::FOREGROUND);
    }
}

#[test]
fn of_two_thousand_pairs_those_without_use_pay() {
    let (tree, registry) = world(1);
    let pool = Pool::new(&tree, &registry, "pool");
    let groups: Vec<_> = (0..2_000).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    groups.iter().for_each(|group| pool.shelf.add(group, N0, 100));
    // All are counted.
    for _ in 0..200 {
        batch(&registry, tree.root(), Reclaim::KSWAPD);
    }
    groups.iter().step_by(2).for_each(|group| pool.misses(group, 20));
    let held = |odd: usize| groups[odd..].iter().step_by(2).map(|group| pool.shelf.len(group, N0)).sum::<u64>();
    let before = [held(0), held(1)];
    for _ in 0..20_000 {
        batch(&registry, tree.root(), Reclaim::FOREGROUND);
    }
    let paid = [before[0] - held(0), before[1] - held(1)];
    assert!(paid[1] > 10_000 && paid[1] > 20 * paid[0], "those with misses and those without paid {paid:?}");
}

/// The table of pairs has had 2,000 at once, and now has one, in the middle: it is found.
#[test]
fn a_pair_is_found_after_many_have_gone() {
    for flags in [Reclaim::FOREGROUND, Reclaim::KSWAPD] {
        let (tree, registry) = world(1);
        let [many, one] = ["many", "one"].map(|name| Pool::new(&tree, &registry, name));
        let groups: Vec<_> = (0..2_000).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
        groups[..1_000].iter().for_each(|group| many.shelf.add(group, N0, 1));
        one.shelf.add(&groups[0], N0, 10_000);
        groups[1_000..].iter().for_each(|group| many.shelf.add(group, N0, 1));
        drop(many);
        assert_eq!(registry.snapshot().live_pairs, 1);
        let found = (0..100).filter(|_| batch(&registry, tree.root(), flags).freed > 0).count();
        assert!(found >= 90, "{flags:?}: in {found} of 100 calls");
    }
}

#[test]
fn pairs_come_and_go_while_others_choose() {
    let (tree, registry) = world(2);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for at in 0..2 {
            let (tree, registry, is_done) = (&tree, &registry, &is_done);
            scope.spawn(move || {
                for round in 0..100 {
                    let pool = Pool::new(tree, registry, &format!("{at} {round}"));
                    let groups: Vec<_> =
                        (0..20).map(|n| tree.root().create(&format!("{at} {round} {n}")).unwrap()).collect();
                    for (n, group) in groups.iter().enumerate() {
                        pool.shelf.add(group, NodeId::new(n as u16 % 2), 10);
                        pool.misses(group, n as u32);
                    }
                    // Some groups end before the shrinker does, some after it.
                    groups.iter().step_by(2).for_each(|group| group.offline().unwrap());
                    pool.misses(&groups[0], 10);
                    assert_eq!(pool.registration.stats().panics, 0);
                    drop(pool);
                    groups.iter().skip(1).step_by(2).for_each(|group| group.offline().unwrap());
                }
                is_done.store(true, Relaxed);
            });
        }
        for flags in [Reclaim::FOREGROUND, Reclaim::KSWAPD] {
            let (root, registry, is_done) = (tree.root(), &registry, &is_done);
            scope.spawn(move || {
                while !is_done.load(Relaxed) {
                    batch(registry, root, flags);
                }
            });
        }
    });
    assert_eq!(registry.snapshot().live_pairs, 0);
}

#[test]
fn nothing_is_chosen_inside_a_callback_or_a_scope() {
    let (tree, registry) = world(1);
    let registry = Arc::new(registry);
    let other = Pool::new(&tree, &registry, "other");
    other.shelf.add(tree.root(), N0, 1_000);
    let inside = |registry: &Arc<Registry>| {
        let (registry, root) = (Arc::downgrade(registry), tree.root().clone());
        let calls = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&calls);
        let call = move || {
            seen.fetch_add(1, Relaxed);
            let registry = registry.upgrade().unwrap();
            assert_eq!(batch(&registry, &root, Reclaim::KSWAPD), Progress::default());
            assert_eq!(batch(&registry, &root, Reclaim::FOREGROUND), Progress::default());
        };
        (calls, Arc::new(call))
    };
    let (calls, call) = inside(&registry);
    let [in_count, in_scan, in_weigh] = [Arc::clone(&call), Arc::clone(&call), call];
    let caller = shelf(
        Some(Box::new(move |_| {
            in_count();
            None
        })),
        Some(Box::new(move |_| {
            in_scan();
            None
        })),
        move |_| {
            in_weigh();
            None
        },
    );
    let caller = Pool::with(&tree, &registry, "caller", caller);
    caller.shelf.add(tree.root(), N0, 1_000);
    other.misses(tree.root(), 100);
    batches(10, &registry, tree.root(), Reclaim::KSWAPD);
    assert!(calls.load(Relaxed) >= 3 && caller.shelf.total() < 1_000, "each callback was called");
    assert_eq!(caller.registration.stats().panics, 0);
    let before = (caller.callbacks() + other.callbacks(), other.shelf.total());
    let scope = registry.no_reclaim_scope();
    assert_eq!(batch(&registry, tree.root(), Reclaim::FOREGROUND), Progress::default());
    // A miss may be reported there.
    other.misses(tree.root(), 1);
    drop(scope);
    assert_eq!((caller.callbacks() + other.callbacks(), other.shelf.total()), before);
    assert!(batch(&registry, tree.root(), Reclaim::FOREGROUND).freed > 0);
}

#[test]
fn a_reporter_may_be_used_and_dropped_in_each_callback() {
    use std::sync::Mutex;
    let (tree, registry) = world(1);
    let other = Pool::new(&tree, &registry, "other");
    other.shelf.add(tree.root(), N0, 1_000);
    // Of a shrinker that ended, and of one that goes on.
    let ended = Pool::new(&tree, &registry, "ended");
    let reporters = Arc::new(Mutex::new(vec![ended.reporter, other.reporter]));
    drop(ended.registration);
    let used = Arc::new(AtomicU64::new(0));
    let (root, in_callback, seen) = (tree.root().clone(), Arc::clone(&reporters), Arc::clone(&used));
    let call = Arc::new(move || {
        let mut reporters = in_callback.lock().unwrap();
        if let Some(reporter) = reporters.last() {
            reporter.miss(&root, Miss::at(ByteSize::ZERO));
            reporter.set_mean_cost(3);
            if seen.fetch_add(1, Relaxed) % 20 == 19 {
                reporters.pop();
            }
        }
    });
    let [in_count, in_scan, in_weigh] = [Arc::clone(&call), Arc::clone(&call), call];
    let caller = shelf(
        Some(Box::new(move |_| {
            in_count();
            None
        })),
        Some(Box::new(move |_| {
            in_scan();
            None
        })),
        move |_| {
            in_weigh();
            None
        },
    );
    let caller = Pool::with(&tree, &registry, "caller", caller);
    caller.shelf.add(tree.root(), N0, 10_000);
    batches(100, &registry, tree.root(), Reclaim::KSWAPD);
    assert!(reporters.lock().unwrap().is_empty() && used.load(Relaxed) == 40);
    assert_eq!(caller.registration.stats().panics, 0);
}

#[test]
fn a_reporter_ends_late_in_a_threads_life() {
    hazard::at_the_end_of_a_thread("a reporter that is used and dropped", || {
        let (tree, registry) = world(1);
        let [first, second] = two_pools(&tree, &registry, tree.root());
        Box::new(move || {
            first.misses(tree.root(), 10);
            assert!(batch(&registry, tree.root(), Reclaim::FOREGROUND).freed > 0);
            drop((second.registration, registry));
            second.reporter.miss(tree.root(), Miss::at(ByteSize::ZERO));
            drop(first);
            drop((second.reporter, tree));
        })
    });
}

#[test]
fn a_reporter_that_is_leaked_stops_nobody() {
    hazard::in_a_process("a_reporter_that_is_leaked_stops_nobody", || {
        let (tree, registry) = world(1);
        let [first, second] = two_pools(&tree, &registry, tree.root());
        let (id, left) = (first.registration.id(), first.shelf.total());
        std::mem::forget(first.reporter);
        first.registration.unregister().unwrap();
        batches(10, &registry, tree.root(), Reclaim::FOREGROUND);
        assert!(first.shelf.total() == left && second.shelf.total() < 1_000);
        assert_eq!(Pool::new(&tree, &registry, "next").registration.id(), id, "its number is free");
        std::mem::forget(second.reporter);
        drop((second.registration, registry));
    });
}

#[test]
fn nothing_is_chosen_for_a_group_of_another_tree_or_below_its_low() {
    let (tree, registry) = world(1);
    let (theirs, _) = world(1);
    let (group, sibling) = (tree.root().create("group").unwrap(), tree.root().create("sibling").unwrap());
    let pool = Pool::with(&tree, &registry, "pool", Shelf::of_bytes(OBJECT));
    for group in [&group, &sibling] {
        let _charged = group.try_charge(ByteSize::new(1_000 * OBJECT)).unwrap();
        pool.shelf.add(group, N0, 1_000);
    }
    pool.misses(&sibling, 100);
    assert_eq!(batch(&registry, theirs.root(), Reclaim::FOREGROUND), Progress::default());
    for protect in [Memcg::set_low, Memcg::set_min] {
        protect(&group, ByteSize::new(900 * OBJECT));
        batches(50, &registry, tree.root(), Reclaim::FOREGROUND);
        let left = pool.shelf.len(&group, N0);
        assert!((892..=900).contains(&left), "{left} of 900 that are protected, but for a batch");
        let _charged = group.try_charge(ByteSize::new(100 * OBJECT)).unwrap();
        pool.shelf.add(&group, N0, 100);
        protect(&group, ByteSize::ZERO);
    }
    assert!(pool.shelf.len(&sibling, N0) < 1_000, "a pair that is not protected is evicted from, although it misses");
}

#[test]
fn a_batch_is_bounded_by_its_work() {
    let (tree, registry) = world(1);
    let pool = Pool::new(&tree, &registry, "pool");
    pool.shelf.add(tree.root(), N0, 10_000);
    let run = |mut work: Work<'_>| {
        let progress = registry.shrink_least_useful(tree.root(), None, Reclaim::FOREGROUND, &mut work);
        (progress.freed, work.bound())
    };
    assert_eq!(run(Work::one_batch(0)), (0, Some(Bound::Scan)));
    assert_eq!(run(Work::one_batch(3)), (3, Some(Bound::Scan)));
    assert_eq!(run(Work::one_batch(u64::MAX)), (8, None));
    assert_eq!(run(Work::one_batch(1_000)), (8, None));
    assert_eq!(run(Work::objects(1_001)), (1_001, Some(Bound::Scan)));
    let enough = || true;
    assert_eq!(run(Work::one_batch(64).while_not(&enough)), (0, Some(Bound::Enough)));
}

#[test]
fn min_is_half_way_from_low_to_the_limit_at_all_ends() {
    let ends = [0, 1, 2, 1 << 20, u64::MAX - 1, u64::MAX].map(ByteSize::new);
    for low_gap in ends {
        for max in ends {
            let marks = Watermarks { low_gap, high_gap: ByteSize::ZERO };
            for usage in ends {
                assert!(!marks.is_min(usage, max) || marks.is_low(usage, max), "{usage} of {max}, {low_gap}");
            }
            assert_eq!(marks.is_min(ByteSize::MAX, max), max < ByteSize::MAX);
            assert!(!marks.is_min(ByteSize::ZERO, max));
        }
    }
    let at_the_limit = Watermarks { low_gap: ByteSize::ZERO, high_gap: ByteSize::ZERO };
    assert!(!at_the_limit.is_min(BUDGET, BUDGET) && at_the_limit.is_min(ByteSize::new(BUDGET.get() + 1), BUDGET));
}

/// Bytes that are allocated after `run` and were not before.
fn grown(run: impl FnOnce()) -> i64 {
    measure(run).bytes_current
}

#[test]
fn the_footprint_of_pairs_is_what_is_allocated() {
    let tree = MemcgTree::new(0);
    tree.root().set_max(BUDGET);
    let groups: Vec<_> = (0..300).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    let footprint = |registry: &Registry| (registry.footprint().get() + tree.footprint().get()) as i64;
    let (mut made, in_tree) = (None, tree.footprint().get() as i64);
    // The configuration is the caller's memory.
    let config = RegistryConfig::new(1).by_utility(true);
    let mut allocated = grown(|| made = Some(Registry::with_config(&tree, config)));
    let registry = made.unwrap();
    let begin = footprint(&registry) - in_tree;
    assert_eq!(begin, allocated, "an empty registry");
    let pools: Vec<_> = (0..3).map(|n| Pool::new(&tree, &registry, &n.to_string())).collect();
    // The shelves allocate their own memory before the measurement.
    for pool in &pools {
        groups.iter().for_each(|group| pool.shelf.add(group, N0, 1));
    }
    registry.drop_caches();
    let before = footprint(&registry);
    allocated = 0;
    let mut same = |what: &str, run: &dyn Fn()| {
        allocated += grown(run);
        assert_eq!(footprint(&registry) - before, allocated, "{what}");
    };
    for (n, pool) in pools.iter().enumerate() {
        same("pairs", &|| groups[..n * 100 + 50].iter().for_each(|group| pool.shelf.add(group, N0, 50)));
        same("misses", &|| groups[..n * 50 + 1].iter().for_each(|group| pool.misses(group, 3)));
    }
    same("choices", &|| {
        for flags in [Reclaim::FOREGROUND, Reclaim::KSWAPD] {
            batches(500, &registry, tree.root(), flags);
        }
    });
    same("no pairs", &|| assert!(registry.drop_caches() > 0));
    assert_eq!(registry.snapshot().live_pairs, 0);
    same("pairs again", &|| groups.iter().for_each(|group| pools[0].shelf.add(group, N0, 50)));
    same("misses again", &|| groups.iter().for_each(|group| pools[0].misses(group, 1)));
    same("no pairs again", &|| assert!(registry.drop_caches() > 0));
}
