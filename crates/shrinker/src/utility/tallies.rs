//! The statistics of one pair (a shrinker and a group): its ghost hits by distance, objects that
//! scans kept, and its turnover.
//!
//! One of the inputs of the victim choice; `utility.rs` describes the algorithm, DESIGN "How a
//! utility is measured" the reasons. Hits are counted in seven classes of distance, so that a
//! pair's tallies take 72 bytes and not a histogram. Everything is an estimate: a race may lose a
//! step, but no sum may wrap. Logarithms are those of [`log2`].
//!
//! The number of classes, the decay and `NEAR_PARTS` are also constants of the oracle
//! (`tests/one_budget/oracle.rs` of the package `lowwater`): a change there comes first.

use lowwater_base::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicU8, Ordering};

use super::log2::{log2, ONE};
use super::miss::{Miss, COST_ONE};
use super::tally::{decayed, Tally};

/// The number of distance classes of ghosts: up to 1/64 of the budget, 1/32, ... all of it.
const DISTANCES: usize = 7;
/// The weight in a tally of a hit that costs a [`COST_ONE`]th of the mean.
const HIT: u64 = 64;
/// The weight of an object that a scan kept: about a twentieth of a hit.
const KEPT: u64 = 3;
/// The least [`Tallies::kept`] that counts, a 64th of a hit: less is the rest of a decay.
const KEPT_MIN: u64 = COST_ONE as u64;
/// The fraction of a pair's bytes that the kept objects represent, as a divisor.
const KEPT_PARTS: u64 = 10;
/// Distances below this fraction of the budget, as a divisor, or below the size of a smaller pair
/// of many, are too small to be significant: few hits in few bytes are chance.
const NEAR_PARTS: u64 = 500;
/// The number of hits after which a score is computed again.
const HITS_PER_SCORE: u8 = 8;
/// The maximum number of epochs that a thread may be late; it then leaves tallies of a later epoch
/// unchanged.
const LATE_MAX: u32 = 1 << 16;
/// If a shrinker does not weigh its objects, a scan moves their mean size by 1/`MEAN_OF` of the
/// difference.
const MEAN_OF: u64 = 8;
/// The fraction of a pair's last count, as a divisor, that may be freed until it is counted again.
const STALE_PARTS: u64 = 16;
/// The number of objects that may be freed in any case until a pair is counted again, so that a
/// small pair is not counted after each one; but not more than a [`STALE_PARTS_SMALL`]th of it.
const STALE_MIN: u64 = 8;
/// The fraction of a small pair's last count, as a divisor, that may be freed.
const STALE_PARTS_SMALL: u64 = 4;

/// The tallies of a pair; see the module. All accesses are Relaxed.
#[derive(Default)]
pub(crate) struct Tallies {
    /// The epoch to which the decaying tallies are up to date.
    epoch: AtomicU32,
    /// Objects that scans kept, each [`KEPT`] times its relative cost in [`COST_ONE`]ths; decays.
    kept: Tally,
    /// Ghost hits by class of distance, the nearest first, each [`HIT`] times its weight and
    /// relative cost in [`COST_ONE`]ths; decays.
    hits: [Tally; DISTANCES],
    /// The mean bytes of an object: from the last count if the shrinker weighs its objects, else an
    /// estimate, which scans move. 0 before the first count.
    mean: AtomicU32,
    /// The KiB until the next epoch at the last count; 0 before the first count, and if the pair
    /// was marked as empty since, so that no eviction makes it due.
    kib_left: AtomicU32,
    /// The number of scans in a row without a fall in the group's usage.
    scans_without_fall: AtomicU16,
    /// The number of hits since the last reset, modulo 256.
    hits_since: AtomicU8,
    /// True if the shrinker weighs its objects.
    is_weighed: AtomicBool,
    /// The number of objects at the last count.
    held: AtomicU64,
    /// The number of objects freed since the last count.
    freed: AtomicU64,
    /// The number of objects inserted; decays.
    inserted: AtomicU64,
}

impl Tallies {
    /// Resets all tallies: the slot belongs to another pair, from this epoch on.
    pub(crate) fn reset(&self, epoch: u32) {
        self.epoch.store(epoch, Ordering::Relaxed);
        self.hits.iter().chain([&self.kept]).for_each(|tally| tally.set(0));
        [&self.mean, &self.kib_left].into_iter().for_each(|tally| tally.store(0, Ordering::Relaxed));
        self.scans_without_fall.store(0, Ordering::Relaxed);
        self.hits_since.store(0, Ordering::Relaxed);
        self.is_weighed.store(false, Ordering::Relaxed);
        [&self.held, &self.freed, &self.inserted].into_iter().for_each(|tally| tally.store(0, Ordering::Relaxed));
    }

    /// Copies the tallies of a pair that moves to this slot.
    pub(crate) fn copy_from(&self, from: &Self) {
        macro_rules! copy {
            ($($tally:ident),*) => { $(self.$tally.store($tally.load(Ordering::Relaxed), Ordering::Relaxed);)* };
        }
        let Self { epoch, mean, kib_left, .. } = from;
        let Self { scans_without_fall, hits_since, is_weighed, held, freed, inserted, .. } = from;
        copy!(epoch, mean, kib_left, scans_without_fall, hits_since, is_weighed, held, freed, inserted);
        self.kept.set(from.kept.get());
        self.hits.iter().zip(&from.hits).for_each(|(to, from)| to.set(from.get()));
    }

    /// Decays the tallies up to this epoch.
    #[inline]
    fn decay_to(&self, epoch: u32) {
        let since = epoch.wrapping_sub(self.epoch.load(Ordering::Relaxed));
        if since > 0 && since <= u32::MAX - LATE_MAX {
            self.decay(epoch, since);
        }
    }

    /// Decays the tallies by `since` epochs, to `epoch`.
    #[cold]
    fn decay(&self, epoch: u32, since: u32) {
        self.epoch.store(epoch, Ordering::Relaxed);
        self.hits.iter().chain([&self.kept]).for_each(|tally| tally.decay(since));
        self.inserted.store(decayed(self.inserted.load(Ordering::Relaxed), since), Ordering::Relaxed);
    }

    /// Counts a ghost hit, under a budget of `budget` bytes. Returns whether the score should be
    /// computed again: at every [`HITS_PER_SCORE`]th hit.
    pub(crate) fn hit(&self, miss: Miss, epoch: u32, budget: u64) -> bool {
        self.decay_to(epoch);
        let parts = budget / miss.distance.get().max(1);
        let place = (DISTANCES - 1).saturating_sub(parts.max(1).ilog2() as usize);
        self.hits[place].add(u64::from(miss.weight).saturating_mul(miss.cost.into()).saturating_mul(HIT));
        let since = self.hits_since.load(Ordering::Relaxed).wrapping_add(1);
        self.hits_since.store(since, Ordering::Relaxed);
        since % HITS_PER_SCORE == 0
    }

    /// Counts a scan that freed `freed` objects and kept `kept`, of this relative `cost` each, in
    /// units of 1/[`COST_ONE`].
    pub(crate) fn scanned(&self, freed: u64, kept: u64, cost: u32, epoch: u32) {
        self.decay_to(epoch);
        self.freed.store(self.freed.load(Ordering::Relaxed).saturating_add(freed), Ordering::Relaxed);
        self.kept.add(kept.saturating_mul(KEPT).saturating_mul(cost.into()));
    }

    /// Records that the group's usage fell by `fall` bytes in a scan that freed `freed` objects.
    /// Returns the estimated bytes of these objects.
    pub(crate) fn note_fall(&self, freed: u64, fall: u64) -> u64 {
        let scans_without_fall =
            if fall > 0 { 0 } else { self.scans_without_fall.load(Ordering::Relaxed).saturating_add(1) };
        self.scans_without_fall.store(scans_without_fall, Ordering::Relaxed);
        if self.is_weighed.load(Ordering::Relaxed) {
            return freed.saturating_mul(self.mean());
        }
        if let Some(seen) = fall.checked_div(freed).filter(|seen| *seen > 0) {
            let mean = self.mean();
            self.set_mean(mean - mean / MEAN_OF + seen / MEAN_OF);
        }
        freed.saturating_mul(self.mean()).min(fall)
    }

    /// Returns the number of scans in a row without a fall in the group's usage.
    pub(crate) fn scans_without_fall(&self) -> u16 {
        self.scans_without_fall.load(Ordering::Relaxed)
    }

    /// Resets [`scans_without_fall`](Self::scans_without_fall): the pair has fewer objects now, so
    /// the scans did free some.
    pub(crate) fn reset_scans_without_fall(&self) {
        self.scans_without_fall.store(0, Ordering::Relaxed);
    }

    /// Records the pair's present number of objects, and their weight in bytes, if the shrinker
    /// knows it. If not, `usage`, that of the whole group, bounds their mean.
    pub(crate) fn counted(&self, held: u64, weight: Option<u64>, usage: u64, epoch: u32) {
        self.decay_to(epoch);
        let freed = self.freed.swap(0, Ordering::Relaxed);
        let grown = held.saturating_add(freed).saturating_sub(self.held.swap(held, Ordering::Relaxed));
        self.inserted.store(self.inserted.load(Ordering::Relaxed).saturating_add(grown), Ordering::Relaxed);
        self.is_weighed.store(weight.is_some(), Ordering::Relaxed);
        let most = usage / held.max(1);
        self.set_mean(match (weight, self.mean.load(Ordering::Relaxed)) {
            (Some(weight), _) => weight / held.max(1),
            (None, 0) => most,
            (None, mean) => most.min(mean.into()),
        });
    }

    /// Records the KiB until the next epoch at a count, or 0: see
    /// [`evicted_since`](Self::evicted_since).
    pub(crate) fn set_kib_left(&self, kib_left: u32) {
        self.kib_left.store(kib_left, Ordering::Relaxed);
    }

    /// Returns the KiB that were evicted, of all pairs, since the last count, if that was in this
    /// epoch, of which `kib_left` are left.
    pub(crate) fn evicted_since(&self, kib_left: u32) -> u32 {
        self.kib_left.load(Ordering::Relaxed).saturating_sub(kib_left)
    }

    fn set_mean(&self, mean: u64) {
        self.mean.store(u32::try_from(mean).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
    }

    /// Returns the number of objects at the last count.
    pub(crate) fn objects(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns true if the pair had no objects at the last count, or so many were freed since then
    /// that its size is no longer known; inserts since then are unknown, too.
    pub(crate) fn is_stale(&self) -> bool {
        let held = self.objects();
        let freed_max = (held / STALE_PARTS).max(STALE_MIN.min(held / STALE_PARTS_SMALL)).max(1);
        held == 0 || self.freed.load(Ordering::Relaxed) >= freed_max
    }

    /// Returns the mean bytes of an object; 1 before the first count.
    pub(crate) fn mean(&self) -> u64 {
        self.mean.load(Ordering::Relaxed).max(1).into()
    }

    /// Returns the bytes of the objects at the last count.
    pub(crate) fn bytes(&self) -> u64 {
        self.objects().saturating_mul(self.mean())
    }

    /// Returns the logarithm of the utility: the best hits per byte over all distances, with kept
    /// objects as hits. `None` without either. Whether there are too many pairs to compare all
    /// (`of_many`) decides about a pair that is smaller than the nearest class of distances: see
    /// [`near_bytes`].
    pub(crate) fn utility(&self, epoch: u32, budget: u64, of_many: bool) -> Option<i32> {
        self.decay_to(epoch);
        let mut hits = Some(self.kept.get()).filter(|kept| *kept >= KEPT_MIN).unwrap_or(0);
        let held = self.bytes();
        let kept_bytes = if hits > 0 { held / KEPT_PARTS } else { 0 };
        let significant = (budget / NEAR_PARTS).max(1);
        let mut best = per_byte(hits, kept_bytes.saturating_add(significant));
        for (place, tally) in self.hits.iter().enumerate() {
            let more = tally.get();
            if more == 0 {
                // As many hits per more bytes are not the best.
                continue;
            }
            hits += more;
            let distance = budget >> (DISTANCES - 1 - place);
            let bytes = match place {
                0 if of_many && held < distance => near_bytes(held.max(1), distance, significant),
                _ => distance.saturating_add(significant),
            };
            best = best.max(per_byte(hits, kept_bytes.saturating_add(bytes)));
        }
        best
    }

    /// Returns the logarithm of the recently inserted bytes, measured in 64ths of the budget.
    /// `None` if nothing was inserted.
    pub(crate) fn insert_rate(&self, epoch: u32, budget: u64) -> Option<i32> {
        self.decay_to(epoch);
        match self.inserted.load(Ordering::Relaxed).saturating_mul(self.mean()) {
            0 => None,
            bytes => Some(log2(bytes) - log2((budget / 64).max(1))),
        }
    }

    /// Returns the logarithm of recently inserted objects per object held. `None` if none was
    /// inserted.
    pub(crate) fn turnover(&self, epoch: u32) -> Option<i32> {
        self.decay_to(epoch);
        let held = self.held.load(Ordering::Relaxed).max(1);
        match self.inserted.load(Ordering::Relaxed) {
            0 => None,
            inserted => Some(log2(inserted) - log2(held)),
        }
    }
}

/// Returns the bytes that the hits of the nearest class stand for, of a pair that holds `held`
/// bytes, fewer than the class is wide (`distance`).
///
/// The class is too wide for such a pair: its next bytes have more of these hits than its last
/// ones. The number of hits is taken for a logarithm of the memory (Zipf's law with exponent 1), so
/// of small pairs with as many hits the smaller one has the greater utility. Otherwise nothing but
/// chance would decide which of many small pairs grows. (With few pairs it would keep a pair whose
/// hits are no such curve at up to the class's size.)
fn near_bytes(held: u64, distance: u64, significant: u64) -> u64 {
    // As many bytes as the class is wide for a pair of its size.
    let places = log2(held.saturating_add(distance)) - log2(held);
    let bytes = (u128::from(held) * u128::from(places.unsigned_abs())) / ONE.unsigned_abs() as u128;
    (bytes as u64).saturating_add(significant.min(held))
}

/// Returns the logarithm of hits per byte; `None` without hits.
fn per_byte(hits: u64, bytes: u64) -> Option<i32> {
    (hits > 0).then(|| log2(hits) - log2(HIT * u64::from(COST_ONE)) - log2(bytes))
}

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests {
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
            assert!(tallies.note_fall(8, 800) <= 800, "no more than the usage fell");
        }
        assert!((100..=110).contains(&tallies.mean()), "{}", tallies.mean());
        tallies.counted(100, None, 1_000_000, 0);
        assert!(tallies.mean() <= 110, "a count without a weight changes nothing");
        tallies.counted(100, None, 5_000, 0);
        assert_eq!(tallies.mean(), 50, "but that it is no more than all");
        tallies.counted(100, Some(700), 5_000, 0);
        assert_eq!((tallies.mean(), tallies.note_fall(8, 1)), (7, 56), "until it is known");
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
        assert_eq!(tallies.note_fall(10, 2_000), 2_000, "no more than the usage fell by");
        assert_eq!(tallies.mean(), 1_000 - 125 + 25);
        assert_eq!(tallies.note_fall(1, 2_000), 900 - 112 + 250, "no more than the objects are");
        let mean = tallies.mean();
        for scans_without_fall in 1..=3 {
            assert_eq!(
                (tallies.note_fall(10, 0), tallies.scans_without_fall(), tallies.mean()),
                (0, scans_without_fall, mean)
            );
        }
        tallies.note_fall(10, 1);
        assert_eq!((tallies.scans_without_fall(), tallies.mean()), (0, mean), "less than a byte each says nothing");
        tallies.note_fall(10, 0);
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
        from.note_fall(1, 0);
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
        assert_eq!((to.note_fall(3, 1), to.scans_without_fall()), (6, 0));
        to.reset(6);
        assert_eq!(all(&to), (None, None, (0, 1, true, 0), 0, 0));
        let asked: Vec<_> = (1..=8).filter(|_| to.hit(hit(1), 6, BUDGET)).collect();
        assert_eq!(asked, [8]);
        to.counted(100, None, 100_000, 6);
        assert_eq!((to.note_fall(1, 0), to.mean()), (0, 1_000), "it is not weighed");
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
            tallies.note_fall(u64::MAX, u64::MAX);
        }
        tallies.hit(hit(u64::MAX), 7, u64::MAX);
        assert!(tallies.utility(7, u64::MAX, false).is_some());
        assert!(tallies.utility(1 << 20, 0, false).is_none(), "so much later nothing is left");
    }
}
