//! The pairs that a call selects, the number of objects that it asks a pair for, and the end of the
//! trust in a pair whose reports do not lower usage.
//!
//! The shrinkers are [`Pool`]s, which report a fixed number of objects and free all objects that
//! they are asked for, or none, so a test knows the rank of each pair beforehand. The numbers in
//! the tests are those of the constants in [`victim`](super::victim), [`least_useful`](super) and
//! [`pairs`](crate::utility).
//!
//! A change must ensure that each pair's rank is known before the call.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;

use lowwater_lru_core::{ByteSize, MemcgId, MemcgTree, NodeId};

use super::*;
use crate::control::ShrinkControl;
use crate::utility::log2;
use crate::{Count, Registration, Registry, RegistryConfig, Scan, Shrinker};

/// Holds always the same number of objects of 1,000 bytes for each group.
#[derive(Default)]
struct Pool {
    /// The number of objects on node 0.
    objects: u64,
    /// The number of objects that each node holds more than the node before it.
    on_next_node: u64,
    frees: bool,
    /// The number of objects that it still keeps before it frees the first.
    kept: AtomicU64,
    /// Uncharges the objects that it frees.
    is_honest: AtomicBool,
    /// The bytes that it reports for each freed object; 0: it reports none.
    reported: AtomicU64,
    /// The number of counts since the last call of `counts`.
    counts: AtomicU64,
    /// A clock on which each count takes a second.
    slow: std::sync::OnceLock<Arc<Ticks>>,
    /// The group and the number of objects of each scan.
    asked: Mutex<Vec<(MemcgId, u64)>>,
}

/// A clock that advances by 10 ns when it is read.
struct Ticks(AtomicU64);

impl crate::Clock for Ticks {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(10, Relaxed) + 10
    }
}

impl Pool {
    fn held(&self, sc: &ShrinkControl<'_>) -> u64 {
        self.objects + self.on_next_node * sc.node().index() as u64
    }

    fn counts(&self) -> u64 {
        self.counts.swap(0, Relaxed)
    }

    fn asked(&self) -> Vec<u64> {
        self.asked.lock().unwrap().drain(..).map(|(_, nr)| nr).collect()
    }
}

impl Shrinker for Pool {
    fn count_objects(&self, sc: &ShrinkControl<'_>) -> Count {
        self.counts.fetch_add(1, Relaxed);
        if let Some(clock) = self.slow.get() {
            clock.0.fetch_add(1_000_000_000, Relaxed);
        }
        Count::Objects(self.held(sc))
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        self.asked.lock().unwrap().push((sc.memcg().id(), sc.nr_to_scan()));
        let kept = self.kept.load(Relaxed).min(sc.nr_to_scan());
        self.kept.fetch_sub(kept, Relaxed);
        let freed = if self.frees { sc.nr_to_scan() - kept } else { 0 };
        if self.is_honest.load(Relaxed) {
            sc.memcg().uncharge(ByteSize::new(freed * 1_000));
        }
        if let bytes @ 1.. = self.reported.load(Relaxed) {
            sc.set_freed_bytes(ByteSize::new(freed * bytes));
        }
        Scan::Freed(freed)
    }

    fn weigh_objects(&self, sc: &ShrinkControl<'_>) -> Option<ByteSize> {
        Some(ByteSize::new(self.held(sc) * 1_000))
    }
}

fn world(nodes: usize, budget: u64) -> (MemcgTree, Registry) {
    let tree = MemcgTree::new(0);
    tree.root().set_max(ByteSize::new(budget));
    let registry = Registry::with_config(&tree, RegistryConfig::new(nodes).by_utility(true));
    (tree, registry)
}

/// A pool that holds something for each of these groups.
fn pool(registry: &Registry, groups: &[Memcg], objects: u64, frees: bool, seeks: u32) -> (Arc<Pool>, Registration) {
    let builder = registry.builder("pool").seeks(seeks);
    made(builder, groups, objects, frees)
}

fn made(builder: crate::ShrinkerBuilder<'_>, groups: &[Memcg], objects: u64, frees: bool) -> (Arc<Pool>, Registration) {
    let pool = Arc::new(Pool { objects, on_next_node: 10, frees, ..Pool::default() });
    let prepared = builder.alloc().unwrap();
    let occupancy = prepared.occupancy();
    let registration = prepared.register(Arc::clone(&pool) as Arc<dyn Shrinker>);
    groups.iter().for_each(|group| occupancy.occupied(group, NodeId::ZERO));
    (pool, registration)
}

fn groups(tree: &MemcgTree, n: u32) -> Vec<Memcg> {
    (0..n).map(|n| tree.root().create(&alloc::format!("{n}")).unwrap()).collect()
}

fn batch(registry: &Registry, flags: Reclaim) -> Progress {
    registry.shrink_least_useful(registry.root(), None, flags, &mut Work::one_batch(1 << 20))
}

fn pairs(registry: &Registry) -> &Pairs {
    registry.core.map.by_utility().unwrap()
}

fn state(registry: &Registry, slot: u32) -> PairState {
    pairs(registry).pair(slot).unwrap().state()
}

fn rank(registry: &Registry, slot: u32) -> i32 {
    match state(registry, slot) {
        PairState::Scored(score) => score.rank(pairs(registry).clock.epoch(), registry.root().max().get()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_batch_takes_objects_from_several_small_pairs() {
    let (foreground, background) = (Reclaim::FOREGROUND, Reclaim::KSWAPD);
    for (n, flags, freed) in
        [(16, foreground, 1), (17, foreground, 8), (50, foreground, 8), (17, background, 17), (50, background, 18)]
    {
        let (tree, registry) = world(1, 1 << 30);
        let groups = groups(&tree, n);
        let (pool, _registration) = pool(&registry, &groups, 1, true, 2);
        // All are counted, and of the same rank. Up to 16 pairs are all candidates, and then a
        // batch is from one pair. Of more, the background has up to 18 candidates.
        batch(&registry, background);
        pool.asked.lock().unwrap().clear();
        assert_eq!(batch(&registry, flags).freed, freed, "of {n}");
        let mut asked = core::mem::take(&mut *pool.asked.lock().unwrap());
        assert!(asked.iter().all(|(_, nr)| *nr == 1));
        asked.dedup();
        assert_eq!(asked.len() as u64, freed, "each from another");
    }
}

#[test]
fn a_pair_is_asked_for_a_64th_of_its_objects_and_at_most_8_or_32() {
    let few = [(1, 1), (127, 1), (128, 2), (511, 7)];
    let foreground = few.into_iter().chain([(512, 8), (100_000, 8)]).map(|case| (Reclaim::FOREGROUND, case));
    let background = few.into_iter().chain([(2_047, 31), (2_048, 32), (100_000, 32)]);
    for (flags, (objects, nr)) in foreground.chain(background.map(|case| (Reclaim::KSWAPD, case))) {
        let (tree, registry) = world(1, 1 << 40);
        let (pool, _registration) = pool(&registry, &[tree.root().clone()], objects, true, 2);
        assert_eq!(batch(&registry, flags).freed, nr);
        assert_eq!(pool.asked(), [nr], "of {objects}");
    }
}

#[test]
fn of_many_pairs_one_is_asked_for_a_16th_of_its_objects_and_at_most_8_or_32() {
    let (foreground, background) = (Reclaim::FOREGROUND, Reclaim::KSWAPD);
    for (flags, objects, nr) in [
        (foreground, 31, 1),
        (foreground, 32, 2),
        (foreground, 127, 7),
        (foreground, 1_000, 8),
        (background, 511, 31),
        (background, 1_000, 32),
    ] {
        let (tree, registry) = world(1, 1 << 40);
        let (pool, _registration) = pool(&registry, &groups(&tree, 17), objects, true, 2);
        batch(&registry, background);
        pool.asked();
        batch(&registry, flags);
        assert_eq!(pool.asked().first(), Some(&nr), "of {objects}");
    }
}

#[test]
fn of_many_pairs_one_without_hits_is_asked_for_a_quarter_of_its_objects_and_at_most_8() {
    const LARGE: u64 = 1 << 40;
    // A 64th of a budget of 192,000 bytes is three objects, and of one of 32,000 not even one.
    for (objects, budget, nr) in [(1, LARGE, 1), (7, LARGE, 1), (8, LARGE, 2), (31, LARGE, 7), (32, LARGE, 8)]
        .into_iter()
        .chain([(1_000, LARGE, 8), (1_000, 192_000, 3), (1_000, 32_000, 1)])
    {
        let (tree, registry) = world(1, budget);
        let builder = registry.builder("pool").reports_misses(true);
        let (pool, _registration) = made(builder, &groups(&tree, 17), objects, true);
        batch(&registry, Reclaim::KSWAPD);
        pool.asked();
        batch(&registry, Reclaim::FOREGROUND);
        assert_eq!(pool.asked().first(), Some(&nr), "of {objects}");
    }
}

#[test]
fn a_batch_ends_where_low_or_min_protects_the_group() {
    for flags in [Reclaim::FOREGROUND, Reclaim::KSWAPD] {
        for (n, spare, nr) in [(1, 900, 1), (1, 1_000, 1), (1, 5_999, 5), (17, 5_999, 5)] {
            for is_low in [true, false] {
                let (tree, registry) = world(1, 1 << 40);
                let groups = groups(&tree, n);
                let (pool, _registration) = pool(&registry, &groups[..1], 100_000, true, 2);
                core::mem::forget(groups[0].try_charge(ByteSize::mib(1)).unwrap());
                let limit = ByteSize::mib(1).saturating_sub(ByteSize::new(spare));
                if is_low {
                    groups[0].set_low(limit);
                } else {
                    groups[0].set_min(limit);
                }
                assert_eq!(batch(&registry, flags).freed, nr);
                assert_eq!(pool.asked(), [nr], "of 1,000 bytes each, {spare} above the limit");
            }
        }
    }
}

/// As many objects are scanned as without protection, one at a time, in as many visits.
#[test]
fn a_pair_near_its_low_or_min_is_not_taken_below_it_after_it_has_kept_objects() {
    for (flags, visits) in [(Reclaim::FOREGROUND, 32), (Reclaim::KSWAPD, 8)] {
        for (kept, asked) in [(0, 1), (31, 32), (300, 256)] {
            let (tree, registry) = world(1, 1 << 40);
            let group = tree.root().create("group").unwrap();
            let (pool, _registration) = pool(&registry, core::slice::from_ref(&group), 100_000, true, 2);
            pool.is_honest.store(true, Relaxed);
            pool.kept.store(kept, Relaxed);
            core::mem::forget(group.try_charge(ByteSize::mib(1)).unwrap());
            let min = ByteSize::new((1 << 20) - 900);
            group.set_min(min);
            let callbacks = batch(&registry, flags).callbacks;
            assert_eq!(pool.asked(), [1].repeat(asked), "{kept} kept");
            assert!(callbacks <= visits + 1, "{callbacks} for {kept} kept");
            assert!(group.usage().get() + 100 >= min.get(), "{} of {min}", group.usage());
        }
    }
}

#[test]
fn of_many_pairs_one_without_hits_frees_a_64th_of_the_budget_after_it_has_kept_objects() {
    let (tree, registry) = world(1, 192_000);
    let builder = registry.builder("pool").reports_misses(true);
    let (pool, _registration) = made(builder, &groups(&tree, 17), 1_000, true);
    batch(&registry, Reclaim::KSWAPD);
    pool.asked();
    pool.kept.store(40, Relaxed);
    batch(&registry, Reclaim::KSWAPD);
    let asked = pool.asked.lock().unwrap();
    let of_first: u64 = asked.iter().filter(|(group, _)| *group == asked[0].0).map(|(_, nr)| nr).sum();
    assert_eq!(of_first, 40 + 3, "{asked:?}");
}

#[test]
fn a_pair_that_keeps_all_objects_is_asked_for_at_most_256_and_rises_in_rank() {
    let (tree, registry) = world(1, 1 << 30);
    let builder = registry.builder("keeps").reports_misses(true);
    let (pool, _registration) = made(builder, &[tree.root().clone()], 1_000, false);
    let scorer = Scorer::new(&registry.core, pairs(&registry), Reclaim::FOREGROUND);
    scorer.count(0);
    let before = rank(&registry, 0);
    batch(&registry, Reclaim::FOREGROUND);
    assert_eq!(pool.asked(), [8; 32]);
    assert!(rank(&registry, 0) > before + 4 * ONE, "{before}");
}

#[test]
fn a_pair_that_kept_all_objects_is_asked_again_after_a_batch_of_another_pair() {
    let (tree, registry) = world(1, 1 << 30);
    let (keeps, _keeps) = pool(&registry, &[tree.root().clone()], 10_000, false, 2);
    let (gives, _gives) = pool(&registry, &[tree.root().clone()], 1_000, true, 2);
    let freed = registry.shrink_least_useful(registry.root(), None, Reclaim::KSWAPD, &mut Work::objects(2_000)).freed;
    assert_eq!(keeps.asked().iter().sum::<u64>(), 7 * 256 + 103, "the bound ends the eighth time");
    assert_eq!((gives.asked(), freed), ([15; 7].to_vec(), 7 * 15));
}

/// A batch is 8,000 bytes, a sixteenth of the budget: it advances the clock by one epoch. The first
/// bytes end an epoch at once (`utility/clock.rs`).
#[test]
fn a_pair_whose_reports_do_not_lower_usage_advances_the_clock_seven_times() {
    let (tree, registry) = world(1, 16 * 8_000);
    let (_pool, _registration) = pool(&registry, &[tree.root().clone()], 1_000_000, true, 2);
    let epochs: Vec<_> = (0..20)
        .map(|_| {
            batch(&registry, Reclaim::FOREGROUND);
            pairs(&registry).clock.epoch()
        })
        .collect();
    assert_eq!(epochs[..7], [2, 3, 4, 5, 6, 7, 8], "one for each batch, and the first");
    assert_eq!(epochs[7..], [8; 13]);
    for n in 21..=62 {
        batch(&registry, Reclaim::FOREGROUND);
        assert!(matches!(state(&registry, 0), PairState::Scored(_)), "batch {n}");
    }
    batch(&registry, Reclaim::FOREGROUND);
    assert_eq!(state(&registry, 0), PairState::Empty(8), "after 63 it is passed over");
}

/// Large objects stay, and small ones come and go.
#[test]
fn the_clock_advances_by_the_reported_bytes() {
    let (tree, registry) = world(1, 16 * 8_000);
    let (pool, _registration) = pool(&registry, &[tree.root().clone()], 1_000_000, true, 2);
    core::mem::forget(tree.root().try_charge(ByteSize::new(16 * 8_000)).unwrap());
    pool.is_honest.store(true, Relaxed);
    pool.reported.store(10, Relaxed);
    (0..10).for_each(|_| _ = batch(&registry, Reclaim::FOREGROUND));
    assert_eq!(pairs(&registry).clock.epoch(), 1, "80 bytes each time, and not 8,000");
}

#[test]
fn a_pair_that_lowers_its_groups_usage_always_advances_the_clock() {
    let (tree, registry) = world(1, 1_600_000);
    let (pool, _registration) = pool(&registry, &[tree.root().clone()], 1_000, true, 2);
    core::mem::forget(tree.root().try_charge(ByteSize::new(1_600_000)).unwrap());
    pool.is_honest.store(true, Relaxed);
    (0..100).for_each(|_| _ = batch(&registry, Reclaim::FOREGROUND));
    assert_eq!(tree.root().usage(), ByteSize::new(800_000));
    let epoch = pairs(&registry).clock.epoch();
    assert!((8..=9).contains(&epoch), "{epoch} sixteenths of the budget, where eight were evicted");
}

#[test]
fn after_the_least_useful_pair_only_pairs_of_similar_rank_are_asked() {
    let (tree, registry) = world(1, 1 << 30);
    let groups = groups(&tree, 20);
    let (_pool, _registration) = pool(&registry, &groups, 10, true, 2);
    let call = LeastUseful { core: &registry.core, limit: tree.root(), needy: None, flags: Reclaim::FOREGROUND };
    let candidates = pairs(&registry).candidates(None, true);
    let mut round = Round { candidates, ranks: [i32::MAX; CANDIDATES_MAX], rank_end: i32::MAX };
    round.ranks[..5].copy_from_slice(&[9, 5, 5 + ONE / 2, 5 + ONE / 2 - 1, 6]);
    let slots = round.candidates.as_slice().to_vec();
    let slot = |at: usize| slots[at];
    let next = core::iter::from_fn(|| Some(call.next_victim(pairs(&registry), &mut round)?.slot));
    assert_eq!(next.collect::<Vec<_>>(), [1, 4, 0, 3].map(slot));
}

#[test]
fn the_foreground_counts_one_due_pair_and_the_background_all() {
    let (tree, registry) = world(1, 1 << 30);
    let groups = groups(&tree, 10);
    let (pool, _registration) = pool(&registry, &groups, 1_000, true, 2);
    let next_epoch = || pairs(&registry).clock.advance(1 << 30, 1 << 30);
    let counts = |flags| {
        batch(&registry, flags);
        pool.counts()
    };
    // Two batches, because the first bytes that are evicted begin an epoch. The scan of a batch
    // counts its pair, too.
    (0..2).for_each(|_| _ = counts(Reclaim::KSWAPD));
    let of_scan = counts(Reclaim::FOREGROUND);
    let again = counts(Reclaim::KSWAPD);
    assert_eq!(again, of_scan, "none is due in the same epoch");
    next_epoch();
    assert_eq!(counts(Reclaim::FOREGROUND), of_scan + 1);
    next_epoch();
    assert_eq!(counts(Reclaim::KSWAPD), of_scan + 10);
}

#[test]
fn with_many_pairs_the_foreground_also_counts_the_pair_that_needs_memory() {
    for (n, counts) in [(16, 1), (17, 2)] {
        let (tree, registry) = world(1, 1 << 30);
        let groups = groups(&tree, n);
        let (pool, _registration) = pool(&registry, &groups, 1_000, true, 2);
        let counts_of = |needy, flags| {
            let call = LeastUseful { core: &registry.core, limit: tree.root(), needy, flags };
            assert!(call.run(&mut Work::one_batch(1 << 20)).freed >= 8);
            pool.counts()
        };
        // As in the test before.
        (0..2).for_each(|_| _ = counts_of(None, Reclaim::KSWAPD));
        let of_scan = counts_of(Some(0), Reclaim::FOREGROUND);
        pairs(&registry).clock.advance(1 << 30, 1 << 30);
        assert_eq!(counts_of(Some(0), Reclaim::FOREGROUND), of_scan + counts, "of {n}");
    }
}

/// A sixteenth of the usage is a MiB, and a 64th of an epoch. Each batch evicts 8,000 bytes.
#[test]
fn below_a_groups_limit_a_pair_is_due_when_a_sixteenth_of_the_usage_was_evicted() {
    let (tree, registry) = world(1, 1 << 30);
    let limit = tree.root().create("limit").unwrap();
    let mut groups = groups(&tree, 3);
    groups.extend(["a", "b", "c"].map(|name| limit.create(name).unwrap()));
    let (pool, registration) = pool(&registry, &groups, 100_000, true, 2);
    core::mem::forget(limit.try_charge(ByteSize::mib(16)).unwrap());
    let evict = |kib: u64| pairs(&registry).clock.advance(kib << 10, 1 << 30);
    let counts = |limit, needy, flags| {
        LeastUseful { core: &registry.core, limit, needy, flags }.run(&mut Work::one_batch(1 << 20));
        pool.counts()
    };
    let (foreground, background) = (Reclaim::FOREGROUND, Reclaim::KSWAPD);
    // Two batches, because the first bytes that are evicted begin an epoch.
    (0..2).for_each(|_| _ = counts(tree.root(), None, background));
    let of_scan = counts(&limit, None, foreground);
    evict(900);
    assert_eq!(counts(&limit, None, foreground), of_scan, "less than a MiB so far");
    evict(116);
    for more in [1, 1, 1, 0] {
        assert_eq!(counts(&limit, None, foreground), of_scan + more, "one of the pairs below the group");
    }
    evict(1_100);
    assert_eq!(counts(tree.root(), None, background), of_scan, "none, where the budget is the limit");
    let slot = pairs(&registry).find(registration.id().get(), groups[3].id());
    assert_eq!(counts(&limit, slot, foreground), of_scan + 2, "the needy pair, and another one");
    assert_eq!(counts(&limit, slot, foreground), of_scan + 1);
    evict(1_100);
    assert_eq!(counts(&limit, slot, background), of_scan + 3);
}

/// A sixteenth of the usage would be 32 KiB or 8.
#[test]
fn below_a_small_limit_a_pair_is_due_when_64_kib_or_a_quarter_were_evicted_anywhere() {
    for (usage, too_few, enough) in [(512, 40, 64), (128, 16, 40)] {
        counts_after(ByteSize::kib(usage), too_few, enough);
    }
}

fn counts_after(usage: ByteSize, too_few: u64, enough: u64) {
    let (tree, registry) = world(1, 1 << 30);
    let limit = tree.root().create("limit").unwrap();
    let groups = [limit.clone(), tree.root().create("other").unwrap()];
    // A batch is of 8.
    let (pool, _registration) = pool(&registry, &groups, 512, true, 2);
    core::mem::forget(limit.try_charge(usage).unwrap());
    let evict = |kib: u64| pairs(&registry).clock.advance(kib << 10, 1 << 30);
    let counts = || {
        registry.shrink_least_useful(&limit, None, Reclaim::KSWAPD, &mut Work::one_batch(1 << 20));
        pool.counts()
    };
    (0..2).for_each(|_| _ = counts());
    let of_scan = counts();
    evict(too_few);
    assert_eq!(counts(), of_scan, "{too_few} KiB, below {usage}");
    evict(enough);
    assert_eq!(counts(), of_scan + 1, "{enough} KiB more, below {usage}");
}

#[test]
fn below_a_groups_limit_a_pair_that_counted_zero_is_due_and_one_that_freed_nothing_is_not() {
    let (tree, registry) = world(1, 1 << 30);
    let limit = tree.root().create("limit").unwrap();
    let groups = ["a", "b"].map(|name| limit.create(name).unwrap());
    let (_pool, _registration) = pool(&registry, &groups, 100_000, true, 2);
    core::mem::forget(limit.try_charge(ByteSize::mib(16)).unwrap());
    let evict = |kib: u64| pairs(&registry).clock.advance(kib << 10, 1 << 30);
    let batch = || registry.shrink_least_useful(&limit, None, Reclaim::KSWAPD, &mut Work::one_batch(1 << 20)).freed;
    evict(1);
    batch();
    let empty = PairState::Empty(pairs(&registry).clock.epoch() as u16);
    pairs(&registry).pair(0).unwrap().set_state(empty);
    batch();
    assert_eq!(state(&registry, 0), empty);
    evict(1_100);
    batch();
    assert!(matches!(state(&registry, 0), PairState::Scored(_)));
    pairs(&registry).set_empty(0);
    evict(1_100);
    assert_eq!(batch(), 32, "of the other pair");
    assert_eq!(state(&registry, 0), empty, "until the next epoch");
    evict(64 << 10);
    batch();
    assert!(matches!(state(&registry, 0), PairState::Scored(_)));
}

#[test]
fn a_call_asks_at_most_eight_pairs_that_free_nothing() {
    for n in [12, 20] {
        let (tree, registry) = world(1, 1 << 30);
        let groups = groups(&tree, n);
        let (pool, _registration) = pool(&registry, &groups, 1_000, false, 2);
        assert_eq!(batch(&registry, Reclaim::KSWAPD).freed, 0);
        // A 64th of the objects is 15, a 16th more than 32; up to 256 are scanned.
        assert_eq!(pool.asked(), if n <= 16 { [15; 8 * 18].to_vec() } else { [32; 8 * 8].to_vec() }, "of {n}");
    }
}

#[test]
fn the_pairs_below_a_group_are_found_among_many() {
    let (tree, registry) = world(1, 1 << 30);
    let mut groups = groups(&tree, 3_000);
    groups.push(groups[30].create("child").unwrap());
    let (pool, _registration) = pool(&registry, &groups, 1_000, true, 2);
    for limit in [&groups[2_999], &groups[30], &groups[3_000], &groups[1_500]] {
        for (flags, freed) in [(Reclaim::FOREGROUND, 8), (Reclaim::KSWAPD, 32)] {
            assert_eq!(registry.shrink_least_useful(limit, None, flags, &mut Work::one_batch(64)).freed, freed);
        }
    }
    assert!(pool.counts() <= 30, "only pairs below the limits are counted");
}

#[test]
fn an_empty_pair_is_counted_again_if_there_is_no_other() {
    let (tree, registry) = world(1, 1 << 30);
    let (_pool, _registration) = pool(&registry, &[tree.root().clone()], 1_000, true, 2);
    pairs(&registry).pair(0).unwrap().set_state(PairState::Empty(0));
    assert_eq!(batch(&registry, Reclaim::FOREGROUND).freed, 8);
}

#[test]
fn a_pair_that_counts_zero_is_empty() {
    let (tree, registry) = world(1, 1 << 30);
    let (_pool, _registration) = pool(&registry, &[tree.root().clone()], 0, true, 2);
    let scorer = Scorer::new(&registry.core, pairs(&registry), Reclaim::KSWAPD);
    scorer.count(0);
    assert_eq!(state(&registry, 0), PairState::Empty(0));
}

#[test]
fn a_pairs_objects_and_weight_are_summed_over_all_nodes() {
    let (tree, registry) = world(3, 1 << 30);
    let (_pool, _registration) = pool(&registry, &[tree.root().clone()], 5, true, 2);
    let scorer = Scorer::new(&registry.core, pairs(&registry), Reclaim::KSWAPD);
    scorer.count(0);
    let tallies = pairs(&registry).tallies(0).unwrap();
    assert_eq!((tallies.objects(), tallies.mean()), (5 + 15 + 25, 1_000));
}

#[test]
fn objects_with_a_high_miss_cost_rank_higher() {
    let (tree, registry) = world(1, 1 << 30);
    let root = [tree.root().clone()];
    let _pools: Vec<_> = [2, 16, 0].map(|seeks| pool(&registry, &root, 1_000, true, seeks)).into();
    let scorer = Scorer::new(&registry.core, pairs(&registry), Reclaim::KSWAPD);
    (0..3).for_each(|slot| scorer.count(slot));
    let rank = |slot| rank(&registry, slot);
    // A turnover of 1, whose logarithm is 0. No pair has reported misses, so one hit in the budget
    // is assumed; the last term is the penalty for the size.
    assert_eq!(rank(0), -30 * ONE - log2(1_000_000) / 10);
    assert_eq!((rank(1) - rank(0), rank(2) - rank(0)), (3 * ONE, -ONE));
}

/// Ends its own registration when it is first scanned, and frees nothing.
#[derive(Default)]
struct Ending {
    registration: Mutex<Option<Registration>>,
    calls: Mutex<Vec<&'static str>>,
}

impl Shrinker for Ending {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        self.calls.lock().unwrap().push("count");
        Count::Objects(100)
    }

    fn scan_objects(&self, _: &mut ShrinkControl<'_>) -> Scan {
        self.calls.lock().unwrap().push("scan");
        drop(self.registration.lock().unwrap().take());
        Scan::Freed(0)
    }
}

#[test]
fn a_shrinker_that_deregistered_in_a_scan_is_not_called_again() {
    let (tree, registry) = world(1, 1 << 30);
    let ending = Arc::new(Ending::default());
    let prepared = registry.builder("ending").alloc().unwrap();
    let occupancy = prepared.occupancy();
    let registration = prepared.register(Arc::clone(&ending) as Arc<dyn Shrinker>);
    *ending.registration.lock().unwrap() = Some(registration);
    occupancy.occupied(tree.root(), NodeId::ZERO);
    assert_eq!(batch(&registry, Reclaim::FOREGROUND).freed, 0);
    let calls: Vec<_> = ending.calls.lock().unwrap().clone();
    assert_eq!(calls, ["count", "count", "scan"], "one count for the score, and one visit");
}

#[test]
fn a_thread_inside_a_closed_shrinker_does_not_count_it() {
    let (tree, registry) = world(1, 1 << 30);
    let group = tree.root().clone();
    let (pool, registration) = pool(&registry, core::slice::from_ref(&group), 100, true, 2);
    let scorer = Scorer::new(&registry.core, pairs(&registry), Reclaim::KSWAPD);
    let mut guard = registry.core.lookup(registration.id().get()).unwrap();
    scorer.count_inside(0, &group, &mut guard);
    assert_eq!(pool.counts(), 1);
    guard.quarantine();
    scorer.count_inside(0, &group, &mut guard);
    assert_eq!(pool.counts(), 0);
}

/// Reports a freed block of 2,048 objects of 4,096 bytes in each scan, more than are requested.
struct Blocks {
    blocks: AtomicU64,
    is_weighed: bool,
    /// The number of blocks that a scan frees; it reports one.
    freed: u64,
    /// The bytes that a scan uncharges beside those of the freed blocks.
    uncharged: u64,
}

const BLOCK: u64 = 2_048;
const BLOCK_BYTES: u64 = BLOCK * 4_096;

impl Shrinker for Blocks {
    fn count_objects(&self, _: &ShrinkControl<'_>) -> Count {
        Count::Objects(self.blocks.load(Relaxed) * BLOCK)
    }

    fn scan_objects(&self, sc: &mut ShrinkControl<'_>) -> Scan {
        self.blocks.fetch_sub(self.freed, Relaxed);
        sc.memcg().uncharge(ByteSize::new(self.freed * BLOCK_BYTES + self.uncharged));
        Scan::Freed(BLOCK)
    }

    fn weigh_objects(&self, _: &ShrinkControl<'_>) -> Option<ByteSize> {
        self.is_weighed.then(|| ByteSize::new(self.blocks.load(Relaxed) * BLOCK_BYTES))
    }
}

/// After `n` scans of a pair of 64 blocks, each followed by an insert of the bytes that it
/// uncharged: returns the number of inserted objects per object held, the mean size of an object,
/// and the KiB by which the clock advanced.
fn blocks_after(n: u64, is_weighed: bool, freed: u64, uncharged: u64) -> (f64, u64, u64) {
    let (tree, registry) = world(1, 1 << 40);
    let blocks = Arc::new(Blocks { blocks: 64.into(), is_weighed, freed, uncharged });
    let prepared = registry.builder("blocks").alloc().unwrap();
    let occupancy = prepared.occupancy();
    let _registration = prepared.register(Arc::clone(&blocks) as Arc<dyn Shrinker>);
    occupancy.occupied(tree.root(), NodeId::ZERO);
    core::mem::forget(tree.root().try_charge(ByteSize::new(64 * BLOCK_BYTES)).unwrap());
    // The first bytes end an epoch, in which tallies decay.
    pairs(&registry).clock.advance(1, 1 << 40);
    let scorer = Scorer::new(&registry.core, pairs(&registry), Reclaim::KSWAPD);
    scorer.count(0);
    let before = pairs(&registry).clock.kib_left();
    for _ in 0..n {
        assert_eq!(batch(&registry, Reclaim::FOREGROUND).freed, BLOCK);
        blocks.blocks.fetch_add(freed, Relaxed);
        core::mem::forget(tree.root().try_charge(ByteSize::new(freed * BLOCK_BYTES + uncharged)).unwrap());
    }
    let advanced = before - pairs(&registry).clock.kib_left();
    scorer.count(0);
    let tallies = pairs(&registry).tallies(0).unwrap();
    let turnover = f64::from(tallies.turnover(pairs(&registry).clock.epoch()).unwrap()) / f64::from(ONE);
    (turnover.exp2(), tallies.mean(), advanced.into())
}

/// 64 blocks were inserted before the first count, and 64 after it.
#[test]
fn objects_that_a_scan_freed_beyond_256_count_as_inserted_later() {
    for is_weighed in [true, false] {
        let (turnover, mean, kib) = blocks_after(64, is_weighed, 1, 0);
        assert!((turnover - 2.0).abs() < 0.01, "weighed {is_weighed}: {turnover} inserts per object");
        assert_eq!(mean, 4_096, "weighed {is_weighed}");
        assert!(kib.abs_diff(64 * BLOCK_BYTES / 1_024) <= 1, "weighed {is_weighed}: {kib} KiB");
    }
}

/// A report of more than 256 objects is no evidence, whether nothing or a few bytes are uncharged.
#[test]
fn of_freed_objects_that_are_still_counted_at_most_256_count() {
    for (is_weighed, uncharged) in [(true, 0), (false, 0), (true, 64), (false, 64)] {
        let (turnover, ..) = blocks_after(32, is_weighed, 0, uncharged);
        assert!((turnover - 1.0625).abs() < 0.01, "weighed {is_weighed}, {uncharged} bytes: {turnover}");
    }
}

#[test]
fn the_time_of_counts_between_two_visits_is_no_visits_but_is_bounded() {
    let tree = MemcgTree::new(0);
    tree.root().set_max(ByteSize::new(128_000));
    let ticks = Arc::new(Ticks(AtomicU64::new(0)));
    let config = RegistryConfig::new(1).by_utility(true).clock(Arc::clone(&ticks) as Arc<dyn crate::Clock>);
    let registry = Registry::with_config(&tree, config);
    // No hits of the other pool are known, so it is each victim; each of its batches ends an epoch,
    // after which both are counted.
    let builder = registry.builder("slow");
    let (slow, kept) = made(builder, &[tree.root().clone()], 1_000, true);
    let builder = registry.builder("victim").reports_misses(true);
    let (victim, freed) = made(builder, &[tree.root().clone()], 1_000_000, true);
    victim.is_honest.store(true, Relaxed);
    core::mem::forget(tree.root().try_charge(ByteSize::new(120_000)).unwrap());
    assert!(slow.slow.set(ticks).is_ok());
    registry.shrink_least_useful(registry.root(), None, Reclaim::KSWAPD, &mut Work::objects(64));
    let counts = slow.counts();
    assert!(counts > 1 && kept.stats().callbacks == 0, "{counts} counts, {:?}", kept.stats());
    assert!((1..1_000_000).contains(&freed.stats().time_ns), "{} ns", freed.stats().time_ns);
    // Three counts are as long as the call may take.
    let time = core::time::Duration::from_secs(3);
    registry.shrink_least_useful(registry.root(), None, Reclaim::KSWAPD, &mut Work::objects(6_400).within(time));
    assert!((1..=5).contains(&slow.counts()));
}
