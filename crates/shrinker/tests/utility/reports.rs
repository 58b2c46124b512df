//! A report of misses counts only for a pair with objects in the registry's own tree.
//!
//! A report that counted for another group or shrinker would move memory to the wrong tenant.
//!
//! For each new argument of a report a test is needed here that passes a wrong value.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use lowwater_lru_core::{ByteSize, Memcg, MemcgTree};
use lowwater_shrinker::{
    Miss, MissReporter, PairHint, Progress, Reclaim, Registry, RegistryConfig, ShrinkControl, Work,
};

use super::common::Shelf;
use super::{
    assert_second_pays, batch, batches, fill, honest_weight, shelf, two_pools, weigh_all, weighed, world, Pool, BUDGET,
    N0, OBJECT,
};

#[test]
fn a_pair_that_misses_keeps_its_memory() {
    let (tree, registry) = world(1);
    let pools = two_pools(&tree, &registry, tree.root());
    pools[0].misses(tree.root(), 100);
    assert_second_pays(&registry, tree.root(), [&pools[0], &pools[1]], "misses");
}

#[test]
fn extreme_reports_neither_panic_nor_have_value() {
    let (tree, registry) = world(1);
    let group = tree.root().create("group").unwrap();
    let pools = two_pools(&tree, &registry, &group);
    pools[0].misses(&group, 10_000);
    // None of these misses has a value: too distant, free of cost, or of weight zero.
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
    // A root without a limit, and one with a limit of zero.
    for max in [ByteSize::MAX, ByteSize::ZERO] {
        tree.root().set_max(max);
        (0..100).for_each(|_| pools[0].reporter.miss(&group, Miss::at(ByteSize::MAX)));
        batch(&registry, tree.root(), Reclaim::FOREGROUND);
        batch(&registry, tree.root(), Reclaim::KSWAPD);
    }
}

/// Each pair holds 1,000 objects. A miss counts if the pair could hold as many more as its distance
/// says, within the lowest limit of its group and the groups above it.
#[test]
fn a_miss_counts_only_if_its_distance_is_attainable() {
    let set_limits = [Memcg::set_max, Memcg::set_high as fn(&Memcg, ByteSize)];
    for (limited, set_limit) in (0..3).flat_map(|at| set_limits.map(|set_limit| (at, set_limit))) {
        let (tree, registry) = world(1);
        let parent = tree.root().create("parent").unwrap();
        let group = parent.create("group").unwrap();
        let limit = BUDGET.get() >> limited;
        set_limit([tree.root(), &parent, &group][limited], ByteSize::new(limit));
        let pools = two_pools(&tree, &registry, &group);
        pools[0].misses(&group, 16);
        let far = |held: u64| {
            let miss = Miss::at(ByteSize::new(limit - held * OBJECT)).weight(10_000);
            (0..8).for_each(|_| pools[1].reporter.miss(&group, miss));
        };
        far(900);
        assert_second_pays(&registry, tree.root(), [&pools[0], &pools[1]], "100 objects too far");
        far(1_100);
        assert_second_pays(&registry, tree.root(), [&pools[1], &pools[0]], "near enough by 100 objects");
    }
}

/// A group's own limit does not change the value of its misses.
#[test]
fn a_distance_is_a_fraction_of_the_whole_budget() {
    let (tree, registry) = world(1);
    let pools = ["small", "large"].map(|name| {
        let group = tree.root().create(name).unwrap();
        let pool = Pool::with(&tree, &registry, name, shelf(None, None, honest_weight));
        pool.shelf.add(&group, N0, 1_000);
        (group, pool)
    });
    let [(small, first), (large, second)] = &pools;
    small.set_max(ByteSize::new(BUDGET.get() / 8));
    batch(&registry, tree.root(), Reclaim::KSWAPD);
    let near = Miss::at(ByteSize::new(BUDGET.get() / 64));
    (0..80).for_each(|_| first.reporter.miss(small, near));
    (0..40).for_each(|_| second.reporter.miss(large, near));
    assert_second_pays(&registry, tree.root(), [first, second], "twice the misses");
}

#[test]
fn a_pair_that_needs_memory_is_a_candidate_among_many() {
    let (tree, registry) = world(1);
    let pool = Pool::new(&tree, &registry, "pool");
    let groups: Vec<_> = (0..40).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    groups.iter().for_each(|group| pool.shelf.add(group, N0, 100));
    batch(&registry, tree.root(), Reclaim::KSWAPD);
    let needy = &groups[35];
    groups.iter().filter(|group| *group != needy).for_each(|group| pool.misses(group, 16));
    let hint = PairHint::default();
    assert!(pool.reporter.is_known(&hint, needy));
    let before = pool.shelf.len(needy, N0);
    registry.shrink_least_useful(tree.root(), Some(&hint), Reclaim::FOREGROUND, &mut Work::one_batch(64));
    assert!(pool.shelf.len(needy, N0) < before, "it is the only one without misses");
}

/// The batch in the background counts both pairs just before, so the choice does not count them
/// again: only the pair that needs memory gets a new score.
#[test]
fn the_latest_misses_of_a_pair_that_needs_memory_count() {
    let (tree, registry) = world(1);
    let pools = two_pools(&tree, &registry, tree.root());
    pools[0].misses(tree.root(), 16);
    batch(&registry, tree.root(), Reclaim::KSWAPD);
    // A single report computes no score: only every eighth does.
    pools[1].reporter.miss(tree.root(), Miss::at(ByteSize::new(10 * OBJECT)).weight(10_000));
    let hint = PairHint::default();
    assert!(pools[1].reporter.is_known(&hint, tree.root()));
    let before = [0, 1].map(|at: usize| pools[at].shelf.len(tree.root(), N0));
    registry.shrink_least_useful(tree.root(), Some(&hint), Reclaim::FOREGROUND, &mut Work::one_batch(64));
    let after = [0, 1].map(|at: usize| pools[at].shelf.len(tree.root(), N0));
    assert!(after[0] < before[0] && after[1] == before[1], "{before:?} {after:?}");
}

#[test]
fn a_miss_counts_by_the_seeks_of_its_shrinker() {
    let (tree, registry) = world(1);
    let pools = [("dear", 16), ("cheap", 2)].map(|(name, seeks)| {
        let shelf = Arc::new(shelf(None, None, honest_weight));
        let prepared = registry.builder(name).seeks(seeks).reports_misses(true).alloc().unwrap();
        let reporter = prepared.miss_reporter();
        let registration = shelf.register(prepared);
        shelf.add(tree.root(), N0, 1_000);
        Pool { shelf, registration, reporter }
    });
    batch(&registry, tree.root(), Reclaim::KSWAPD);
    pools[0].misses(tree.root(), 40);
    pools[1].misses(tree.root(), 80);
    assert_second_pays(&registry, tree.root(), [&pools[0], &pools[1]], "half the misses, eight times as dear");
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
    // Another group may get the same id.
    drop(ended);
    let next = tree.root().create("next").unwrap();
    pools[1].misses(&next, 10_000);
    pools[0].misses(&group, 100);
    assert!(!pools[1].reporter.is_known(&hint, &next), "it holds nothing");
    assert_second_pays(&registry, tree.root(), [&pools[0], &pools[1]], "misses of no group");
}

/// Creates two pools with objects of the root and unregisters the first. Returns the first pool's
/// reporter, and the second pool.
fn first_ended(tree: &MemcgTree, registry: &Registry) -> (MissReporter, Pool) {
    let [first, second] = two_pools(tree, registry, tree.root());
    first.registration.unregister().unwrap();
    (first.reporter, second)
}

#[test]
fn a_reporter_outlives_its_registration_registry_and_tree() {
    let (tree, registry) = world(1);
    let (reporter, second) = first_ended(&tree, &registry);
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
fn reports_of_an_ended_registration_do_not_count_for_the_next() {
    let (tree, registry) = world(1);
    let (reporter, second) = first_ended(&tree, &registry);
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
fn reports_to_a_registry_without_utility_are_ignored() {
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
fn reports_race_with_selections() {
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
fn a_shrinker_without_reports_is_scored_by_its_turnover() {
    let (tree, registry) = world(1);
    let useful = weighed(&tree, &registry, "useful");
    let silent = Arc::new(Shelf::of_bytes(OBJECT));
    weigh_all(&silent);
    let prepared = registry.builder("silent").alloc().unwrap();
    let reporter = prepared.miss_reporter();
    let _registration = silent.register(prepared);
    [&useful.shelf, &silent].into_iter().for_each(|shelf| fill(shelf, &tree, 4_000));
    batches(3, &registry, tree.root(), Reclaim::KSWAPD);
    useful.misses(tree.root(), 3_000);
    let before = useful.shelf.total();
    for _ in 0..50 {
        (0..800).for_each(|_| reporter.miss(tree.root(), Miss::at(ByteSize::new(OBJECT))));
        batch(&registry, tree.root(), Reclaim::FOREGROUND);
    }
    assert_eq!(useful.shelf.total(), before);
}

/// While the weighing of a count takes long, another thread advances the clock and reports a miss.
/// The count must not decay the tallies by its own, older epoch: all earlier hits would be lost.
#[test]
fn a_slow_count_forgets_no_hits() {
    let (tree, registry) = world(1);
    let registry = Arc::new(registry);
    let other = weighed(&tree, &registry, "other");
    let (is_armed, late) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::<MissReporter>::new()));
    let mine = {
        let (armed, late) = (Arc::clone(&is_armed), Arc::clone(&late));
        let (weak, root) = (Arc::downgrade(&registry), tree.root().clone());
        let slow = move || {
            let registry = weak.upgrade().unwrap();
            batches(200, &registry, &root, Reclaim::FOREGROUND);
            late.get().unwrap().miss(&root, Miss::at(ByteSize::new(10 * OBJECT)));
        };
        let mine = Shelf::of_bytes(OBJECT);
        let slow = Arc::new(slow);
        let weigh = move |_: &ShrinkControl<'_>| {
            if armed.swap(false, Relaxed) {
                let slow = Arc::clone(&slow);
                std::thread::spawn(move || slow()).join().unwrap();
            }
            Some(ByteSize::new(1_000 * OBJECT))
        };
        assert!(mine.weigh.set(Box::new(weigh)).is_ok());
        Pool::with(&tree, &registry, "mine", mine)
    };
    let Pool { shelf: mine, registration: _registration, reporter } = mine;
    assert!(late.set(reporter).is_ok());
    fill(&mine, &tree, 1_000);
    fill(&other.shelf, &tree, 8_000);
    batch(&registry, tree.root(), Reclaim::KSWAPD);
    let misses = |n| (0..n).for_each(|_| late.get().unwrap().miss(tree.root(), Miss::at(ByteSize::new(10 * OBJECT))));
    misses(10_000);
    other.misses(tree.root(), 100);
    batches(100, &registry, tree.root(), Reclaim::FOREGROUND);
    is_armed.store(true, Relaxed);
    // An epoch ends after 625 freed objects, a sixteenth of `BUDGET_OBJECTS`, so in the second
    // round at the latest; `mine` is then due.
    for _ in 0..3 {
        batch(&registry, tree.root(), Reclaim::KSWAPD);
        batches(70, &registry, tree.root(), Reclaim::FOREGROUND);
    }
    assert!(!is_armed.load(Relaxed), "it was not counted");
    let before = mine.total();
    batches(50, &registry, tree.root(), Reclaim::FOREGROUND);
    assert_eq!(mine.total(), before, "the one with 10,000 hits pays");
}
