//! What is known of one pair: its ghost hits by distance, what scans kept, and how fast it turns over.

use lowwater_base::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicU8, Ordering};

use super::clock::HALF_LIFE;
use super::log2::log2;
use super::miss::{Miss, COST_ONE};

/// Distances of ghosts that are told apart: up to a 64th of the budget, a 32nd, .. all of it.
const DISTANCES: usize = 7;
/// A hit, in the units of a tally.
const HIT: u32 = 64;
/// An object that a scan looked at and kept, in the same units: a twentieth of a hit.
const KEPT: u32 = 3;
/// Of what a pair holds, the part that the objects which scans keep stand for.
const KEPT_PARTS: u64 = 10;
/// Of the budget, the part below which a distance says nothing: few hits in few bytes are chance.
const NEAR_PARTS: u64 = 500;
/// Hits after which a score is computed again.
const HITS_PER_SCORE: u8 = 8;
/// A thread may be late by so many epochs at most, and change tallies that are up to date to a later one.
const LATE_MAX: u32 = 1 << 16;
/// Where a shrinker does not weigh its objects, a scan moves their mean by one in so many of the distance.
const MEAN_OF: u64 = 8;
/// Of what a pair held when it was last counted, the part that may be freed until it is counted again.
const STALE_PARTS: u64 = 16;

/// See the module. All accesses are Relaxed.
#[derive(Default)]
pub(crate) struct Tallies {
    /// The epoch to which the decaying ones are up to date.
    epoch: AtomicU32,
    kept: AtomicU32,
    hits: [AtomicU32; DISTANCES],
    /// Bytes of an object, when it was last counted.
    mean: AtomicU32,
    /// Scans in a row in which the group's usage did not fall.
    vain: AtomicU16,
    /// Hits since the score was computed.
    hits_since: AtomicU8,
    /// The shrinker weighs its objects; otherwise the mean is a guess.
    is_weighed: AtomicBool,
    /// Objects when it was last counted, and those freed since then.
    held: AtomicU64,
    freed: AtomicU64,
    /// Decaying: objects inserted.
    inserted: AtomicU64,
}

impl Tallies {
    /// Forgets all: the slot is another pair's, from this epoch on.
    pub(crate) fn reset(&self, epoch: u32) {
        self.epoch.store(epoch, Ordering::Relaxed);
        [&self.kept, &self.mean].into_iter().chain(&self.hits).for_each(|tally| tally.store(0, Ordering::Relaxed));
        self.vain.store(0, Ordering::Relaxed);
        self.hits_since.store(0, Ordering::Relaxed);
        self.is_weighed.store(false, Ordering::Relaxed);
        [&self.held, &self.freed, &self.inserted].into_iter().for_each(|tally| tally.store(0, Ordering::Relaxed));
    }

    /// Becomes a copy of others: their pair moves to this slot.
    pub(crate) fn copy_from(&self, from: &Self) {
        macro_rules! copy {
            ($($tally:ident),*) => { $(self.$tally.store($tally.load(Ordering::Relaxed), Ordering::Relaxed);)* };
        }
        let Self { epoch, kept, hits, mean, vain, hits_since, is_weighed, held, freed, inserted } = from;
        copy!(epoch, kept, mean, vain, hits_since, is_weighed, held, freed, inserted);
        for (to, from) in self.hits.iter().zip(hits) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Brings the decaying tallies to this epoch.
    fn settle(&self, epoch: u32) {
        let since = epoch.wrapping_sub(self.epoch.load(Ordering::Relaxed));
        if since == 0 || since > u32::MAX - LATE_MAX {
            return;
        }
        self.epoch.store(epoch, Ordering::Relaxed);
        for tally in self.hits.iter().chain([&self.kept]) {
            tally.store(decayed(tally.load(Ordering::Relaxed).into(), since) as u32, Ordering::Relaxed);
        }
        self.inserted.store(decayed(self.inserted.load(Ordering::Relaxed), since), Ordering::Relaxed);
    }

    /// Counts a ghost hit, under a budget of so many bytes. Returns whether it is time for another
    /// score.
    pub(crate) fn hit(&self, miss: Miss, epoch: u32, budget: u64) -> bool {
        self.settle(epoch);
        let parts = budget / miss.distance.get().max(1);
        let place = (DISTANCES - 1).saturating_sub(parts.max(1).ilog2() as usize);
        let worth =
            u64::from(miss.weight).saturating_mul(miss.cost.into()).saturating_mul(HIT.into()) / u64::from(COST_ONE);
        add(&self.hits[place], worth);
        let since = self.hits_since.load(Ordering::Relaxed).wrapping_add(1);
        self.hits_since.store(since, Ordering::Relaxed);
        since.is_multiple_of(HITS_PER_SCORE)
    }

    /// Counts a scan that freed so many objects, and kept some.
    pub(crate) fn scanned(&self, freed: u64, kept: u64, cost: u32, epoch: u32) {
        self.settle(epoch);
        self.freed.store(self.freed.load(Ordering::Relaxed).saturating_add(freed), Ordering::Relaxed);
        add(&self.kept, kept.saturating_mul(u64::from(KEPT)).saturating_mul(u64::from(cost)) / u64::from(COST_ONE));
    }

    /// Notes by how much the group's usage fell in a scan that freed so many objects. Returns their bytes,
    /// as far as they are known.
    pub(crate) fn note_fall(&self, freed: u64, fall: u64) -> u64 {
        let vain = if fall > 0 { 0 } else { self.vain.load(Ordering::Relaxed).saturating_add(1) };
        self.vain.store(vain, Ordering::Relaxed);
        if self.is_weighed.load(Ordering::Relaxed) {
            return freed.saturating_mul(self.mean());
        }
        if let Some(seen) = fall.checked_div(freed).filter(|seen| *seen > 0) {
            let mean = self.mean();
            self.set_mean(mean - mean / MEAN_OF + seen / MEAN_OF);
        }
        freed.saturating_mul(self.mean()).min(fall)
    }

    /// Scans in a row in which the group's usage did not fall.
    pub(crate) fn vain(&self) -> u16 {
        self.vain.load(Ordering::Relaxed)
    }

    /// Such scans free something all the same: there are fewer objects now.
    pub(crate) fn not_in_vain(&self) {
        self.vain.store(0, Ordering::Relaxed);
    }

    /// Notes the objects that the pair holds now, their weight, if the shrinker knows it, and what the whole
    /// group uses.
    pub(crate) fn counted(&self, held: u64, weight: Option<u64>, usage: u64, epoch: u32) {
        self.settle(epoch);
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

    fn set_mean(&self, mean: u64) {
        self.mean.store(u32::try_from(mean).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
    }

    /// Objects held, as it was last counted.
    pub(crate) fn objects(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether so much was freed since the pair was counted that its size is no longer known. What came
    /// meanwhile is not known either.
    pub(crate) fn is_stale(&self) -> bool {
        self.freed.load(Ordering::Relaxed).saturating_mul(STALE_PARTS) >= self.objects()
    }

    /// Bytes of one object; 1 before it was counted.
    pub(crate) fn mean(&self) -> u64 {
        self.mean.load(Ordering::Relaxed).max(1).into()
    }

    /// Their bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.objects().saturating_mul(self.mean())
    }

    /// The logarithm of the utility: the best hits per byte over all distances. None without hits.
    pub(crate) fn utility(&self, epoch: u32, budget: u64) -> Option<i32> {
        self.settle(epoch);
        let mut hits = u64::from(self.kept.load(Ordering::Relaxed));
        let kept_bytes = if hits > 0 { self.bytes() / KEPT_PARTS } else { 0 };
        let tail = kept_bytes.saturating_add(budget / NEAR_PARTS).max(1);
        let mut best = per_byte(hits, tail);
        for (place, tally) in self.hits.iter().enumerate() {
            hits += u64::from(tally.load(Ordering::Relaxed));
            let distance = budget >> (DISTANCES - 1 - place);
            best = best.max(per_byte(hits, tail.saturating_add(distance)));
        }
        best
    }

    /// The logarithm of the bytes inserted lately, in 64ths of the budget. None if nothing was inserted.
    pub(crate) fn insert_rate(&self, epoch: u32, budget: u64) -> Option<i32> {
        self.settle(epoch);
        match self.inserted.load(Ordering::Relaxed).saturating_mul(self.mean()) {
            0 => None,
            bytes => Some(log2(bytes) - log2((budget / 64).max(1))),
        }
    }

    /// The logarithm of the objects inserted lately for each one held. None if none was inserted.
    pub(crate) fn turnover(&self, epoch: u32) -> Option<i32> {
        self.settle(epoch);
        let held = self.held.load(Ordering::Relaxed).max(1);
        match self.inserted.load(Ordering::Relaxed) {
            0 => None,
            inserted => Some(log2(inserted) - log2(held)),
        }
    }
}

/// The logarithm of hits per byte; none without hits.
fn per_byte(hits: u64, bytes: u64) -> Option<i32> {
    (hits > 0).then(|| log2(hits) - log2(HIT.into()) - log2(bytes))
}

fn add(tally: &AtomicU32, n: u64) {
    let sum = u64::from(tally.load(Ordering::Relaxed)).saturating_add(n);
    tally.store(u32::try_from(sum).unwrap_or(u32::MAX), Ordering::Relaxed);
}

/// What is left of a tally after so many epochs.
fn decayed(tally: u64, epochs: u32) -> u64 {
    /// 2 to the power of minus n quarters, in 65,536ths.
    const QUARTERS: [u64; HALF_LIFE as usize] = [65_536, 55_109, 46_341, 38_968];
    let part = QUARTERS[(epochs % HALF_LIFE) as usize];
    let left = (u128::from(tally) * u128::from(part)) >> 16;
    left.checked_shr(epochs / HALF_LIFE).unwrap_or(0) as u64
}

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests {
    use super::super::log2::ONE;
    use super::*;
    use lowwater_lru_core::ByteSize;

    const BUDGET: u64 = 1 << 20;

    fn hit(distance: u64) -> Miss {
        Miss::at(ByteSize::new(distance))
    }

    #[test]
    fn a_tally_halves_in_four_epochs() {
        for (epochs, left) in [(0, 1_000), (1, 840), (2, 707), (4, 500), (8, 250), (40, 0), (u32::MAX, 0)] {
            assert_eq!(decayed(1_000, epochs), left, "after {epochs}");
        }
        assert_eq!(decayed(u64::MAX, 1), ((u128::from(u64::MAX) * 55_109) >> 16) as u64);
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
        let [near, far, both] = [near, far, both].map(|tallies| tallies.utility(0, BUDGET).unwrap());
        assert!(near > far + 5 * ONE, "as many hits for a 64th of the bytes: {near} and {far}");
        assert_eq!(near, both, "what comes later takes nothing away");
        assert_eq!(Tallies::default().utility(0, BUDGET), None);
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
        assert!(cliff.utility(0, BUDGET) > slope.utility(0, BUDGET));
    }

    #[test]
    fn costs_and_weights_multiply() {
        let (dear, weighty, plain) = (Tallies::default(), Tallies::default(), Tallies::default());
        dear.hit(hit(1).cost(8 * COST_ONE), 0, BUDGET);
        weighty.hit(hit(1).weight(8), 0, BUDGET);
        for _ in 0..8 {
            plain.hit(hit(1), 0, BUDGET);
        }
        let all = [dear, weighty, plain].map(|tallies| tallies.utility(0, BUDGET));
        assert!(all[0].is_some() && all[0] == all[1] && all[1] == all[2], "{all:?}");
    }

    #[test]
    fn a_turnover_counts_what_came_and_what_went() {
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
    fn a_thread_that_is_late_takes_nothing_away() {
        let tallies = Tallies::default();
        tallies.hit(hit(1), 10, BUDGET);
        let before = tallies.utility(10, BUDGET);
        tallies.scanned(0, 0, 0, 9);
        assert_eq!(tallies.utility(10, BUDGET), before);
        // But for one whose tallies are so old that it is the other way round.
        assert_eq!(tallies.utility(10_u32.wrapping_sub(LATE_MAX + 1), BUDGET), None);
    }

    #[test]
    fn a_weight_that_is_not_known_is_learnt_from_what_scans_free() {
        let tallies = Tallies::default();
        // The group holds other things, too.
        tallies.counted(100, None, 1_000_000, 0);
        assert_eq!(tallies.mean(), 10_000);
        for _ in 0..100 {
            assert!(tallies.note_fall(8, 800) <= 800, "no more than what has gone");
        }
        assert!((100..=110).contains(&tallies.mean()), "{}", tallies.mean());
        tallies.counted(100, None, 1_000_000, 0);
        assert!(tallies.mean() <= 110, "a count tells nothing new");
        tallies.counted(100, None, 5_000, 0);
        assert_eq!(tallies.mean(), 50, "but that it is no more than all");
        tallies.counted(100, Some(700), 5_000, 0);
        assert_eq!((tallies.mean(), tallies.note_fall(8, 1)), (7, 56), "until it is known");
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
        assert!(tallies.utility(7, u64::MAX).is_some());
        assert!(tallies.utility(1 << 20, 0).is_none(), "so much later nothing is left");
    }
}
