//! Tests of one pair's tallies: hits by distance, means, counts, decay.
//!
//! A change must keep the written-out sums of the utility.

use super::*;
use crate::utility::clock::HALF_LIFE;
use alloc::vec::Vec;
use lowwater_lru_core::ByteSize;

const BUDGET: u64 = 1 << 20;

fn hit(distance: u64) -> Miss {
    Miss::at(ByteSize::new(distance))
}

#[test]
fn a_utility_is_the_best_over_all_distances() {
    let (near, far, both) = (Tallies::default(), Tallies::default(), Tallies::default());
    for _ in 0..1_000 {
        near.hit(hit(BUDGET / 100), 0, BUDGET);
        far.hit(hit(BUDGET), 0, BUDGET);
        both.hit(hit(BUDGET / 100), 0, BUDGET);
        both.hit(hit(BUDGET), 0, BUDGET);
    }
    let [near, far, both] = [near, far, both].map(|tallies| tallies.utility(0, BUDGET, false).unwrap());
    assert!(near > far + 5 * ONE, "as many hits for a 64th of the bytes: {near} and {far}");
    assert_eq!(near, both, "later hits do not lower the utility");
    assert_eq!(Tallies::default().utility(0, BUDGET, false), None);
}

/// A loop has no hits until all of it fits.
#[test]
fn hits_that_begin_far_off_are_seen() {
    let (cliff, slope) = (Tallies::default(), Tallies::default());
    for _ in 0..1_000 {
        cliff.hit(hit(BUDGET / 5), 0, BUDGET);
    }
    for _ in 0..10 {
        slope.hit(hit(BUDGET / 500), 0, BUDGET);
    }
    [&cliff, &slope].iter().for_each(|tallies| tallies.counted(1, Some(BUDGET / 10), 0, 0));
    assert!(cliff.utility(0, BUDGET, false) > slope.utility(0, BUDGET, false));
}

/// More of the hits of the nearest class are near for the smaller one.
#[test]
fn of_small_pairs_with_as_many_hits_the_smaller_is_more_useful() {
    let utility = |held: u64, distance: u64| {
        let tallies = Tallies::default();
        (0..1_000).for_each(|_| _ = tallies.hit(hit(distance), 0, BUDGET));
        tallies.counted(1, Some(held), 0, 0);
        tallies.utility(0, BUDGET, true).unwrap()
    };
    let class = BUDGET / 64;
    let of_sizes = [class, class / 2, class / 8, class / 32, class / 128].map(|held| utility(held, class));
    // The bytes in classes: 1 + 0.128, 0.792 + 0.128, 0.396 + 0.125, 0.158 + 0.031, and
    // 0.055 + 0.008.
    let exact = [1.0_f64, 0.816, 0.462, 0.167, 0.0556].map(|part| -part.log2() * f64::from(ONE));
    for (more, exact) in of_sizes.iter().map(|utility| utility - of_sizes[0]).zip(exact) {
        assert!((f64::from(more) - exact).abs() < 16.0, "{of_sizes:?}: {more} and {exact}");
    }
    let far = [class / 128, 2 * class].map(|held| utility(held, 2 * class));
    assert_eq!(far[0], far[1], "other classes count by their distance");
}

#[test]
fn costs_and_weights_multiply() {
    let (dear, weighty, plain) = (Tallies::default(), Tallies::default(), Tallies::default());
    dear.hit(hit(1).cost(8 * COST_ONE), 0, BUDGET);
    weighty.hit(hit(1).weight(8), 0, BUDGET);
    for _ in 0..8 {
        plain.hit(hit(1), 0, BUDGET);
    }
    let all = [dear, weighty, plain].map(|tallies| tallies.utility(0, BUDGET, false));
    assert!(all[0].is_some() && all[0] == all[1] && all[1] == all[2], "{all:?}");
}

#[test]
fn turnover_is_inserts_per_held_object() {
    let tallies = Tallies::default();
    assert_eq!(tallies.turnover(0), None);
    tallies.counted(1_000, Some(100_000), 0, 0);
    tallies.scanned(500, 0, 16, 0);
    tallies.counted(1_000, Some(100_000), 0, 0);
    assert_eq!(tallies.turnover(0), Some(log2(1_500) - log2(1_000)));
    assert_eq!((tallies.mean(), tallies.bytes()), (100, 100_000));
    tallies.reset(0);
    assert_eq!((tallies.turnover(0), tallies.bytes(), tallies.mean()), (None, 0, 1));
}

#[test]
fn a_count_is_stale_when_a_sixteenth_was_freed() {
    let tallies = Tallies::default();
    tallies.counted(1_600, Some(1_600), 0, 0);
    tallies.scanned(99, 0, 16, 0);
    assert!(!tallies.is_stale());
    tallies.scanned(1, 0, 16, 0);
    assert!(tallies.is_stale());
    tallies.counted(1_500, Some(1_500), 0, 0);
    assert!(!tallies.is_stale());
}

#[test]
fn the_count_of_a_small_pair_is_stale_after_a_batch_or_a_quarter_of_it() {
    for (held, freed) in [(0, 0), (1, 1), (3, 1), (7, 1), (8, 2), (31, 7), (32, 8), (128, 8), (160, 10)] {
        let tallies = Tallies::default();
        tallies.counted(held, Some(held), 0, 0);
        (1..freed).for_each(|_| tallies.scanned(1, 0, 16, 0));
        assert_eq!(tallies.is_stale(), held == 0, "{held} held, {freed} to be freed");
        tallies.scanned(1, 0, 16, 0);
        assert!(tallies.is_stale(), "{held} held, {freed} freed");
    }
}

#[test]
fn a_late_thread_does_not_decay_newer_tallies() {
    let tallies = Tallies::default();
    tallies.hit(hit(1), 10, BUDGET);
    let before = tallies.utility(10, BUDGET, false);
    tallies.scanned(0, 0, 0, 9);
    assert_eq!(tallies.utility(10, BUDGET, false), before);
    // Except for a thread so late that its epoch counts as a later one.
    assert_eq!(tallies.utility(10_u32.wrapping_sub(LATE_MAX + 1), BUDGET, false), None);
}

#[test]
fn unknown_weights_are_learned_from_scans() {
    let tallies = Tallies::default();
    // The group has other charges, too.
    tallies.counted(100, None, 1_000_000, 0);
    assert_eq!(tallies.mean(), 10_000);
    for _ in 0..100 {
        assert!(tallies.note_freed(8, None, 800) <= 800, "no more than the usage fell");
    }
    assert!((100..=110).contains(&tallies.mean()), "{}", tallies.mean());
    tallies.counted(100, None, 1_000_000, 0);
    assert!(tallies.mean() <= 110, "a count without a weight changes nothing");
    tallies.counted(100, None, 5_000, 0);
    assert_eq!(tallies.mean(), 50, "but that it is no more than all");
    tallies.counted(100, Some(700), 5_000, 0);
    assert_eq!((tallies.mean(), tallies.note_freed(8, None, 1)), (7, 56), "until it is known");
}

#[test]
fn reported_bytes_are_those_of_freed_and_inserted_objects() {
    let tallies = Tallies::default();
    // Large objects stay beside small ones that come and go.
    tallies.counted(100, Some(100 << 20), 100 << 20, 0);
    assert_eq!((tallies.note_freed(8, None, 800), tallies.freed_mean()), (8 << 20, 1 << 20), "nothing is known");
    for _ in 0..200 {
        assert_eq!(tallies.note_freed(8, Some(800), 0), 800);
    }
    assert!((100..=110).contains(&tallies.freed_mean()), "{}", tallies.freed_mean());
    assert_eq!((tallies.mean(), tallies.bytes()), (1 << 20, 100 << 20), "the objects that it holds are large");
    assert_eq!(tallies.note_freed(8, None, 0), 8 * tallies.freed_mean(), "a scan without a report");
    let rate = log2(100 * tallies.freed_mean()) - log2(BUDGET / 64);
    assert_eq!(tallies.insert_rate(0, BUDGET), Some(rate));
    assert_eq!(tallies.note_freed(1, Some(u64::MAX), 0), 100 << 20, "no more than it holds");
    tallies.counted(100, None, 100 << 20, 0);
    assert_eq!(tallies.note_freed(8, Some(800), 80), 80, "a shrinker without weights may report any");
}

#[test]
fn a_hit_counts_at_the_part_of_the_budget_that_it_needs() {
    let part = BUDGET / 64;
    for (distance, place) in [
        (0, 0),
        (part, 0),
        (part + 1, 1),
        (2 * part, 1),
        (4 * part - 1, 2),
        (8 * part, 3),
        (BUDGET / 2, 5),
        (BUDGET, 6),
        (2 * BUDGET, 6),
    ] {
        let tallies = Tallies::default();
        tallies.hit(hit(distance).weight(3).cost(40), 0, BUDGET);
        let hits = tallies.hits.each_ref().map(Tally::get);
        let mut expected = [0; DISTANCES];
        expected[place] = 3 * 40 * HIT;
        assert_eq!(hits, expected, "at {distance} of {BUDGET}");
    }
}

#[test]
fn every_eighth_hit_requests_a_score() {
    let tallies = Tallies::default();
    let asked: Vec<_> = (1..=24).filter(|_| tallies.hit(hit(1), 0, BUDGET)).collect();
    assert_eq!(asked, [8, 16, 24]);
}

/// Kept objects represent a tenth of the pair's bytes, and a hit all bytes up to its distance;
/// the distance that is too small to be significant is added to both.
#[test]
fn utility_is_hits_per_byte_of_kept_objects_and_distance() {
    let tallies = Tallies::default();
    tallies.counted(1_000, Some(400_000), 0, 0);
    let (near, one) = (BUDGET / 500, log2(64));
    tallies.hit(hit(BUDGET / 2), 0, BUDGET);
    let distance = near + BUDGET / 2;
    assert_eq!(tallies.utility(0, BUDGET, false), Some(log2(64) - one - log2(distance)), "no scan has kept any");
    tallies.reset(0);
    tallies.counted(1_000, Some(400_000), 0, 0);
    tallies.scanned(0, 70, 32, 0);
    assert_eq!(tallies.kept.get(), 70 * KEPT * 32, "each costs twice the mean");
    let kept = 400_000 / 10 + near;
    assert_eq!(tallies.utility(0, BUDGET, false), Some(log2(420) - one - log2(kept)));
    for _ in 0..8_000 {
        tallies.hit(hit(BUDGET / 4), 0, BUDGET);
    }
    let both = Some(log2(420 + 8_000 * 64) - one - log2(kept + BUDGET / 4));
    assert_eq!(tallies.utility(0, BUDGET, false), both, "hits add to the bytes kept");
}

#[test]
fn a_rate_of_inserts_is_in_parts_of_the_budget() {
    let tallies = Tallies::default();
    assert_eq!(tallies.insert_rate(0, BUDGET), None);
    tallies.counted(32, Some(32 * 1_024), 0, 0);
    assert_eq!(tallies.insert_rate(0, BUDGET), Some(ONE), "a 32nd of the budget, in 64ths");
    tallies.counted(32, Some(32 * 1_024), 0, HALF_LIFE);
    assert_eq!(tallies.insert_rate(HALF_LIFE, BUDGET), Some(0), "it decays, and nothing came");
    assert_eq!(tallies.insert_rate(HALF_LIFE, 63), Some(14 * ONE), "a budget that has no 64th");
}

#[test]
fn a_mean_moves_by_an_eighth_and_scans_without_a_fall_are_counted() {
    let tallies = Tallies::default();
    tallies.counted(100, None, 100_000, 0);
    assert_eq!(tallies.note_freed(10, None, 2_000), 2_000, "no more than the usage fell by");
    assert_eq!(tallies.mean(), 1_000 - 125 + 25);
    assert_eq!(tallies.note_freed(1, None, 2_000), 900 - 112 + 250, "no more than the objects are");
    let mean = tallies.mean();
    for scans_without_fall in 1..=3 {
        assert_eq!(
            (tallies.note_freed(10, None, 0), tallies.scans_without_fall(), tallies.mean()),
            (0, scans_without_fall, mean)
        );
    }
    tallies.note_freed(10, None, 1);
    assert_eq!((tallies.scans_without_fall(), tallies.mean()), (0, mean), "less than a byte each says nothing");
    tallies.note_freed(10, None, 0);
    tallies.reset_scans_without_fall();
    assert_eq!(tallies.scans_without_fall(), 0);
}

#[test]
fn a_copy_is_known_by_the_same_and_a_reset_by_nothing() {
    let (from, to) = (Tallies::default(), Tallies::default());
    for _ in 0..9 {
        from.hit(hit(BUDGET / 2), 5, BUDGET);
    }
    from.counted(3_200, Some(6_400), 0, 5);
    from.scanned(400, 30, 16, 5);
    from.note_freed(1, None, 0);
    from.set_kib_left(9);
    to.copy_from(&from);
    let all = |it: &Tallies| {
        let kept = it.kept.get();
        let count = (it.bytes(), it.mean(), it.is_stale(), it.evicted_since(2));
        (it.utility(6, BUDGET, false), it.turnover(6), count, it.scans_without_fall(), kept)
    };
    assert_eq!(all(&to), all(&from));
    // The number of hits since the last score is copied: this hit is the tenth, and not a
    // multiple of eight. The copy is weighed, too.
    assert!(!to.hit(hit(1), 6, BUDGET));
    assert_eq!((to.note_freed(3, None, 1), to.scans_without_fall()), (6, 0));
    to.reset(6);
    assert_eq!(all(&to), (None, None, (0, 1, true, 0), 0, 0));
    let asked: Vec<_> = (1..=8).filter(|_| to.hit(hit(1), 6, BUDGET)).collect();
    assert_eq!(asked, [8]);
    to.counted(100, None, 100_000, 6);
    assert_eq!((to.note_freed(1, None, 0), to.mean()), (0, 1_000), "it is not weighed");
}

#[test]
fn a_thread_is_late_by_up_to_65_536_epochs() {
    for (late, stays) in [(LATE_MAX - 1, true), (LATE_MAX, true), (LATE_MAX + 1, false)] {
        let tallies = Tallies::default();
        tallies.hit(hit(1), 0, BUDGET);
        assert_eq!(tallies.utility(0_u32.wrapping_sub(late), BUDGET, false).is_some(), stays, "by {late}");
    }
}

#[test]
fn costs_differ_also_with_very_many_hits() {
    for hits in [1_000, 5_000_000, 1_000_000_000] {
        let utilities = [64, 256].map(|cost| {
            let tallies = Tallies::default();
            (0..1_000).for_each(|_| _ = tallies.hit(hit(1).cost(cost * COST_ONE).weight(hits / 1_000), 0, BUDGET));
            tallies.utility(0, BUDGET, false).unwrap()
        });
        assert_eq!(utilities[1] - utilities[0], 2 * ONE, "{hits} hits");
    }
}

#[test]
fn one_more_hit_counts_beside_a_hundred_million() {
    let tallies = Tallies::default();
    let utility = || tallies.utility(0, BUDGET, false).unwrap();
    tallies.hit(hit(1).weight(100_000_000), 0, BUDGET);
    let before = utility();
    (0..100_000).for_each(|_| _ = tallies.hit(hit(1).weight(1_000), 0, BUDGET));
    assert_eq!(utility() - before, ONE);
}

#[test]
fn kept_objects_count_from_a_64th_of_a_hit_on() {
    for (n, cost, counts) in [(5, 1, false), (6, 1, true), (1, COST_ONE, true)] {
        let tallies = Tallies::default();
        (0..n).for_each(|_| tallies.scanned(0, 1, cost, 0));
        assert_eq!(tallies.utility(0, BUDGET, false).is_some(), counts, "{n} of cost {cost}");
    }
}

#[test]
fn nothing_overflows() {
    let tallies = Tallies::default();
    for _ in 0..3 {
        tallies.hit(hit(u64::MAX).weight(u32::MAX).cost(u32::MAX), 0, 0);
        tallies.scanned(u64::MAX, u64::MAX, u32::MAX, 0);
        tallies.counted(u64::MAX, Some(u64::MAX), u64::MAX, u32::MAX);
        tallies.counted(u64::MAX, None, u64::MAX, u32::MAX);
        tallies.note_freed(u64::MAX, None, u64::MAX);
    }
    tallies.hit(hit(u64::MAX), 7, u64::MAX);
    assert!(tallies.utility(7, u64::MAX, false).is_some());
    assert!(tallies.utility(1 << 20, 0, false).is_none(), "so much later nothing is left");
}
