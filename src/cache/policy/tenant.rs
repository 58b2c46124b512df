//! The statistics of one tenant of a cache: evictions, inserts and ghost hits. From them follow the
//! share of probation, the detection of scans, and the distance of a miss.
//!
//! Two methods adapt the share of probation: [`Tenant::learn`] after a ghost hit, and
//! [`Tenant::note_walk`] after an eviction walk. [`Tenant::ghost_hit`] decides which returning keys
//! enter main, by the lap time of main's hand ([`lap`](super::lap)).
//!
//! A tenant takes 80 bytes, in pages of 8 tenants with neighbouring ids. The page of a tenant is
//! allocated at its first eviction and stays until the cache is dropped. The directory of pages is
//! allocated in parts, each twice as long as the one before, with 16 bytes per page, so that the
//! memory for the first tenant hardly depends on its id.
//!
//! All fields are statistics that improve an estimate. All accesses are Relaxed: a lost update only
//! makes an estimate less exact, and no other memory is published through them.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering};

use lowwater_lru_core::NodeId;
use lowwater_shrinker::PairHint;

use super::lap::Lap;
use super::mean_uses::MeanUses;
use super::queue::Queue;
use super::queue_walk::QueueWalk;
use crate::runtime::{Ghost, GHOST_TIMES_MAX};

/// The number 1, in the fixed point of fractions.
const ONE: u32 = 1 << 30;
/// Probation's fraction of a tenant's records: the initial value, the minimum, the maximum.
const FRACTION_FIRST: u32 = ONE / 10;
const FRACTION_MIN: u32 = ONE / 100;
const FRACTION_MAX: u32 = ONE / 10 * 9;
/// A tenant with fewer entries adapts as if it had this many, because the statistics of fewer
/// entries are mostly noise.
const SIZE_MIN: u64 = 64;
/// A tenant scans if fewer than 1 / `HITS_ONE_IN` of its recent inserts are ghost hits.
const HITS_ONE_IN: u32 = 64;
/// The least number of recent inserts after which a tenant may count as scanning. The threshold is
/// half of the entries that fit in the budget, if that is more: a key that returns only after more
/// inserts would not stay in the cache anyway.
const INSERTS_MIN: u32 = 64;
/// The recent inserts and ghost hits are halved when the inserts reach this multiple of the scan
/// threshold; the recent evictions when they reach `RECENT_EVICTIONS_MAX`.
const RECENT_TIMES: u32 = 4;
const RECENT_EVICTIONS_MAX: u32 = 256;
/// Each eviction batch moves the mean charge by 1 / `MEAN_OF` of the distance to its own.
const MEAN_OF: u32 = 8;
/// While a tenant scans, ghosts are inserted and looked up only for the keys of one hash in
/// `SCANNING_ONE_IN`: a sample that detects the end of the scan.
const SCANNING_ONE_IN: u32 = 64;
/// The ghost's clock is coarse enough that it does not wrap within this multiple of the tenant's
/// records, in evictions.
const GHOST_TIMES: u64 = 4;
/// A ghost is near if its age is at most 1 / `NEAR_PARTS` of the tenant's records, in evictions.
const NEAR_PARTS: u64 = 10;
/// The largest change of probation's limit by one near ghost, in records.
const STEP_MAX: u64 = 5;
/// A key with a ghost enters main if its time to return, times this margin (in halves), is less
/// than the idle time of main's next victim.
const MARGIN_HALVES: u64 = 3;
/// The margin for a tenant of at most `FEW_RECORDS` records whose probation is shorter than
/// `FRACTION_SHORT`. Main then retains records by frequency, and among few records a wrong one
/// costs more hits.
const MARGIN_HALVES_OF_FEW: u64 = 6;
const FEW_RECORDS: u64 = 1_500;
const FRACTION_SHORT: u32 = ONE / 20;
/// The largest length of one tick of a ghost's clock, in evictions, as a power of two.
const SHIFT_MAX: u32 = 24;

/// The result of a ghost hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GhostHit {
    /// The key returned so soon that its record belongs in main.
    pub(crate) is_soon: bool,
    /// The tenant's evictions since the ghost's: with this many entries more in its share, the
    /// lookup would have hit.
    pub(crate) evictions: u64,
}

/// The statistics of one tenant. A zeroed tenant is a valid new one. See the module.
#[derive(Default)]
pub(crate) struct Tenant {
    /// Evictions so far, wrapping: the clock by which the age of a ghost is measured.
    evictions: AtomicU32,
    /// Probation's fraction minus [`FRACTION_FIRST`], so that a zeroed tenant starts there.
    probation_fraction: AtomicU32,
    /// Recent evictions, by queue; recent inserts, and the ghost hits among them.
    recent_evictions: [AtomicU32; 2],
    recent_inserts: AtomicU32,
    recent_ghost_hits: AtomicU32,
    /// The evictions so far that are matched with a counted insert.
    matched_evictions: AtomicU32,
    /// The tenant's number of entries at its last eviction.
    entries: AtomicU32,
    /// The number of recent inserts after which the tenant may count as scanning.
    scan_min: AtomicU32,
    /// The mean charge of recently evicted entries, in bytes; 0 before the first eviction.
    mean_charge: AtomicU32,
    /// The laps of main's hand, from which the idle time of main's next victim follows.
    lap: Lap,
    /// The mean use count of the records that eviction walks visit, by queue.
    mean_uses: [MeanUses; 2],
    /// The registry's slot for the pair of this cache and tenant.
    pub(crate) pair: PairHint,
    /// Evictions in one tick of the ghosts' clock, as a power of two.
    shift: AtomicU8,
    /// With SIEVE, one bit per node. If it is set, the hand's lap there is odd: main is the list
    /// ahead of the hand; otherwise probation is.
    lap_bits: AtomicU64,
}

impl Tenant {
    /// Returns the limit of probation, in records, of a tenant with `entries` records.
    pub(crate) fn probation_limit(&self, entries: u64) -> u64 {
        entries.saturating_mul(self.fraction().into()) / u64::from(ONE)
    }

    fn fraction(&self) -> u32 {
        self.probation_fraction.load(Ordering::Relaxed).wrapping_add(FRACTION_FIRST)
    }

    /// Returns the number of ghost hits that one hit of a key of this hash represents; `None` if
    /// the tenant scans and the hash is not in the sample, so that its keys have no ghosts.
    pub(crate) fn ghost_weight(&self, hash: u64) -> Option<u32> {
        if !self.is_scanning() {
            return Some(1);
        }
        // Bits of the hash that select neither the bucket nor the tag of the ghost, so that the
        // sample spreads over all buckets.
        (hash >> 36 & u64::from(SCANNING_ONE_IN - 1) == 0).then_some(SCANNING_ONE_IN)
    }

    /// Counts the eviction of a key of this hash from `queue`, of a tenant with `entries` records.
    /// Its ghosts count until `reach` more evictions. Returns the ghost to insert, if any.
    pub(crate) fn on_evict(&self, hash: u64, queue: Queue, entries: u64, reach: u64) -> Option<Ghost> {
        let clock = bump(&self.evictions);
        bump(&self.recent_evictions[queue as usize]);
        if self.recent() >= RECENT_EVICTIONS_MAX {
            self.recent_evictions.iter().for_each(halve);
        }
        let scan_min = u32::try_from(reach / 2).unwrap_or(u32::MAX).clamp(INSERTS_MIN, u32::MAX / 2 / RECENT_TIMES);
        self.scan_min.store(scan_min, Ordering::Relaxed);
        self.entries.store(u32::try_from(entries).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.fit_clock(entries, reach);
        let is_main = queue == Queue::Main;
        self.ghost_weight(hash).map(|_| Ghost { is_main, time: self.ticks(clock) })
    }

    /// Returns the recent evictions from both queues.
    fn recent(&self) -> u32 {
        self.recent_evictions.iter().map(|queue| queue.load(Ordering::Relaxed)).sum()
    }

    /// Counts an insert of a key with a ghost; the hit represents `weight` hits. If the tenant
    /// `learns`, a near ghost adapts the probation fraction.
    ///
    /// A key whose ghost is of probation enters main if it was away for less time than main's next
    /// victim is idle: its record is then used more often than the one that it displaces (the rule
    /// of LIRS, with a margin). Each record that enters advances main's hand, so that too many
    /// entering records shorten main's idle time until further keys fail the test. A key whose
    /// ghost is of main does not enter: its record went unused for a whole lap before its eviction.
    ///
    /// Without `learns` the share is fixed, and a key enters main if its ghost is younger than as
    /// many evictions as the tenant has records, as in S3-FIFO.
    pub(crate) fn ghost_hit(&self, ghost: Ghost, weight: u32, learns: bool) -> GhostHit {
        let queue = if ghost.is_main { Queue::Main } else { Queue::Probation };
        let clock = self.evictions.load(Ordering::Relaxed);
        let evictions = u64::from(self.ticks(clock).wrapping_sub(ghost.time) % GHOST_TIMES_MAX) << self.shift();
        let entries = u64::from(self.entries.load(Ordering::Relaxed));
        self.recent_ghost_hits
            .store(self.recent_ghost_hits.load(Ordering::Relaxed).saturating_add(weight), Ordering::Relaxed);
        if learns && evictions <= entries.max(SIZE_MIN) / NEAR_PARTS {
            self.learn(queue, entries.max(SIZE_MIN));
        }
        let is_soon = match learns {
            true => {
                let away = evictions + self.probation_limit(entries);
                let is_short = entries <= FEW_RECORDS && self.fraction() < FRACTION_SHORT;
                let margin = if is_short { MARGIN_HALVES_OF_FEW } else { MARGIN_HALVES };
                away * margin < 2 * self.lap.idle(clock)
            }
            false => evictions < entries,
        };
        GhostHit { is_soon: queue == Queue::Probation && is_soon, evictions }
    }

    /// Moves the probation fraction so that `queue` may be longer. The step is inversely
    /// proportional to the queue's part of recent evictions, within half a record and [`STEP_MAX`]
    /// records. The fraction thus follows the rate at which the evicted keys of each queue return,
    /// and not the number of its evictions.
    fn learn(&self, queue: Queue, entries: u64) {
        let of_queue = u64::from(self.recent_evictions[queue as usize].load(Ordering::Relaxed)).max(1);
        let record = u64::from(ONE) / entries;
        let step = (record * u64::from(self.recent()) / of_queue / 2).clamp(record / 2, record * STEP_MAX);
        self.move_line(match queue {
            Queue::Probation => step as i64,
            Queue::Main => -(step as i64),
        });
    }

    /// Adds `by` to the probation fraction, within its bounds.
    fn move_line(&self, by: i64) {
        let fraction = (i64::from(self.fraction()) + by).clamp(FRACTION_MIN.into(), FRACTION_MAX.into()) as u32;
        self.probation_fraction.store(fraction.wrapping_sub(FRACTION_FIRST), Ordering::Relaxed);
    }

    /// Adds an eviction walk to the statistics, and shrinks probation while its records have fewer
    /// uses, per record and eviction, than those of main.
    ///
    /// Near ghosts estimate the hits that a longer probation might gain, and often mislead: in a
    /// loop that is a little longer than the cache, each key returns just after its eviction,
    /// however long the queue is. The uses measure the hits that probation does gain.
    pub(crate) fn note_walk(&self, walk: QueueWalk) {
        if walk.visited == 0 {
            // Another thread has the queue, or it is empty: nothing was learnt.
            return;
        }
        let uses = &self.mean_uses[walk.queue as usize];
        uses.note(walk.visited, walk.uses);
        let clock = self.evictions.load(Ordering::Relaxed);
        if walk.queue == Queue::Main {
            self.lap.advance(walk.visited, walk.main, clock);
        }
        let entries = walk.probation + walk.main;
        let of_probation = u64::from(self.recent_evictions[Queue::Probation as usize].load(Ordering::Relaxed));
        // The time that a record stays on probation, from one end to the other, in evictions.
        let stay = walk.probation.max(1) * u64::from(self.recent().max(1)) / of_probation.max(1);
        let idle = self.lap.idle(clock).max(entries.max(SIZE_MIN) / NEAR_PARTS);
        let uses_per_eviction = |queue: Queue, evictions: u64| {
            self.mean_uses[queue as usize].get() * u64::from(ONE) / MeanUses::ONE / evictions.max(1)
        };
        let earned = uses_per_eviction(Queue::Probation, stay);
        let lost = uses_per_eviction(Queue::Main, idle).saturating_sub(earned);
        if lost > 0 {
            self.move_line(-((lost * walk.evicted / NEAR_PARTS / 2) as i64));
        }
    }

    /// Counts an insert, if an earlier eviction from the tenant is not matched with one yet. A
    /// tenant without evictions has no ghosts, so that its misses without a ghost hit are no sign
    /// of a scan.
    #[inline]
    pub(crate) fn note_insert(&self) {
        let evictions = self.evictions.load(Ordering::Relaxed);
        let unmatched = evictions.wrapping_sub(self.matched_evictions.load(Ordering::Relaxed));
        // Negative after a lost update of `evictions`.
        if unmatched as i32 <= 0 {
            return;
        }
        let scan_min = self.scan_min.load(Ordering::Relaxed).max(INSERTS_MIN);
        // Only the latest evictions can be matched: the ghosts of older ones are too old to count.
        let left = unmatched.min(2 * scan_min) - 1;
        self.matched_evictions.store(evictions.wrapping_sub(left), Ordering::Relaxed);
        if bump(&self.recent_inserts) >= scan_min * RECENT_TIMES {
            [&self.recent_inserts, &self.recent_ghost_hits].into_iter().for_each(halve);
        }
    }

    /// Adds an eviction batch of `entries` entries with a total charge of `bytes` to the mean
    /// charge.
    pub(crate) fn note_evicted(&self, entries: u64, bytes: u64) {
        let Some(seen) = bytes.checked_div(entries) else { return };
        let seen = u32::try_from(seen).unwrap_or(u32::MAX).max(1);
        let mean = match self.mean_charge.load(Ordering::Relaxed) {
            0 => seen,
            mean => mean - mean / MEAN_OF + seen / MEAN_OF,
        };
        self.mean_charge.store(mean.max(1), Ordering::Relaxed);
    }

    /// Returns the mean charge of recently evicted entries, in bytes; `None` before the first.
    pub(crate) fn mean_charge(&self) -> Option<u64> {
        Some(u64::from(self.mean_charge.load(Ordering::Relaxed))).filter(|mean| *mean > 0)
    }

    /// Returns whether the tenant scans: fewer than 1 / [`HITS_ONE_IN`] of its recent inserts are
    /// of recently evicted keys, so that more memory would bring it almost no hits.
    ///
    /// Only the tenant's own inserts count, at most one per eviction. Evictions alone are no sign
    /// of a scan, because the inserts of other tenants may cause them.
    pub(crate) fn is_scanning(&self) -> bool {
        let inserts = self.recent_inserts.load(Ordering::Relaxed);
        let hits = self.recent_ghost_hits.load(Ordering::Relaxed).saturating_mul(HITS_ONE_IN);
        inserts >= self.scan_min.load(Ordering::Relaxed).max(INSERTS_MIN) && hits < inserts
    }

    /// Returns whether the tenant has had no eviction yet, so that its memory is still filling.
    pub(crate) fn is_filling(&self) -> bool {
        self.evictions.load(Ordering::Relaxed) == 0
    }

    /// Returns whether SIEVE's hand is in an odd lap on a node. Nodes whose numbers are equal
    /// modulo 64 share a bit, so that a new lap on one of them also switches the lists of the
    /// other.
    pub(crate) fn is_lap_odd(&self, node: NodeId) -> bool {
        self.lap_bits.load(Ordering::Relaxed) >> (node.index() % 64) & 1 == 1
    }

    /// Starts the next lap of SIEVE's hand on a node.
    pub(crate) fn next_lap(&self, node: NodeId) {
        self.lap_bits.fetch_xor(1 << (node.index() % 64), Ordering::Relaxed);
    }

    /// Sets the length of a tick so that the ghosts' clock does not wrap within the age of the
    /// oldest ghost that counts, and is not much coarser than that.
    ///
    /// A change misdates the existing ghosts. Changes are rare: the length grows when the tenant
    /// has become twice as large, and shrinks only when it is too long by a factor of four.
    fn fit_clock(&self, entries: u64, reach: u64) {
        let span = (entries.max(SIZE_MIN) * GHOST_TIMES * 2).max(reach.saturating_mul(2));
        let wanted = span.ilog2().saturating_sub(GHOST_TIMES_MAX.ilog2()).min(SHIFT_MAX);
        let shift = self.shift();
        if wanted > shift || wanted + 1 < shift {
            self.shift.store(wanted as u8, Ordering::Relaxed);
        }
    }

    fn shift(&self) -> u32 {
        u32::from(self.shift.load(Ordering::Relaxed))
    }

    fn ticks(&self, clock: u32) -> u32 {
        (clock >> self.shift()) % GHOST_TIMES_MAX
    }

    pub(crate) fn forget(&self) {
        let all = [&self.probation_fraction, &self.recent_ghost_hits, &self.entries, &self.scan_min];
        let all = all.into_iter().chain([&self.recent_inserts, &self.mean_charge, &self.matched_evictions]);
        let all = all.chain([&self.evictions]).chain(&self.recent_evictions);
        all.for_each(|tally| tally.store(0, Ordering::Relaxed));
        self.lap.reset();
        self.mean_uses.iter().for_each(MeanUses::reset);
        self.shift.store(0, Ordering::Relaxed);
        self.lap_bits.store(0, Ordering::Relaxed);
    }
}

/// Increments a tally, wrapping, and returns its value before.
fn bump(tally: &AtomicU32) -> u32 {
    let before = tally.load(Ordering::Relaxed);
    tally.store(before.wrapping_add(1), Ordering::Relaxed);
    before
}

fn halve(tally: &AtomicU32) {
    tally.store(tally.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash in the sample of hashes that have ghosts even while the tenant scans.
    const HASH: u64 = 0;

    fn evict(tenant: &Tenant, queue: Queue, entries: u64) -> Ghost {
        tenant.on_evict(HASH, queue, entries, 0).expect("the tenant does not scan")
    }

    /// A walk over one record of a tenant with 1,000 records, with this number of uses.
    fn walk(queue: Queue, uses: u64) -> QueueWalk {
        QueueWalk { queue, visited: 1, evicted: 1, uses, probation: 100, main: 900 }
    }

    #[test]
    fn the_line_follows_what_comes_back_soon_and_stays_in_its_bounds() {
        let tenant = Tenant::default();
        assert_eq!(tenant.probation_limit(1_000), 99);
        for _ in 0..10_000 {
            tenant.ghost_hit(evict(&tenant, Queue::Probation, 1_000), 1, true);
        }
        assert!((898..=900).contains(&tenant.probation_limit(1_000)), "{}", tenant.probation_limit(1_000));
        for _ in 0..10_000 {
            tenant.ghost_hit(evict(&tenant, Queue::Main, 1_000), 1, true);
        }
        assert!((9..=10).contains(&tenant.probation_limit(1_000)), "{}", tenant.probation_limit(1_000));
    }

    #[test]
    fn the_line_is_told_by_near_ghosts_only() {
        for (evictions, moves) in [(99, true), (101, false)] {
            let tenant = Tenant::default();
            let ghost = evict(&tenant, Queue::Probation, 1_000);
            (0..evictions).for_each(|_| _ = evict(&tenant, Queue::Probation, 1_000));
            tenant.ghost_hit(ghost, 1, true);
            assert_eq!(tenant.probation_limit(1_000_000) > 100_000, moves, "{evictions}");
        }
    }

    #[test]
    fn the_rarer_queue_moves_the_line_further() {
        let tenant = Tenant::default();
        for n in 0..10_000 {
            let queue = if n % 10 == 0 { Queue::Main } else { Queue::Probation };
            let ghost = evict(&tenant, queue, 1_000);
            // One in ten of the keys evicted from either queue returns.
            if n % 100 == 0 || n % 10 == 1 {
                tenant.ghost_hit(ghost, 1, true);
            }
        }
        let limit = tenant.probation_limit(1_000);
        assert!((20..=400).contains(&limit), "{limit}");
    }

    #[test]
    fn probation_shrinks_while_its_records_are_used_less_than_those_of_main() {
        let tenant = Tenant::default();
        let limit = |uses_of_probation, uses_of_main| {
            (0..200_000).for_each(|n| {
                evict(&tenant, Queue::Probation, 1_000);
                tenant.note_walk(walk(Queue::Probation, uses_of_probation));
                if n % 10 == 0 {
                    tenant.note_walk(walk(Queue::Main, uses_of_main));
                }
            });
            tenant.probation_limit(1_000)
        };
        assert_eq!(limit(1, 1), 99, "a record stays on probation for 100 evictions, and in main for 9,000");
        assert_eq!(limit(0, 1), 9, "no record is used on probation");
        assert_eq!(limit(0, 0), 9);
    }

    #[test]
    fn a_wrong_guess_of_near_ghosts_is_taken_back() {
        let tenant = Tenant::default();
        for _ in 0..2_000 {
            tenant.ghost_hit(evict(&tenant, Queue::Probation, 1_000), 1, true);
        }
        assert!(tenant.probation_limit(1_000) > 890);
        // No record is used on probation, and each record of main once per lap: the limit is back
        // after evictions of 40 times the tenant's records.
        for n in 0..40_000 {
            evict(&tenant, Queue::Probation, 1_000);
            let probation = tenant.probation_limit(1_000);
            tenant.note_walk(QueueWalk { probation, main: 1_000 - probation, ..walk(Queue::Probation, 0) });
            if n % 4 == 0 {
                tenant.note_walk(QueueWalk { probation, main: 1_000 - probation, ..walk(Queue::Main, 1) });
            }
        }
        assert!(tenant.probation_limit(1_000) < 100, "{}", tenant.probation_limit(1_000));
    }

    #[test]
    fn a_walk_without_visits_changes_nothing() {
        let tenant = Tenant::default();
        for n in 0..100 {
            evict(&tenant, Queue::Probation, 1_000);
            tenant.note_walk(QueueWalk { main: 10, ..walk(Queue::Main, 1) });
            // The hand stands: a walk without visits begins no lap.
            let idle = tenant.lap.idle(n);
            tenant.note_walk(QueueWalk { visited: 0, evicted: 0, main: 10, ..walk(Queue::Main, 0) });
            assert_eq!(tenant.lap.idle(n), idle);
        }
        let (main, before) = (tenant.mean_uses[Queue::Main as usize].get(), tenant.lap.idle(1_000));
        for _ in 0..1_000 {
            tenant.note_walk(QueueWalk { visited: 0, evicted: 0, main: 0, ..walk(Queue::Main, 0) });
        }
        assert_eq!((tenant.mean_uses[Queue::Main as usize].get(), tenant.lap.idle(1_000)), (main, before));
    }

    #[test]
    fn a_ghost_enters_main_if_it_returns_sooner_than_the_hand() {
        let tenant = Tenant::default();
        // A lap of main takes 9,000 evictions.
        for n in 0..40_000 {
            evict(&tenant, Queue::Probation, 10_000);
            if n % 10 == 0 {
                tenant.note_walk(walk(Queue::Main, 1));
            }
        }
        let limit = (9_000 - 1_000 - 500) * 2 / 3;
        for (evictions, enters) in [(limit - 2_000, true), (limit + 2_000, false)] {
            let ghost = evict(&tenant, Queue::Probation, 10_000);
            for n in 0..evictions {
                evict(&tenant, Queue::Probation, 10_000);
                if n % 10 == 0 {
                    tenant.note_walk(walk(Queue::Main, 1));
                }
            }
            assert_eq!(tenant.ghost_hit(ghost, 1, true).is_soon, enters, "{evictions} evictions");
        }
        let ghost = evict(&tenant, Queue::Main, 10_000);
        assert!(!tenant.ghost_hit(ghost, 1, true).is_soon, "it was not used for a lap");
    }

    #[test]
    fn with_a_fixed_line_ghosts_count_for_as_many_evictions_as_there_are_records() {
        for (entries, evictions, enters) in [(1_000, 998, true), (1_000, 1_000, false), (20, 18, true), (20, 20, false)]
        {
            let tenant = Tenant::default();
            let ghost = evict(&tenant, Queue::Probation, entries);
            (0..evictions).for_each(|_| _ = evict(&tenant, Queue::Probation, entries));
            let hit = tenant.ghost_hit(ghost, 1, false);
            assert_eq!((hit.is_soon, hit.evictions), (enters, evictions + 1));
            assert_eq!(tenant.fraction(), FRACTION_FIRST);
        }
    }

    #[test]
    fn a_scan_is_known_by_its_inserts_and_may_end() {
        let tenant = Tenant::default();
        let hashes = || (0..1_600_u64).map(|n| n << 36);
        assert!(
            hashes().all(|hash| tenant.on_evict(hash, Queue::Probation, 1_000, 0).is_some()),
            "others may be the reason"
        );
        assert!(!tenant.is_scanning());
        (0..INSERTS_MIN).for_each(|_| tenant.note_insert());
        assert!(tenant.is_scanning());
        let left = hashes().filter(|&hash| tenant.on_evict(hash, Queue::Probation, 1_000, 0).is_some()).count();
        assert_eq!(left, 1_600 / SCANNING_ONE_IN as usize);
        let weights = hashes().filter_map(|hash| tenant.ghost_weight(hash));
        assert_eq!(weights.sum::<u32>(), 1_600, "those that are left stand for all");
        if let Some(ghost) = tenant.on_evict(0, Queue::Probation, 1_000, 0) {
            for _ in 0..4 {
                tenant.ghost_hit(ghost, SCANNING_ONE_IN, true);
            }
        }
        assert!(!tenant.is_scanning());
        tenant.forget();
        assert!(!tenant.is_scanning() && tenant.is_filling());
    }

    #[test]
    fn a_scan_of_a_large_budget_is_known_when_half_of_it_was_inserted() {
        let tenant = Tenant::default();
        let replace_one = || {
            tenant.on_evict(HASH, Queue::Probation, 1_000, 20_000);
            tenant.note_insert();
        };
        (0..9_999).for_each(|_| replace_one());
        assert!(!tenant.is_scanning());
        replace_one();
        assert!(tenant.is_scanning());
    }

    #[test]
    fn a_tenant_that_loses_nothing_does_not_scan() {
        let tenant = Tenant::default();
        (0..100).for_each(|_| _ = tenant.on_evict(HASH, Queue::Main, 1_000, 20_000));
        (0..1_000_000).for_each(|_| tenant.note_insert());
        assert!(!tenant.is_scanning(), "what it inserts cannot have ghosts");
        // Only as many unmatched evictions count as entries fit in the budget, here 20,000.
        (0..1_000_000).for_each(|_| _ = tenant.on_evict(HASH, Queue::Main, 1_000, 20_000));
        (0..30_000).for_each(|_| tenant.note_insert());
        assert_eq!(tenant.recent_inserts.load(Ordering::Relaxed), 20_100);
    }

    #[test]
    fn a_lost_step_of_the_clock_makes_no_scan() {
        let tenant = Tenant::default();
        tenant.matched_evictions.store(1, Ordering::Relaxed);
        (0..1_000).for_each(|_| tenant.note_insert());
        assert!(!tenant.is_scanning());
    }

    #[test]
    fn the_mean_charge_follows_what_is_evicted() {
        let tenant = Tenant::default();
        assert_eq!(tenant.mean_charge(), None);
        tenant.note_evicted(0, 0);
        tenant.note_evicted(8, 800);
        assert_eq!(tenant.mean_charge(), Some(100));
        (0..100).for_each(|_| tenant.note_evicted(8, 80_000));
        assert!(tenant.mean_charge() > Some(9_900));
        tenant.note_evicted(1, u64::MAX);
    }

    #[test]
    fn the_clock_of_a_large_tenant_ticks_slower_and_still_tells() {
        let tenant = Tenant::default();
        let many = 1_000_000;
        evict(&tenant, Queue::Probation, many);
        let ghost = evict(&tenant, Queue::Probation, many);
        (1..7 * many / 2).for_each(|_| _ = evict(&tenant, Queue::Probation, many));
        let evictions = tenant.ghost_hit(ghost, 1, true).evictions;
        assert!(evictions.abs_diff(7 * many / 2) < many / 1_000, "{evictions}");
    }

    /// Evicts so many from a queue of a tenant of 1,000 records.
    fn evict_times(tenant: &Tenant, queue: Queue, n: u64) -> Ghost {
        let ghosts = (0..n).map(|_| tenant.on_evict(HASH, queue, 1_000, 0).expect("nothing is known against it"));
        ghosts.last().expect("at least one")
    }

    #[test]
    fn ghosts_of_main_within_a_tenth_move_the_line_down() {
        for (evictions, moves) in [(99, true), (100, false)] {
            let tenant = Tenant::default();
            let before = tenant.probation_limit(1 << 20);
            let ghost = evict_times(&tenant, Queue::Main, 1);
            evict_times(&tenant, Queue::Main, evictions);
            tenant.ghost_hit(ghost, 1, true);
            assert_eq!(tenant.probation_limit(1 << 20) < before, moves, "{evictions}");
        }
    }

    #[test]
    fn a_distance_counts_what_left_both_queues_meanwhile() {
        let tenant = Tenant::default();
        let ghost = evict_times(&tenant, Queue::Probation, 1);
        evict_times(&tenant, Queue::Probation, 49);
        assert_eq!(tenant.ghost_hit(ghost, 1, true).evictions, 50);
        evict_times(&tenant, Queue::Main, 150);
        assert_eq!(tenant.ghost_hit(ghost, 1, true).evictions, 50 * 200 / 50);
        evict_times(&tenant, Queue::Probation, 56);
        // Of the last 256 evictions half are remembered: 53 of probation, and 75.
        assert_eq!(tenant.recent_evictions.each_ref().map(|n| n.load(Ordering::Relaxed)), [53, 75]);
        assert_eq!(tenant.ghost_hit(ghost, 1, true).evictions, 106 * 128 / 53);
    }

    #[test]
    fn ticks_are_as_fine_as_the_oldest_ghost_allows() {
        let shift = |tenant: &Tenant, entries, reach| {
            tenant.on_evict(HASH, Queue::Main, entries, reach);
            tenant.shift()
        };
        let tenant = Tenant::default();
        assert_eq!(shift(&tenant, 0, 0), 0);
        assert_eq!(shift(&tenant, 1 << 20, 0), 8, "8 times the records in 32,768 times");
        assert_eq!(shift(&tenant, 1 << 19, 0), 8, "not back at once");
        assert_eq!(shift(&tenant, (1 << 19) - 1, 0), 6);
        assert_eq!(shift(&tenant, 1 << 18, 1 << 20), 6, "twice the reach is as much");
        assert_eq!(shift(&tenant, 0, 1 << 21), 7);
        assert_eq!(shift(&tenant, 0, u64::MAX), SHIFT_MAX);
        let tenant = Tenant::default();
        let last = (0..513).filter_map(|_| tenant.on_evict(HASH, Queue::Main, 1 << 20, 0)).last();
        assert_eq!(last.map(|ghost| ghost.time), Some(2), "512 evictions before it, 256 to the tick");
    }

    #[test]
    fn recent_inserts_and_hits_are_halved_together() {
        let tenant = Tenant::default();
        let ghost = evict_times(&tenant, Queue::Main, 1);
        tenant.note_insert();
        tenant.ghost_hit(ghost, 100, true);
        let recent = || [&tenant.recent_inserts, &tenant.recent_ghost_hits].map(|n| n.load(Ordering::Relaxed));
        for _ in 1..256 {
            evict_times(&tenant, Queue::Main, 1);
            tenant.note_insert();
        }
        assert_eq!(recent(), [256, 100]);
        evict_times(&tenant, Queue::Main, 1);
        tenant.note_insert();
        assert_eq!(recent(), [128, 50]);
        tenant.note_insert();
        assert_eq!(recent(), [128, 50], "one for each eviction");
    }

    #[test]
    fn a_tenant_scans_when_fewer_than_one_insert_in_64_has_a_ghost() {
        let tenant = Tenant::default();
        for _ in 0..128 {
            evict_times(&tenant, Queue::Main, 1);
            tenant.note_insert();
        }
        for (hits, scans) in [(0, true), (1, true), (2, false)] {
            tenant.recent_ghost_hits.store(hits, Ordering::Relaxed);
            assert_eq!(tenant.is_scanning(), scans, "{hits} of 128");
        }
    }

    #[test]
    fn laps_are_told_apart_by_node() {
        let tenant = Tenant::default();
        let odd = || [0, 1, 63, 64, 65].map(|node| tenant.is_lap_odd(NodeId::new(node)));
        assert_eq!(odd(), [false; 5]);
        tenant.next_lap(NodeId::new(1));
        tenant.next_lap(NodeId::new(63));
        assert_eq!(odd(), [false, true, true, false, true]);
        tenant.next_lap(NodeId::new(65));
        assert_eq!(odd(), [false, false, true, false, false]);
    }

    #[test]
    fn an_eighth_of_the_distance_moves_the_mean_charge() {
        let tenant = Tenant::default();
        tenant.note_evicted(8, 800);
        tenant.note_evicted(8, 80_000);
        assert_eq!(tenant.mean_charge(), Some(100 - 12 + 1_250));
        tenant.note_evicted(3, 0);
        assert_eq!(tenant.mean_charge(), Some(1_338 - 167));
    }

    #[test]
    fn a_tenant_that_is_forgotten_is_as_new() {
        let tenant = Tenant::default();
        tenant.on_evict(HASH, Queue::Probation, 1 << 20, 1 << 30);
        let ghost = tenant.on_evict(HASH, Queue::Main, 1 << 20, 1 << 30).expect("nothing is known against it");
        tenant.note_insert();
        tenant.ghost_hit(ghost, 1, true);
        tenant.note_evicted(1, 100);
        tenant.next_lap(NodeId::ZERO);
        assert!(!tenant.is_filling());
        tenant.forget();
        let all = format!("{:?}", (&tenant.evictions, &tenant.recent_evictions, &tenant.recent_inserts));
        assert_eq!(all, "(0, [0, 0], 0)");
        let all = [&tenant.probation_fraction, &tenant.recent_ghost_hits, &tenant.matched_evictions, &tenant.entries];
        assert_eq!(all.map(|n| n.load(Ordering::Relaxed)), [0; 4]);
        assert_eq!((tenant.mean_charge(), tenant.scan_min.load(Ordering::Relaxed), tenant.shift()), (None, 0, 0));
        assert!(!tenant.is_lap_odd(NodeId::ZERO));
    }
}
