//! Tests of the table of pairs: slots, candidates, scores, heap bytes.
//!
//! The table is compared with a plain list of pairs, and its bytes with the sum of its parts. A
//! change must keep the test that each pair is a candidate equally often, and the written-out sum.

use super::super::log2::ONE;
use super::*;
use alloc::vec::Vec;
use lowwater_lru_core::ByteSize;
use proptest::prelude::*;

const BUDGET: u64 = 1 << 20;

/// Returns the parts of a pair that must survive a move to another slot: its state, and the utility
/// of its tallies, if it has any.
fn known(pairs: &Pairs, slot: u32) -> (PairState, Option<i32>) {
    let tallies = pairs.tallies(slot);
    (pairs.pair(slot).unwrap().state(), tallies.and_then(|tallies| tallies.utility(0, BUDGET, false)))
}

proptest! {
    /// Compares with `twin`, a plain list of pairs and the state of each.
    #[test]
    fn slots_are_dense_and_pairs_keep_their_state(
        steps in prop::collection::vec((0..300_u32, any::<bool>(), 0..4_u8), 1..600),
    ) {
        let (pairs, mut twin) = (Pairs::new(), Vec::new());
        for (n, (memcg, adds, tally)) in steps.into_iter().enumerate() {
            let memcg = MemcgId::new(memcg);
            let at = twin.iter().position(|(there, _)| *there == memcg);
            match (adds, at) {
                (true, None) => {
                    prop_assert!(pairs.add(1, memcg));
                    let slot = pairs.find(1, memcg).unwrap();
                    prop_assert_eq!(known(&pairs, slot), (PairState::Unknown, None));
                    if tally == 0 {
                        pairs.make_tallies(slot).unwrap().scanned(0, n as u64 + 1, 16, 0);
                        let score = Score::new(n as i32, n as u64, 0, 0);
                        pairs.pair(slot).unwrap().set_state(PairState::Scored(score));
                    }
                    twin.push((memcg, known(&pairs, slot)));
                }
                (true, Some(_)) => prop_assert!(pairs.add(1, memcg)),
                (false, at) => {
                    pairs.remove(1, memcg);
                    at.map(|at| twin.swap_remove(at));
                }
            }
            prop_assert_eq!(pairs.end.load(Ordering::Relaxed) as usize, twin.len());
            // Not in every step: all pairs are looked up.
            for (memcg, known_before) in twin.iter().filter(|_| n % 16 == 0) {
                let slot = pairs.find(1, *memcg).unwrap();
                prop_assert!((slot as usize) < twin.len() && pairs.holds(slot, 1, *memcg));
                prop_assert_eq!(known(&pairs, slot), *known_before);
            }
            let end = twin.len() as u32;
            prop_assert!(pairs.pair(end).is_none_or(|pair| pair.ids().is_none()), "a slot that is free");
        }
    }
}

#[test]
fn candidates_in_turn_visit_all_pairs_equally() {
    let pairs = Pairs::new();
    (0..50).for_each(|memcg| assert!(pairs.add(1, MemcgId::new(memcg))));
    let mut seen = [0; 50];
    for _ in 0..50 {
        let candidates = pairs.candidates(Some(7), false);
        candidates.as_slice().iter().for_each(|slot| seen[*slot as usize] += 1);
    }
    assert_eq!(seen.iter().filter(|seen| **seen == 8).count(), 49, "{seen:?}");
    assert_eq!(seen[7], 50, "the needy pair is always among them");
    assert_eq!(pairs.candidates(None, true).as_slice().len(), 50);
}

/// Returns a table of `n` pairs of shrinker 1, in which each group's id is its slot.
fn table_of(n: u32) -> Pairs {
    let pairs = Pairs::new();
    (0..n).for_each(|memcg| assert!(pairs.add(1, MemcgId::new(memcg))));
    pairs
}

#[test]
fn sixteen_pairs_are_all_looked_at_and_of_more_ten() {
    for n in 0..=16 {
        let candidates = table_of(n).candidates(Some(0), false);
        assert_eq!(candidates.as_slice(), Vec::from_iter(0..n));
        assert!(candidates.is_all());
    }
    let pairs = table_of(17);
    pairs.note_victim(3);
    let next = |needy, many| pairs.candidates(needy, many).as_slice().to_vec();
    assert_eq!(next(Some(16), false), [3, 16, 0, 1, 2, 4, 5, 6, 7], "the last victim, the needy, and eight in turn");
    assert_eq!(next(Some(3), false), [3, 8, 9, 10, 11, 12, 13, 14, 15], "they may be the same");
    assert_eq!(next(None, false), [3, 16, 0, 1, 2, 4, 5, 6]);
    assert_eq!(next(None, true), [3, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0, 1, 2, 4, 5, 6], "each once");
    assert!(!pairs.candidates(None, true).is_all());
    // The last victim moves from slot 16 to slot 0, and a new pair gets slot 16, which stays a
    // candidate: the last victim is only a hint.
    pairs.note_victim(16);
    pairs.remove(1, MemcgId::new(0));
    assert!(pairs.add(2, MemcgId::new(0)));
    assert_eq!(next(None, false)[0], 16);
    let pairs = table_of(18);
    pairs.note_victim(17);
    pairs.remove(1, MemcgId::new(17));
    assert_eq!(pairs.candidates(None, false).as_slice(), [0, 1, 2, 3, 4, 5, 6, 7], "the last victim is gone");
}

#[test]
fn below_a_limit_16_pairs_are_to_be_added_and_with_time_64() {
    for (n, [few, many]) in [(16, [0, 0]), (17, [16, 64]), (1_000, [16, 64])] {
        let (pairs, mut candidates) = (table_of(n), Candidates::new());
        pairs.note_victim(3);
        // As by a selection from more pairs.
        pairs.cursor.store(20, Ordering::Relaxed);
        assert_eq!(pairs.select_below(&mut candidates, Some(5), true), many);
        assert_eq!(pairs.select_below(&mut candidates, Some(5), false), few);
        match n {
            16 => assert_eq!(candidates.as_slice(), Vec::from_iter(0..16)),
            _ => assert_eq!(candidates.as_slice(), [3, 5]),
        }
        assert_eq!(pairs.cursor.load(Ordering::Relaxed), 20, "only selections from all pairs move it");
        candidates.insert(5);
        assert_eq!(candidates.as_slice().iter().filter(|slot| **slot == 5).count(), 1);
    }
}

#[test]
fn candidates_can_be_left_out() {
    let mut candidates = table_of(5).candidates(None, false);
    candidates.retain(|_| true);
    assert_eq!(candidates.as_slice(), [0, 1, 2, 3, 4]);
    candidates.retain(|slot| ![3, 0, NONE].contains(&slot));
    assert_eq!(candidates.as_slice(), [1, 2, 4]);
}

#[test]
fn the_bytes_of_pairs_are_those_of_the_parts_their_tallies_and_the_index() {
    let pairs = table_of(PART_FIRST as u32 + 1);
    let index = pairs.index.lock().allocation_size();
    assert!(index >= 4 * (PART_FIRST + 1), "{index} bytes");
    let parts = 2 * size_of::<Part>() + 3 * PART_FIRST * size_of::<Pair>();
    assert_eq!(pairs.bytes(), index + parts);
    assert!(pairs.make_tallies(3).is_some());
    let tallies = size_of::<Box<[Tallies]>>() + PART_FIRST * size_of::<Tallies>();
    assert_eq!(pairs.bytes(), index + parts + tallies);
    pairs.shut();
    assert_eq!(pairs.bytes(), parts + tallies);
    assert!(pairs.find(1, MemcgId::new(3)).is_none() && pairs.candidates(None, true).as_slice().is_empty());
}

#[test]
fn an_empty_table_of_pairs_has_no_index_memory() {
    let pairs = table_of(40);
    (0..40).for_each(|memcg| pairs.remove(1, MemcgId::new(memcg)));
    assert_eq!(pairs.index.lock().allocation_size(), 0);
}

#[test]
fn random_numbers_are_spread_evenly() {
    let pairs = Pairs::new();
    let mut seen = [0; 10];
    (0..1_000).for_each(|_| seen[pairs.random(10) as usize] += 1);
    assert!(seen.iter().all(|n| (90..=110).contains(n)), "{seen:?}");
}

/// Counts a pair with this number of objects, of one byte each, and computes its score.
fn scored(pairs: &Pairs, slot: u32, objects: u64, reports: bool, cost: i32) -> Score {
    pairs.make_tallies(slot).unwrap().counted(objects, Some(objects), 0, 0);
    pairs.score(slot, reports, cost, Some(0), BUDGET);
    match pairs.pair(slot).unwrap().state() {
        PairState::Scored(score) => score,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_turnover_is_worth_the_mean_of_those_that_report() {
    let pairs = table_of(3);
    let silent = |cost| scored(&pairs, 0, 1_000, false, cost);
    // Before the first measured pair, a turnover of 1 has the utility of one hit in the whole
    // budget.
    let (one, none) = (-log2(BUDGET), Score::none(pairs_rate(1_000), BUDGET));
    assert_eq!(silent(0), Score::new(one.max(none), 1_000, 0, 0));
    assert_eq!(silent(2 * ONE), Score::new((one + 2 * ONE).max(none), 1_000, 0, 0));
    (0..7).for_each(|_| pairs.hit(1, Miss::at(ByteSize::new(BUDGET)), BUDGET));
    scored(&pairs, 1, 1_000, false, 0);
    pairs.tallies(1).unwrap().scanned(1_000, 0, 16, 0);
    let reported = scored(&pairs, 1, 1_000, true, 0);
    let utility = pairs.tallies(1).unwrap().utility(0, BUDGET, false).unwrap();
    assert_eq!(reported, Score::new(utility, 1_000, 0, 0));
    // The first measured pair sets the mean. Each of its objects was inserted twice, so its
    // turnover is 2.
    let utility = utility - ONE;
    assert_eq!(silent(0), Score::new(utility, 1_000, 0, 0));
    // A pair with 128 times the hits and half the turnover is 8 binary places above the mean,
    // and moves it by a 64th of that.
    (0..128 * 7).for_each(|_| pairs.hit(2, Miss::at(ByteSize::new(BUDGET)), BUDGET));
    let before = pairs.hits_per_turnover.load(Ordering::Relaxed);
    scored(&pairs, 2, 1_000, true, 0);
    let moved = pairs.hits_per_turnover.load(Ordering::Relaxed) - before;
    assert_eq!((before, moved), (utility * MEAN_OF, 8 * ONE));
    assert_eq!(silent(0), Score::new((before + moved) / MEAN_OF, 1_000, 0, 0));
}

#[test]
fn the_near_hits_of_a_small_pair_are_weighed_among_many_pairs() {
    let scores = [ALL_MAX, ALL_MAX + 1].map(|n| {
        let pairs = table_of(n);
        (0..64).for_each(|_| pairs.hit(0, Miss::at(ByteSize::new(1)), BUDGET));
        let score = scored(&pairs, 0, 100, true, 0);
        let utility = pairs.tallies(0).unwrap().utility(0, BUDGET, n > ALL_MAX).unwrap();
        assert_eq!(score, Score::new(utility, 100, 0, 0), "of {n}");
        score
    });
    assert_ne!(scores[0], scores[1]);
}

/// The insert rate of a pair that was counted once, with this number of objects of one byte.
fn pairs_rate(objects: u64) -> Option<i32> {
    let tallies = Tallies::default();
    tallies.counted(objects, Some(objects), 0, 0);
    tallies.insert_rate(0, BUDGET)
}

#[test]
fn a_pair_without_hits_is_judged_by_its_inserts() {
    let pairs = table_of(1);
    let none = Score::none(pairs_rate(BUDGET / 2), BUDGET);
    assert_eq!(none, Score::none(None, BUDGET) - 5 * ONE);
    assert_eq!(scored(&pairs, 0, BUDGET / 2, true, 0), Score::new(none, BUDGET / 2, 0, 0));
}

#[test]
fn a_score_is_computed_again_with_every_eighth_hit_of_a_pair_that_was_counted() {
    let pairs = table_of(1);
    let hits = |n: u32| {
        (0..n).for_each(|_| pairs.hit(0, Miss::at(ByteSize::new(1)), BUDGET));
        pairs.pair(0).unwrap().state()
    };
    assert_eq!(hits(8), PairState::Unknown, "it has to be counted first");
    let before = PairState::Scored(scored(&pairs, 0, 1_000, true, 0));
    assert_eq!(hits(7), before);
    assert_ne!(hits(1), before);
}
