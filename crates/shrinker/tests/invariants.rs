//! The guarantees S of docs/INVARIANTS.md, through the public API: the calls, the results and the
//! cost of a pass.
//!
//! S1-S6, S9 and S26 are arithmetic (`src/budget/tests.rs`, `src/deferred.rs`; S1 and S3 are partly
//! here), S14 is in `ends/registration.rs`, S15 and S16 are in `src/map/tests.rs` and
//! `src/bitmap.rs`; races are in `stress.rs` and in the loom tests beside the code.
//!
//! A test of a guarantee has its number in its name; the others check promises that the
//! documentation of a method makes.
//!
//! A change must ensure that calls and objects are counted exactly: a pass that calls one shrinker
//! too many, or leaves one object, must fail.

#![cfg(not(lowwater_loom))]

mod common;

use common::{one_shelf, shelf_on, Shelf};
use lowwater_lru_core::{ByteSize, MemcgTree, NodeId};
use lowwater_shrinker::baseline::FullScan;
use lowwater_shrinker::budget::{Policy, Proportional, Windup};
use lowwater_shrinker::{Count, DirectStop, Progress, Reclaim, Registry, RegistryConfig, Scan, ShrinkControl, Work};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;

const N0: NodeId = NodeId::ZERO;

fn pass(registry: &Registry, priority: u8) -> Progress {
    registry.shrink(registry.root(), N0, priority, Reclaim::KSWAPD, &mut Work::unlimited())
}

#[test]
fn s1_a_visit_that_frees_all_leaves_the_debt_that_linux_leaves() {
    let policies = [Arc::new(Windup) as Arc<dyn Policy>, Arc::new(Proportional)];
    for (policy, is_full_scan) in policies.iter().flat_map(|policy| [(policy, false), (policy, true)]) {
        let tree = MemcgTree::new(0);
        let registry = Registry::with_config(&tree, RegistryConfig::new(1).policy(Arc::clone(policy)));
        let shelf = Arc::new(Shelf::new());
        // Freed objects return, so that the pair and its debt stay.
        shelf.count.set(Box::new(|_| Some(Count::Objects(1_000)))).ok().unwrap();
        shelf.scan.set(Box::new(|sc| Some(Scan::Freed(sc.nr_to_scan())))).ok().unwrap();
        let registration = shelf.register(registry.builder("shelf").batch(128).alloc().unwrap());
        shelf.add(tree.root(), N0, 1_000);
        // 15 batches of 2,000 objects.
        let (full_scan, mut work) = (FullScan::new(&registry), Work::unlimited());
        let progress = match is_full_scan {
            true => full_scan.shrink(tree.root(), N0, 0, Reclaim::KSWAPD, &mut work),
            false => pass(&registry, 0),
        };
        assert_eq!(progress.scanned, 1_024);
        assert_eq!(registry.owed(tree.root(), N0, registration.id()), 2_000 - 15 * 128, "{is_full_scan}");
    }
}

#[test]
fn s3_every_planned_visit_reduces_a_debt_to_the_objects() {
    let (tree, registry, shelf, registration) = one_shelf();
    let (stop, shrunk) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let (stops, shrinks) = (Arc::clone(&stop), Arc::clone(&shrunk));
    // Objects that are kept, so that the pair and its debt stay.
    let scan = move |_: &mut ShrinkControl<'_>| Some(if stops.load(Relaxed) { Scan::Stop } else { Scan::Freed(0) });
    shelf.scan.set(Box::new(scan)).ok().unwrap();
    shelf.count.set(Box::new(move |_| shrinks.load(Relaxed).then_some(Count::Objects(16)))).ok().unwrap();
    shelf.add(tree.root(), N0, 1_000);
    let owed = || registry.owed(tree.root(), N0, registration.id());
    pass(&registry, 0);
    assert_eq!(owed(), 1_000);
    stop.store(false, Relaxed);
    shrunk.store(true, Relaxed);
    // The visit scans its whole part and leaves no debt of its own.
    registry.shrink(tree.root(), N0, 0, Reclaim::FOREGROUND, &mut Work::unlimited());
    assert_eq!(owed(), 16);
}

#[test]
fn s7_a_count_of_zero_scans_nothing_and_keeps_the_debt() {
    let (tree, registry, shelf, registration) = one_shelf();
    let stop = Arc::new(AtomicBool::new(true));
    let unknown = Arc::new(AtomicBool::new(false));
    let (stops, unknowns) = (Arc::clone(&stop), Arc::clone(&unknown));
    shelf.scan.set(Box::new(move |_| stops.load(Relaxed).then_some(Scan::Stop))).ok().unwrap();
    shelf.count.set(Box::new(move |_| unknowns.load(Relaxed).then_some(Count::Unknown))).ok().unwrap();
    shelf.add(tree.root(), N0, 10_000);
    pass(&registry, 4);
    let owed = registry.owed(tree.root(), N0, registration.id());
    assert_eq!(owed, 10_000 * 4 / (2 << 4));

    unknown.store(true, Relaxed);
    let scans = shelf.scans.load(Relaxed);
    assert_eq!(pass(&registry, 0), Progress { callbacks: 1, ..Progress::default() });
    assert_eq!(shelf.scans.load(Relaxed), scans);
    assert_eq!(registry.owed(tree.root(), N0, registration.id()), owed);
    // Unknown keeps the bit: the shrinker is called again.
    assert_eq!(pass(&registry, 0).callbacks, 1);
}

#[test]
fn s8_priority_0_empties_a_willing_cache_in_one_pass() {
    let (tree, registry, shelf, _registration) = one_shelf();
    shelf.add(tree.root(), N0, 100_003);
    let progress = pass(&registry, 0);
    assert_eq!((progress.freed, progress.scanned, shelf.total()), (100_003, 100_003, 0));
}

#[test]
fn s10_s13_a_pass_calls_live_pairs_only_and_a_second_drop_none() {
    const GROUPS: usize = 200;
    const SHRINKERS: usize = 300;
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 2);
    let groups: Vec<_> = (0..GROUPS).map(|g| tree.root().create(&g.to_string()).unwrap()).collect();
    let shelves: Vec<_> = (0..SHRINKERS)
        .map(|_| {
            let shelf = Arc::new(Shelf::new());
            let registration = shelf.register(registry.builder("shelf").alloc().unwrap());
            (shelf, registration)
        })
        .collect();
    let pairs = 40_u64;
    for n in 0..pairs as usize {
        shelves[n * 7 % SHRINKERS].0.add(&groups[n * 13 % GROUPS], NodeId::new((n % 2) as u16), 5);
    }
    let calls = || shelves.iter().map(|(shelf, _)| shelf.counts.load(Relaxed)).sum::<u64>();
    assert_eq!(registry.snapshot().live_pairs as u64, pairs);

    // One call to count, and the second count after the bit was cleared.
    assert_eq!(registry.drop_caches(), pairs * 5);
    assert_eq!(calls(), pairs * 2);
    assert_eq!(registry.snapshot().live_pairs, 0);
    for _ in 0..4 {
        assert_eq!(registry.drop_caches(), 0);
    }
    assert_eq!(calls(), pairs * 2, "a drop with nothing to drop calls no shrinker");

    // The baseline calls every shrinker for every group, including the root.
    FullScan::new(&registry).drop_caches();
    assert_eq!(calls() - pairs * 2, ((GROUPS + 1) * SHRINKERS * 2) as u64);
}

#[test]
fn s12_an_empty_shrinker_is_counted_once_more_and_then_after_occupied() {
    let (tree, registry, shelf, _registration) = one_shelf();
    shelf.add(tree.root(), N0, 1);
    assert_eq!(pass(&registry, 0).callbacks, 2);
    assert_eq!(pass(&registry, 0).callbacks, 0);
    shelf.add(tree.root(), N0, 1);
    assert_eq!(pass(&registry, 0).callbacks, 2);
}

#[test]
fn s11_bits_set_between_alloc_and_register_are_kept() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    let prepared = registry.builder("late").alloc().unwrap();
    let shelf = Arc::new(Shelf::new());
    shelf.prepare(&prepared);
    shelf.add(tree.root(), N0, 3);
    // A pass meets the bit of an id without a registered shrinker.
    assert_eq!(pass(&registry, 0).callbacks, 0);
    let _registration = prepared.register(Arc::clone(&shelf) as Arc<_>);
    assert_eq!(pass(&registry, 0).freed, 3);
}

#[test]
fn s17_an_id_is_reused_without_bits_or_debts() {
    let (tree, registry, shelf, registration) = one_shelf();
    let group = tree.root().create("g").unwrap();
    shelf.scan.set(Box::new(|_| Some(Scan::Stop))).ok().unwrap();
    shelf.add(&group, N0, 100_000);
    pass(&registry, 2);
    let id = registration.id();
    assert!(registry.owed(&group, N0, id) > 0);
    registration.unregister().unwrap();

    let heir = Arc::new(Shelf::new());
    let registration = heir.register(registry.builder("heir").alloc().unwrap());
    assert_eq!(registration.id(), id, "the lowest free id");
    assert_eq!(registry.owed(&group, N0, id), 0);
    assert_eq!(pass(&registry, 0).callbacks, 0);
    // The lists of the ended shrinker still exist; their reports do not count for the id's next
    // owner.
    shelf.add(tree.root(), N0, 1);
    assert_eq!(pass(&registry, 0).callbacks, 0);
}

#[test]
fn s18_s19_a_dead_groups_objects_and_debts_are_its_parents() {
    let (tree, registry, shelf, registration) = one_shelf();
    let parent = tree.root().create("p").unwrap();
    let child = parent.create("c").unwrap();
    let stop = Arc::new(AtomicBool::new(true));
    let stops = Arc::clone(&stop);
    shelf.scan.set(Box::new(move |_| stops.load(Relaxed).then_some(Scan::Stop))).ok().unwrap();
    shelf.add(&parent, N0, 10_000);
    shelf.add(&child, N0, 20_000);
    pass(&registry, 3);
    let owed = |memcg| registry.owed(memcg, N0, registration.id());
    let sum = owed(&parent) + owed(&child);
    assert!(owed(&parent) > 0 && owed(&child) > owed(&parent));

    child.offline().unwrap();
    assert_eq!((owed(&parent), owed(&child)), (sum, 0));
    stop.store(false, Relaxed);
    let mut work = Work::unlimited();
    assert_eq!(registry.shrink(&child, N0, 0, Reclaim::KSWAPD, &mut work), Progress::default());
    assert_eq!(registry.shrink(&parent, N0, 0, Reclaim::KSWAPD, &mut work).freed, 30_000);
    // An add that still names the dead group becomes the parent's object.
    shelf.add(&child, N0, 7);
    assert_eq!(registry.shrink(&parent, N0, 0, Reclaim::KSWAPD, &mut work).freed, 7);
}

#[test]
fn s20_an_id_that_is_not_registered_leaves_nothing() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    let prepared = registry.builder("never").alloc().unwrap();
    let (id, occupancy) = (prepared.id(), prepared.occupancy());
    occupancy.occupied(tree.root(), N0);
    assert_eq!(registry.snapshot().live_pairs, 1);
    drop(prepared);
    occupancy.occupied(tree.root(), N0);
    assert_eq!(registry.snapshot().live_pairs, 0);
    assert!(registry.snapshot().shrinkers.is_empty());
    assert_eq!(registry.builder("next").alloc().unwrap().id(), id);
}

#[test]
fn s21_every_callback_result_ends_the_call() {
    let answers: [fn(&mut lowwater_shrinker::ShrinkControl<'_>) -> Scan; 5] = [
        |sc| {
            sc.set_nr_scanned(0);
            Scan::Freed(0)
        },
        |sc| {
            sc.set_nr_scanned(u64::MAX);
            Scan::Freed(0)
        },
        |sc| {
            sc.set_nr_scanned(1);
            Scan::Freed(u64::MAX)
        },
        |sc| {
            sc.set_nr_scanned(1);
            Scan::Freed(0)
        },
        |_| Scan::Stop,
    ];
    for policy in 0..3 {
        for count in [1, 127, 1 << 20, u64::MAX / 2 + 1, u64::MAX] {
            for scan in answers {
                let tree = MemcgTree::new(0);
                let config = match policy {
                    0 => RegistryConfig::new(1),
                    1 => RegistryConfig::new(1).policy(Arc::new(Proportional)),
                    _ => RegistryConfig::new(1).policy(Arc::new(Windup)),
                };
                let registry = Registry::with_config(&tree, config);
                let shelf = Arc::new(Shelf::new());
                shelf.count.set(Box::new(move |_| Some(Count::Objects(count)))).ok().unwrap();
                shelf.scan.set(Box::new(move |sc| Some(scan(sc)))).ok().unwrap();
                let _registration = shelf.register(registry.builder("liar").batch(1024).alloc().unwrap());
                shelf.add(tree.root(), N0, 1);
                // Bounded by objects: a shrinker that frees none of its u64::MAX objects would be
                // scanned for long.
                for priority in [12, 6, 0] {
                    registry.shrink(tree.root(), N0, priority, Reclaim::KSWAPD, &mut Work::objects(1 << 16));
                }
                registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false);
            }
        }
    }
}

#[test]
fn s21_drop_caches_terminates_with_an_endless_shrinker() {
    let (tree, registry, shelf, _registration) = one_shelf();
    shelf.count.set(Box::new(|_| Some(Count::Objects(u64::MAX)))).ok().unwrap();
    let looked_at_one = |sc: &mut lowwater_shrinker::ShrinkControl<'_>| {
        sc.set_nr_scanned(1);
        Some(Scan::Freed(0))
    };
    shelf.scan.set(Box::new(looked_at_one)).ok().unwrap();
    shelf.add(tree.root(), N0, 1);
    assert_eq!(registry.drop_caches(), 0);
}

#[test]
fn s22_dropping_caches_ends_beside_a_producer() {
    let (tree, registry, shelf, _registration) = one_shelf();
    let (again, root) = (Arc::downgrade(&shelf), tree.root().clone());
    // For each freed batch, as many objects are added.
    shelf
        .scan
        .set(Box::new(move |sc| {
            again.upgrade().unwrap().add(&root, N0, sc.nr_to_scan());
            None
        }))
        .ok()
        .unwrap();
    shelf.add(tree.root(), N0, 1000);
    registry.drop_caches();
    assert!(shelf.total() > 0, "the producer kept up");
}

#[test]
fn s23_direct_reclaim_costs_the_same_with_and_without_a_million_debts() {
    let mut outcomes = Vec::new();
    for debts in [0, 1_000_000] {
        let (tree, registry, shelf, registration) = one_shelf();
        shelf.add(tree.root(), N0, 1_800_000);
        let stop = Arc::new(AtomicBool::new(true));
        let stops = Arc::clone(&stop);
        shelf.scan.set(Box::new(move |_| stops.load(Relaxed).then_some(Scan::Stop))).ok().unwrap();
        while registry.owed(tree.root(), N0, registration.id()) < debts {
            pass(&registry, 4);
        }
        stop.store(false, Relaxed);
        let outcome = registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false);
        assert_eq!(shelf.scanned_most.load(Relaxed), 128, "no more than a batch in a call");
        outcomes.push(outcome);
    }
    assert_eq!(outcomes[0], outcomes[1]);
    assert_eq!((outcomes[0].scanned, outcomes[0].stopped), (1024, DirectStop::ScanBound));
}

#[test]
fn s23_a_pass_in_the_foreground_leaves_the_debts_and_the_background_pays_them() {
    let (tree, registry, shelf, registration) = one_shelf();
    shelf.add(tree.root(), N0, 1_000_000);
    let stop = Arc::new(AtomicBool::new(true));
    let stops = Arc::clone(&stop);
    shelf.scan.set(Box::new(move |_| stops.load(Relaxed).then_some(Scan::Stop))).ok().unwrap();
    pass(&registry, 3);
    stop.store(false, Relaxed);
    let owed = || registry.owed(tree.root(), N0, registration.id());
    let before = owed();
    let mut work = Work::unlimited();
    let foreground = registry.shrink(tree.root(), N0, 12, Reclaim::FOREGROUND, &mut work);
    assert_eq!(owed(), before);
    assert!(foreground.scanned <= 1_000_000 * 4 / (2 << 12), "its own part, in whole batches");
    let background = pass(&registry, 12);
    assert!(background.scanned >= before / 12, "a twelfth of the debt: {} of {before}", background.scanned);
    assert!(owed() <= before - before / 12 + 128);
}

#[test]
fn s24_will_defer_scans_nothing_and_owes_exactly_the_part() {
    let (tree, registry, shelf, registration) = one_shelf();
    shelf
        .count
        .set(Box::new(|sc| {
            if !sc.flags().contains(Reclaim::MAY_FS) {
                sc.will_defer();
            }
            None
        }))
        .ok()
        .unwrap();
    shelf.add(tree.root(), N0, 100_000);
    let flags = Reclaim::MAY_BLOCK | Reclaim::MAY_IO;
    registry.shrink(tree.root(), N0, 5, flags, &mut Work::unlimited());
    assert_eq!(shelf.scans.load(Relaxed), 0);
    assert_eq!(registry.owed(tree.root(), N0, registration.id()), 100_000 * 4 / (2 << 5));
    let direct = registry.direct_reclaim(tree.root(), flags, &|| false);
    assert_eq!((direct.scanned, direct.stopped), (0, DirectStop::NothingLeft));
    assert_eq!(shelf.scans.load(Relaxed), 0);
    // Direct reclaim would have scanned a share of one batch.
    assert_eq!(registry.owed(tree.root(), N0, registration.id()), 6_250 + 128);
    assert_eq!(registration.stats().deferred, 6_250 + 128);
}

#[test]
fn s25_the_map_is_proportional_to_the_live_pairs() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    let empty = registry.snapshot().map_bytes.get();
    let groups: Vec<_> = (0..2000).map(|g| tree.root().create(&g.to_string()).unwrap()).collect();
    let registrations: Vec<_> = (0..2000)
        .map(|_| {
            let shelf = Arc::new(Shelf::new());
            let registration = shelf.register(registry.builder("shelf").alloc().unwrap());
            (shelf, registration)
        })
        .collect();
    // An id costs its entry in the index, a group nothing: 4 million pairs that never existed.
    let idle = registry.snapshot().map_bytes.get() - empty;
    assert!(idle < 2000 * 128, "{idle} bytes for 2,000 shrinkers and nothing live");
    for (n, group) in groups.iter().enumerate() {
        registrations[n].0.add(group, N0, 1);
    }
    let live = registry.snapshot().map_bytes.get() - empty - idle;
    assert!(live < 2000 * 512, "{live} bytes for 2,000 live pairs");
    registry.drop_caches();
    let after = registry.snapshot().map_bytes.get() - empty;
    assert!(after < idle + 16 * 1024, "{after} bytes after all is gone, {idle} before there was something");
}

#[test]
fn unaware_shrinkers_are_called_once_for_all_groups() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 2);
    let group = tree.root().create("g").unwrap();
    let shelf = Arc::new(Shelf::new());
    let builder = registry.builder("global").memcg_aware(false).numa_aware(false);
    let _registration = shelf.register(builder.alloc().unwrap());
    // Called from the start; it is empty, so its bit is cleared.
    assert_eq!(pass(&registry, 0).callbacks, 2);
    shelf.add(tree.root(), N0, 5);
    let mut work = Work::unlimited();
    assert_eq!(registry.shrink(&group, N0, 0, Reclaim::KSWAPD, &mut work).callbacks, 0);
    assert_eq!(registry.shrink(tree.root(), NodeId::new(1), 0, Reclaim::KSWAPD, &mut work).callbacks, 0);
    assert_eq!(registry.shrink(tree.root(), N0, 0, Reclaim::KSWAPD, &mut work).freed, 5);
}

#[test]
fn an_unaware_shrinkers_list_of_any_group_sets_the_roots_bit() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 2);
    let group = tree.root().create("g").unwrap();
    let prepared = registry.builder("global").memcg_aware(false).numa_aware(false).alloc().unwrap();
    prepared.occupancy().occupied(&group, NodeId::new(1));
    let shelf = Arc::new(Shelf::new());
    shelf.add(tree.root(), N0, 9);
    let _registration = prepared.register(shelf);
    assert_eq!(registry.snapshot().live_pairs, 1);
    assert_eq!(pass(&registry, 0).freed, 9);
}

#[test]
fn min_always_protects_and_low_while_others_can_give() {
    let (tree, registry, shelf, _registration) = shelf_on(1, Shelf::of_bytes(100));
    let group = |name: &str| {
        let group = tree.root().create(name).unwrap();
        let _ = group.try_charge(ByteSize::new(100_000)).unwrap();
        shelf.add(&group, N0, 1000);
        group
    };
    let (min, low, open) = (group("min"), group("low"), group("open"));
    min.set_min(ByteSize::new(100_000));
    low.set_low(ByteSize::new(100_000));
    let left = || [&min, &low, &open].map(|group| shelf.len(group, N0));

    // As much as the unprotected group can give: no group below its `low` is scanned.
    let direct = registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| shelf.len(&open, N0) <= 500);
    assert!(direct.freed >= 500 && direct.freed == 1000 - left()[2]);
    pass(&registry, 0);
    assert_eq!(left(), [1000, 1000, 0]);
    pass(&registry, 1);
    assert_eq!(left(), [1000, 1000, 0], "pressure is not at its highest");
    pass(&registry, 0);
    assert_eq!(left(), [1000, 0, 0], "no other group could give, so `low` does not protect");
    // Below `min` nothing is freed, however often reclaim runs.
    for _ in 0..5 {
        pass(&registry, 0);
    }
    registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false);
    assert_eq!(left(), [1000, 0, 0]);
    // A group's protection applies to reclaim from above, not from itself; and a drop ignores
    // protection.
    assert_eq!(registry.shrink(&min, N0, 3, Reclaim::KSWAPD, &mut Work::unlimited()).freed, 250);
    assert_eq!(registry.drop_caches(), 750);
}

/// A reclaim from the root with the highest pressure; direct reclaim ends when the function returns
/// true.
type ReclaimCall = fn(&Registry, &dyn Fn() -> bool);

const RECLAIM_CALLS: [ReclaimCall; 3] = [
    |registry, is_enough| {
        registry.direct_reclaim(registry.root(), Reclaim::FOREGROUND, is_enough);
    },
    |registry, _| {
        pass(registry, 0);
    },
    |registry, _| {
        FullScan::new(registry).shrink(registry.root(), N0, 0, Reclaim::KSWAPD, &mut Work::unlimited());
    },
];

#[test]
fn reclaim_takes_no_more_from_a_group_than_its_min_leaves() {
    for reclaim in RECLAIM_CALLS {
        for (min, left) in [(199_900, 1_999), (199_850, 1_998), (190_000, 1_900), (0, 0)] {
            let (tree, registry, shelf, _registration) = shelf_on(1, Shelf::of_bytes(100));
            let second = Arc::new(Shelf::of_bytes(100));
            let _second = second.register(registry.builder("second").alloc().unwrap());
            let group = tree.root().create("group").unwrap();
            let _ = group.try_charge(ByteSize::new(200_000)).unwrap();
            group.set_min(ByteSize::new(min));
            let shelves = [shelf, second];
            shelves.iter().for_each(|shelf| shelf.add(&group, N0, 1_000));
            (0..20).for_each(|_| reclaim(&registry, &|| false));
            assert_eq!(shelves.iter().map(|shelf| shelf.len(&group, N0)).sum::<u64>(), left, "min {min}");
        }
    }
}

#[test]
fn reclaim_takes_no_more_from_a_group_than_its_low_leaves_while_others_can_give() {
    for reclaim in RECLAIM_CALLS {
        let (tree, registry, shelf, _registration) = shelf_on(1, Shelf::of_bytes(100));
        let group = |name: &str| {
            let group = tree.root().create(name).unwrap();
            let _ = group.try_charge(ByteSize::new(100_000)).unwrap();
            shelf.add(&group, N0, 1_000);
            group
        };
        let (low, open) = (group("low"), group("open"));
        low.set_low(ByteSize::new(99_900));
        reclaim(&registry, &|| shelf.len(&open, N0) <= 500);
        assert_eq!(shelf.len(&low, N0), 999);
    }
}

#[test]
fn a_bounded_pass_continues_where_the_last_one_stopped() {
    let (tree, registry, shelf, _registration) = one_shelf();
    let groups: Vec<_> = (0..10).map(|g| tree.root().create(&g.to_string()).unwrap()).collect();
    for group in &groups {
        shelf.add(group, N0, 64);
    }
    // Each pass may scan one group's part: 64 * 4 / (2 << 3) = 16.
    for _ in 0..10 {
        registry.shrink(tree.root(), N0, 3, Reclaim::KSWAPD, &mut Work::objects(16));
    }
    assert_eq!(groups.iter().map(|group| shelf.len(group, N0)).collect::<Vec<_>>(), [48; 10]);
    // Direct reclaim has its own position, which clones of the registry share.
    let clone = registry.clone();
    let mut touched = 0;
    for _ in 0..10 {
        let before = shelf.total();
        clone.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| shelf.total() < before);
        touched = groups.iter().filter(|group| shelf.len(group, N0) < 48).count();
    }
    assert_eq!(touched, 10, "ten calls that take one share each reach ten groups");
}

#[test]
fn a_panicking_shrinker_is_quarantined_and_the_others_continue() {
    let tree = MemcgTree::new(0);
    let registry = Registry::new(&tree, 1);
    let (bad, good) = (Arc::new(Shelf::new()), Arc::new(Shelf::new()));
    bad.scan.set(Box::new(|_| std::panic::panic_any("the callback's own fault"))).ok().unwrap();
    let bad_registration = bad.register(registry.builder("bad").alloc().unwrap());
    let _good_registration = good.register(registry.builder("good").alloc().unwrap());
    bad.add(tree.root(), N0, 10);
    good.add(tree.root(), N0, 10);
    assert_eq!(pass(&registry, 0).freed, 10);
    let stats = bad_registration.stats();
    assert_eq!((stats.panics, stats.quarantined, stats.in_flight), (1, true, 0));
    let calls = bad.counts.load(Relaxed);
    bad.add(tree.root(), N0, 10);
    pass(&registry, 0);
    assert_eq!(bad.counts.load(Relaxed), calls, "it is not called again");
    assert_eq!(registry.snapshot().live_pairs, 0);
    bad_registration.unregister().unwrap();
}

#[test]
fn unregister_is_refused_inside_the_shrinkers_own_callback() {
    let (tree, registry, shelf, registration) = one_shelf();
    let slot = Arc::new(std::sync::Mutex::new(Some(registration)));
    let inside = Arc::clone(&slot);
    shelf
        .scan
        .set(Box::new(move |_| {
            let registration = inside.lock().unwrap().take()?;
            let (error, registration) = registration.unregister().unwrap_err();
            assert!(error.to_string().contains("inside a callback"));
            *inside.lock().unwrap() = Some(registration);
            None
        }))
        .ok()
        .unwrap();
    shelf.add(tree.root(), N0, 1);
    assert_eq!(pass(&registry, 0).freed, 1, "the callback itself goes well");
    let registration = slot.lock().unwrap().take().unwrap();
    assert_eq!(registration.stats().panics, 0);
    registration.unregister().unwrap();
}

#[test]
fn no_reclaim_runs_inside_a_callback_or_a_scope() {
    let (tree, registry, shelf, _registration) = one_shelf();
    shelf.add(tree.root(), N0, 100);
    let scope = registry.no_reclaim_scope();
    let inner = registry.no_reclaim_scope();
    let stopped = || registry.direct_reclaim(tree.root(), Reclaim::FOREGROUND, &|| false).stopped;
    assert_eq!(stopped(), DirectStop::InScope);
    drop(inner);
    assert_eq!(stopped(), DirectStop::InScope, "scopes nest");
    assert_eq!((registry.drop_caches(), pass(&registry, 0).freed), (0, 0));
    // Another thread is not in the scope.
    let freed = std::thread::scope(|s| s.spawn(|| pass(&registry, 3).freed).join().unwrap());
    assert_eq!(freed, 25);
    drop(scope);

    let (again, root) = (registry.clone(), tree.root().clone());
    shelf
        .scan
        .set(Box::new(move |_| {
            assert_eq!(again.direct_reclaim(&root, Reclaim::FOREGROUND, &|| false).stopped, DirectStop::InScope);
            assert_eq!(again.drop_caches(), 0);
            None
        }))
        .ok()
        .unwrap();
    assert_eq!(pass(&registry, 0).freed, 75);
}

#[test]
fn the_registry_and_its_lists_may_be_dropped_in_any_order() {
    let (tree, registry, shelf, registration) = one_shelf();
    let group = tree.root().create("g").unwrap();
    shelf.add(&group, N0, 1);
    drop(registry);
    drop(registration);
    shelf.add(&group, N0, 1);
    group.offline().unwrap();
    drop(tree);
    shelf.add(&group, N0, 1);
    assert_eq!(shelf.total(), 3);
}
