//! Selection of victims by utility: from which pairs objects are freed, on which nodes and below
//! which groups; the watermark at which the foreground begins to reclaim; and the memory that the
//! table of pairs takes, exact to the byte.
//!
//! A pair is a shrinker and a group: the objects of one cache that are charged to one group. The
//! victim is the pair with the least utility. A reported miss, on an object that was evicted
//! shortly before, raises the utility of its pair: with more memory it would have been a hit. So a
//! pair without reported misses is the victim.
//!
//! Most tests set up pairs of known utility by reporting misses, free batches of objects, and check
//! from which pairs the objects came.
//!
//! A change must ensure that a test states the victims that it expects: a test that only compares
//! two runs would miss a wrong choice.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use allocation_counter::measure;
use lowwater_lru_core::{ByteSize, Memcg, MemcgTree, NodeId};
use lowwater_shrinker::{Bound, Miss, Progress, Reclaim, Registry, RegistryConfig, Watermarks, Work};

use super::common::{CountFn, Shelf};
use super::{batch, batches, fill, weighed, world, Pool, BUDGET, N0, OBJECT};

#[test]
fn unaware_shrinkers_are_selected_as_victims() {
    for (memcg_aware, numa_aware) in [(false, false), (false, true), (true, false), (true, true)] {
        let (tree, registry) = world(3);
        let group = tree.root().create("group").unwrap();
        let builder = registry.builder("simple").memcg_aware(memcg_aware).numa_aware(numa_aware);
        let prepared = builder.reports_misses(true).alloc().unwrap();
        let reporter = prepared.miss_reporter();
        let shelf = Arc::new(Shelf::new());
        let registration = shelf.register(prepared);
        // An unaware shrinker is called only for the root, or only for node 0.
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
        // Below a limit only the group's own objects are freed.
        let before = shelf.total();
        batches(20, &registry, &group, Reclaim::FOREGROUND);
        assert_eq!(shelf.total() < before, memcg_aware);
        assert_eq!(registration.stats().panics, 0);
    }
}

/// The object may have been added just now: an insert on an otherwise empty node must not lose it
/// at once.
#[test]
fn the_last_object_of_a_node_is_evicted_last() {
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
fn of_two_thousand_pairs_those_without_misses_are_evicted_from() {
    let (tree, registry) = world(1);
    let pool = Pool::new(&tree, &registry, "pool");
    let groups: Vec<_> = (0..2_000).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
    groups.iter().for_each(|group| pool.shelf.add(group, N0, 100));
    // All pairs are counted.
    for _ in 0..200 {
        batch(&registry, tree.root(), Reclaim::KSWAPD);
    }
    groups.iter().step_by(2).for_each(|group| pool.misses(group, 20));
    let held = |odd: usize| groups[odd..].iter().step_by(2).map(|group| pool.shelf.len(group, N0)).sum::<u64>();
    let before = [held(0), held(1)];
    // With so many pairs a call ends with the scan that reaches 8 freed objects, and a scan frees a
    // 16th of a pair: a call frees 12 from pairs of 100, and 8 to 10 from smaller pairs. So 10,000
    // calls do not empty the 1,000 pairs of 100 without misses.
    for _ in 0..10_000 {
        batch(&registry, tree.root(), Reclaim::FOREGROUND);
    }
    let freed = [before[0] - held(0), before[1] - held(1)];
    assert!(freed[1] > 10_000 && freed[1] > 20 * freed[0], "freed of pairs with misses and without: {freed:?}");
}

/// The pair is added between 2,000 others. When these are removed, it moves to another slot, where
/// it must be found.
#[test]
fn a_pair_is_selected_after_most_pairs_were_removed() {
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
fn pairs_are_added_and_removed_during_selections() {
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
                    // Some groups end before the shrinker, others after it.
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
fn no_victim_is_selected_for_foreign_or_protected_groups() {
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
    // One batch frees 8 objects: `BATCH_MAX` of `src/least_useful/victim.rs`.
    assert_eq!(run(Work::one_batch(0)), (0, Some(Bound::Scan)));
    assert_eq!(run(Work::one_batch(3)), (3, Some(Bound::Scan)));
    assert_eq!(run(Work::one_batch(u64::MAX)), (8, None));
    assert_eq!(run(Work::one_batch(1_000)), (8, None));
    assert_eq!(run(Work::objects(1_001)), (1_001, Some(Bound::Scan)));
    let enough = || true;
    assert_eq!(run(Work::one_batch(64).while_not(&enough)), (0, Some(Bound::Enough)));
}

/// A pair that frees its only object is removed, and does not count as a failed pair: after 8 of
/// those (`FAILED_MAX` in `src/least_useful.rs`) the call would end. Up to 16 pairs are all
/// candidates of a selection; of 50 only some are.
#[test]
fn a_call_drains_many_pairs_of_one_object() {
    for n in [10, 50] {
        let (tree, registry) = world(1);
        let pool = Pool::new(&tree, &registry, "pool");
        let groups: Vec<_> = (0..n).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
        groups.iter().for_each(|group| pool.shelf.add(group, N0, 1));
        let mut work = Work::objects(n);
        assert_eq!(registry.shrink_least_useful(tree.root(), None, Reclaim::FOREGROUND, &mut work).freed, n);
    }
}

#[test]
fn is_min_implies_is_low_and_never_holds_without_a_limit() {
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

/// Bytes that `run` allocates and does not free.
fn grown(run: impl FnOnce()) -> i64 {
    measure(run).bytes_current
}

#[test]
fn the_footprint_of_pairs_equals_their_allocations() {
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

/// The utility clock advances with the freed bytes, so with few or large objects an epoch is only a
/// batch or two. Pairs with misses are not drained in such short epochs, although they may not have
/// been counted in the epoch yet.
#[test]
fn each_pair_is_counted_with_a_budget_of_few_objects() {
    for weighs in [true, false] {
        // At most 15 pairs, so that all are candidates (`ALL_MAX` in `src/utility/pairs.rs`).
        for (useful, objects) in [(2, 16), (7, 100), (14, 400), (14, 10_000)] {
            let (tree, registry) = world(1);
            tree.root().set_max(ByteSize::new(objects * OBJECT));
            let pool = |name: &str| match weighs {
                true => weighed(&tree, &registry, name),
                false => Pool::with(&tree, &registry, name, Shelf::of_bytes(OBJECT)),
            };
            let useful: Vec<_> = (0..useful).map(|n| pool(&n.to_string())).collect();
            useful.iter().for_each(|pool| fill(&pool.shelf, &tree, objects / (useful.len() as u64 + 2)));
            batches(1, &registry, tree.root(), Reclaim::KSWAPD);
            let scan = pool("scan");
            let fill_up = || match (tree.root().max().get() - tree.root().usage().get()) / OBJECT {
                0 => {}
                room => fill(&scan.shelf, &tree, room),
            };
            fill_up();
            let held = || useful.iter().map(|pool| pool.shelf.total()).sum::<u64>();
            let before = held();
            for n in 0..objects * 4 {
                let reporter = &useful[n as usize % useful.len()].reporter;
                reporter.miss(tree.root(), Miss::at(ByteSize::new(objects * OBJECT / 8)));
                batch(&registry, tree.root(), Reclaim::FOREGROUND);
                fill_up();
            }
            assert!(held() * 10 >= before * 9, "{weighs}: of {before} they have {}", held());
        }
    }
}

/// The utility clock counts epochs in parts of the budget, so a lower budget makes it faster at
/// once and old misses decay.
#[test]
fn misses_decay_faster_after_the_budget_fell() {
    let (tree, registry) = world(1);
    let [idle, used] = ["idle", "used"].map(|name| weighed(&tree, &registry, name));
    [&idle, &used].into_iter().for_each(|pool| fill(&pool.shelf, &tree, 3_000));
    tree.root().set_max(ByteSize::new(1 << 40));
    batches(3, &registry, tree.root(), Reclaim::KSWAPD);
    tree.root().set_max(BUDGET);
    idle.misses(tree.root(), 2_000);
    let before = idle.shelf.total();
    // 12,500 batches of 8 objects free ten budgets.
    for n in 0..12_500 {
        used.misses(tree.root(), u32::from(n % 20 == 0));
        batch(&registry, tree.root(), Reclaim::FOREGROUND);
        match 3_000_u64.saturating_sub(used.shelf.total()) {
            0 => {}
            gone => fill(&used.shelf, &tree, gone),
        }
    }
    assert!(idle.shelf.total() < before / 10, "after ten budgets were freed it has {} of {before}", idle.shelf.total());
}

/// If a shrinker defers in the foreground, its objects count as deferred, and the background still
/// selects the pair.
#[test]
fn a_pair_that_defers_in_the_foreground_is_reclaimed_in_the_background() {
    let (tree, registry) = world(1);
    let [useful, lazy] = ["useful", "lazy"].map(|name| weighed(&tree, &registry, name));
    let defer: CountFn = Box::new(|sc| {
        if !sc.flags().contains(Reclaim::BACKGROUND) {
            sc.will_defer();
        }
        None
    });
    assert!(lazy.shelf.count.set(defer).is_ok());
    [&useful, &lazy].into_iter().for_each(|pool| fill(&pool.shelf, &tree, 4_000));
    batches(3, &registry, tree.root(), Reclaim::KSWAPD);
    useful.misses(tree.root(), 10_000);
    let (mut paid, held) = ([0, 0], || [useful.shelf.total(), lazy.shelf.total()]);
    for _ in 0..200 {
        batch(&registry, tree.root(), Reclaim::FOREGROUND);
        let before = held();
        batch(&registry, tree.root(), Reclaim::KSWAPD);
        let after = held();
        paid = [0, 1].map(|n| paid[n] + before[n] - after[n]);
    }
    assert!(paid[0] < 100 && paid[1] > 1_000, "in the background they paid {paid:?}");
    assert!(lazy.registration.stats().deferred > 0, "nothing was deferred");
}

/// The work's bound is reached between the count and the scan, as if another thread had freed
/// enough meanwhile. The pair has freed nothing, and must still be a candidate afterwards.
#[test]
fn a_bound_reached_in_a_count_does_not_mark_the_pair_empty() {
    let (tree, registry) = world(1);
    let [useful, scan] = ["useful", "scan"].map(|name| weighed(&tree, &registry, name));
    [&useful, &scan].into_iter().for_each(|pool| fill(&pool.shelf, &tree, 4_000));
    batches(3, &registry, tree.root(), Reclaim::KSWAPD);
    useful.misses(tree.root(), 3_000);
    let before = [&useful, &scan].map(|pool| pool.shelf.total());
    let looks = AtomicU64::new(0);
    let is_enough = || looks.fetch_add(1, Relaxed) >= 1;
    let mut work = Work::one_batch(64).while_not(&is_enough);
    registry.shrink_least_useful(tree.root(), None, Reclaim::FOREGROUND, &mut work);
    batches(20, &registry, tree.root(), Reclaim::KSWAPD);
    let paid = [before[0] - useful.shelf.total(), before[1] - scan.shelf.total()];
    assert!(paid[0] == 0 && paid[1] >= 100, "{paid:?}");
}
