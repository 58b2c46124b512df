//! The table of pairs: selections after most pairs have been removed, and pairs that are removed
//! while they are scanned or counted.
//!
//! When a pair is removed, the last pair moves into its slot. So the result of a scan or count must
//! not be stored for the pair that has the slot by then, and no pair may stay in the table after
//! its shrinker: the next shrinker with the id would inherit it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use lowwater_lru_core::{ByteSize, Memcg};
use lowwater_shrinker::{Count, PairHint, Reclaim, ShrinkControl, Work};

use super::common::Shelf;
use super::{batch, batches, shelf, world, Pool, N0, OBJECT};

#[test]
fn the_pair_without_hits_is_the_victim_after_most_pairs_were_removed() {
    const LIVE: usize = 40;
    for all in [LIVE, 500 * LIVE] {
        let (tree, registry) = world(1);
        tree.root().set_max(ByteSize::gib(1));
        let [filler, pool] = ["filler", "pool"].map(|name| Pool::with(&tree, &registry, name, Shelf::of_bytes(OBJECT)));
        let groups: Vec<_> = (0..all).map(|n| tree.root().create(&n.to_string()).unwrap()).collect();
        let is_live = |n: usize| n % (all / LIVE) == 0;
        for (n, group) in groups.iter().enumerate() {
            if is_live(n) {
                let _ = group.try_charge(ByteSize::new(2_000 * OBJECT)).unwrap();
                pool.shelf.add(group, N0, 2_000);
            } else {
                filler.shelf.add(group, N0, 1);
            }
        }
        drop(filler);
        let live: Vec<_> = groups.iter().step_by(all / LIVE).collect();
        let (useless, useful) = live.split_last().unwrap();
        batches(100, &registry, tree.root(), Reclaim::KSWAPD);
        useful.iter().for_each(|group| pool.misses(group, 200));
        let held = |groups: &[&Memcg]| groups.iter().map(|group| pool.shelf.len(group, N0)).sum::<u64>();
        let before = [held(useful), held(&[useless])];
        batches(200, &registry, tree.root(), Reclaim::FOREGROUND);
        let paid = [before[0] - held(useful), before[1] - held(&[useless])];
        assert!(
            paid[1] > 1_000 && paid[1] > 10 * paid[0],
            "of {all}, those with misses and that without paid {paid:?}"
        );
    }
}

/// The second pair moves into the slot of the first, but does not get the result of the scan: it
/// would be left out as a pair that failed.
#[test]
fn a_call_continues_with_the_next_pair_when_the_first_was_removed() {
    let (tree, registry) = world(1);
    let is_empty = Arc::new(AtomicBool::new(false));
    let says = Arc::clone(&is_empty);
    let count = move |_: &ShrinkControl<'_>| says.load(Relaxed).then_some(Count::Empty);
    let first = Pool::with(&tree, &registry, "first", shelf(Some(Box::new(count)), None, |_| None));
    let second = Pool::new(&tree, &registry, "second");
    for pool in [&first, &second] {
        pool.shelf.add(tree.root(), N0, 1_000);
    }
    second.misses(tree.root(), 100);
    // The first batch begins an epoch, in which the second batch counts both pairs again. So the
    // foreground counts neither, and selects the first pair by its outdated score.
    batches(2, &registry, tree.root(), Reclaim::KSWAPD);
    is_empty.store(true, Relaxed);
    assert!(batch(&registry, tree.root(), Reclaim::FOREGROUND).freed > 0);
    assert_eq!(registry.snapshot().live_pairs, 1);
}

/// The second count, which follows `Empty`, runs while the pair's bit is clear. So the quarantine,
/// which removes the pairs with a bit, does not find this pair.
#[test]
fn a_pair_is_removed_if_the_second_count_panics() {
    let (tree, registry) = world(1);
    let group = tree.root().create("group").unwrap();
    let one = || {
        let calls = AtomicU64::new(0);
        let count = move |_: &ShrinkControl<'_>| match calls.fetch_add(1, Relaxed) {
            0 => Some(Count::Empty),
            _ => panic!("a second count that panics"),
        };
        let pool = Pool::with(&tree, &registry, "panics", shelf(Some(Box::new(count)), None, |_| None));
        assert!(!pool.reporter.is_known(&PairHint::default(), &group), "the pair of the last owner of the id");
        pool.shelf.add(&group, N0, 10);
        assert!(pool.reporter.is_known(&PairHint::default(), &group));
        registry.drop_caches();
        assert_eq!(pool.registration.stats().panics, 1);
    };
    one();
    let before = registry.footprint();
    (0..100).for_each(|_| one());
    assert_eq!((registry.footprint(), registry.snapshot().live_pairs), (before, 0));
}

/// Here the callback of another thread panics while the second count runs.
#[test]
fn a_pair_is_removed_if_its_shrinker_is_quarantined_in_the_second_count() {
    let (tree, registry) = world(1);
    let [group, bad] = ["group", "bad"].map(|name| tree.root().create(name).unwrap());
    let ((begin, begun), (end, ended)) = (channel(), channel());
    let (calls, bad_id, ended) = (AtomicU64::new(0), bad.id(), Mutex::new(ended));
    let count = move |sc: &ShrinkControl<'_>| {
        if sc.memcg().id() == bad_id {
            panic!("a count that panics");
        }
        if calls.fetch_add(1, Relaxed) == 0 {
            return Some(Count::Empty);
        }
        begin.send(()).unwrap();
        ended.lock().unwrap().recv().unwrap();
        Some(Count::Objects(10))
    };
    let pool = Pool::with(&tree, &registry, "panics", shelf(Some(Box::new(count)), None, |_| None));
    pool.shelf.add(&group, N0, 10);
    pool.shelf.add(&bad, N0, 10);
    let (group, bad) = (&group, &bad);
    let pass = |memcg: &Memcg| registry.shrink(memcg, N0, 12, Reclaim::KSWAPD, &mut Work::unlimited());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            begun.recv().unwrap();
            pass(bad);
            end.send(()).unwrap();
        });
        pass(group);
    });
    assert_eq!(pool.registration.stats().panics, 1);
    drop(pool);
    let heir = Pool::new(&tree, &registry, "heir");
    assert!(!heir.reporter.is_known(&PairHint::default(), group), "the pair of the last owner of the id");
    assert_eq!(batch(&registry, tree.root(), Reclaim::FOREGROUND).callbacks, 0);
}
