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
/// A scan moves the mean size of freed objects by 1/`MEAN_OF` of the difference.
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
    /// The mean bytes of a freed object, by the reports of a shrinker that weighs its objects; 0
    /// before the first one.
    freed_mean: AtomicU32,
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
    /// The number of objects freed since the last count, at most `u32::MAX`.
    freed: AtomicU32,
    /// The number of objects inserted; decays.
    inserted: AtomicU64,
}

impl Tallies {
    /// Resets all tallies: the slot belongs to another pair, from this epoch on.
    pub(crate) fn reset(&self, epoch: u32) {
        self.epoch.store(epoch, Ordering::Relaxed);
        self.hits.iter().chain([&self.kept]).for_each(|tally| tally.set(0));
        let means = [&self.mean, &self.freed_mean];
        means.into_iter().chain([&self.kib_left, &self.freed]).for_each(|tally| tally.store(0, Ordering::Relaxed));
        self.scans_without_fall.store(0, Ordering::Relaxed);
        self.hits_since.store(0, Ordering::Relaxed);
        self.is_weighed.store(false, Ordering::Relaxed);
        [&self.held, &self.inserted].into_iter().for_each(|tally| tally.store(0, Ordering::Relaxed));
    }

    /// Copies the tallies of a pair that moves to this slot.
    pub(crate) fn copy_from(&self, from: &Self) {
        macro_rules! copy {
            ($($tally:ident),*) => { $(self.$tally.store($tally.load(Ordering::Relaxed), Ordering::Relaxed);)* };
        }
        let Self { epoch, mean, freed_mean, kib_left, .. } = from;
        let Self { scans_without_fall, hits_since, is_weighed, held, freed, inserted, .. } = from;
        copy!(epoch, mean, freed_mean, kib_left, scans_without_fall, hits_since, is_weighed, held, freed, inserted);
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
        let freed = self.freed.load(Ordering::Relaxed).saturating_add(u32::try_from(freed).unwrap_or(u32::MAX));
        self.freed.store(freed, Ordering::Relaxed);
        self.kept.add(kept.saturating_mul(KEPT).saturating_mul(cost.into()));
    }

    /// Records that the group's usage fell by `fall` bytes in a scan that freed `freed` objects.
    /// Returns the bytes of these objects: those that the shrinker `reported`, or an estimate.
    pub(crate) fn note_freed(&self, freed: u64, reported: Option<u64>, fall: u64) -> u64 {
        let scans_without_fall =
            if fall > 0 { 0 } else { self.scans_without_fall.load(Ordering::Relaxed).saturating_add(1) };
        self.scans_without_fall.store(scans_without_fall, Ordering::Relaxed);
        let moved = |mean: u64, seen: u64| mean - mean / MEAN_OF + seen / MEAN_OF;
        if self.is_weighed.load(Ordering::Relaxed) {
            let Some(bytes) = reported else { return freed.saturating_mul(self.freed_mean()) };
            // No more than the pair holds.
            let bytes = bytes.min(self.bytes());
            if let Some(seen) = bytes.checked_div(freed) {
                set_mean(&self.freed_mean, moved(self.freed_mean(), seen));
            }
            return bytes;
        }
        if let Some(seen) = fall.checked_div(freed).filter(|seen| *seen > 0) {
            set_mean(&self.mean, moved(self.mean(), seen));
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
        let freed = u64::from(self.freed.swap(0, Ordering::Relaxed));
        let grown = held.saturating_add(freed).saturating_sub(self.held.swap(held, Ordering::Relaxed));
        self.inserted.store(self.inserted.load(Ordering::Relaxed).saturating_add(grown), Ordering::Relaxed);
        self.is_weighed.store(weight.is_some(), Ordering::Relaxed);
        let most = usage / held.max(1);
        let mean = match (weight, self.mean.load(Ordering::Relaxed)) {
            (Some(weight), _) => weight / held.max(1),
            (None, 0) => most,
            (None, mean) => most.min(mean.into()),
        };
        set_mean(&self.mean, mean);
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

    /// Returns the number of objects at the last count.
    pub(crate) fn objects(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns true if the pair had no objects at the last count, or so many were freed since then
    /// that its size is no longer known; inserts since then are unknown, too.
    pub(crate) fn is_stale(&self) -> bool {
        let held = self.objects();
        let freed_max = (held / STALE_PARTS).max(STALE_MIN.min(held / STALE_PARTS_SMALL)).max(1);
        held == 0 || u64::from(self.freed.load(Ordering::Relaxed)) >= freed_max.min(u32::MAX.into())
    }

    /// Returns the mean bytes of an object; 1 before the first count.
    pub(crate) fn mean(&self) -> u64 {
        self.mean.load(Ordering::Relaxed).max(1).into()
    }

    /// Returns the mean bytes of a freed object; before the first report, those of an object. Large
    /// objects may stay while small ones come and go.
    pub(crate) fn freed_mean(&self) -> u64 {
        match self.freed_mean.load(Ordering::Relaxed) {
            mean if mean > 0 && self.is_weighed.load(Ordering::Relaxed) => mean.into(),
            _ => self.mean(),
        }
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
    /// `None` if nothing was inserted. Inserted objects are taken to be as large as freed ones.
    pub(crate) fn insert_rate(&self, epoch: u32, budget: u64) -> Option<i32> {
        self.decay_to(epoch);
        match self.inserted.load(Ordering::Relaxed).saturating_mul(self.freed_mean()) {
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

fn set_mean(mean: &AtomicU32, bytes: u64) {
    mean.store(u32::try_from(bytes).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
}

/// Returns the logarithm of hits per byte; `None` without hits.
fn per_byte(hits: u64, bytes: u64) -> Option<i32> {
    (hits > 0).then(|| log2(hits) - log2(HIT * u64::from(COST_ONE)) - log2(bytes))
}

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests;
