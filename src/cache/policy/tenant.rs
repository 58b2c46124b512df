//! One tenant of a cache: eviction and ghost-hit tallies, from which the share of probation, scans, and the distance of a miss are
//! derived.
//!
//! 64 bytes for a tenant, in pages of 8 tenants with neighbouring ids. There is nothing until something was let go; then a page stays until
//! the cache is dropped. The directory of pages is itself made in parts, each twice as long as the one before, of 16 bytes a page: so what the
//! first word of a tenant costs hardly depends on its id. All of it are tallies that make a guess better: everything is Relaxed, a lost step is no harm, and nothing is read
//! through them.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering};

use lowwater_lru_core::NodeId;
use lowwater_shrinker::PairHint;

use super::queue::Queue;
use crate::runtime::{Ghost, GHOST_TIMES_MAX};

/// 1, in fixed point.
const ONE: u32 = 1 << 20;
/// Probation's fraction of a tenant's records: at first, at least, at most.
const FRACTION_FIRST: u32 = ONE / 10;
const FRACTION_MIN: u32 = ONE / 100;
const FRACTION_MAX: u32 = ONE / 10 * 9;
/// A tenant with fewer entries is judged as if it had so many: a handful says nothing.
const SIZE_MIN: u64 = 64;
/// One recent insert in so many must be a ghost hit, or the tenant scans.
const HITS_ONE_IN: u32 = 64;
/// Recent inserts from which on a tenant may be taken for scanning: so many, or as many as would replace half of the budget, if that
/// is more. What comes back later than that would not be kept anyway.
const INSERTS_MIN: u32 = 64;
/// The tallies of recent inserts and ghost hits are halved at so many times as many; those of evictions at so many.
const RECENT_TIMES: u32 = 4;
const RECENT_EVICTIONS_MAX: u32 = 256;
/// An eviction batch moves the mean charge by one in so many of the distance.
const MEAN_OF: u32 = 8;
/// Of a tenant that scans, the keys of one hash in so many leave ghosts, and are looked for, in case the tenant stops scanning.
const SCANNING_ONE_IN: u32 = 64;
/// A ghost of probation counts until so many times the tenant's records have been evicted.
const GHOST_TIMES: u64 = 3;
/// The clock's steps that one tick of a ghost's time is made of, at most: 2 to the power of this.
const SHIFT_MAX: u32 = 24;

/// A ghost that was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GhostHit {
    /// A tenant a little larger would have kept the record.
    pub(crate) is_near: bool,
    /// The evictions from the tenant since this one: with so many entries more the record would be there.
    pub(crate) evictions: u64,
}

/// What a cache has learnt about one tenant. See the module.
#[derive(Default)]
pub(crate) struct Tenant {
    /// Evictions so far, by queue: the clock that tells a ghost's age.
    evictions: [AtomicU32; 2],
    /// Probation's fraction, less [`FRACTION_FIRST`], so that a zeroed tenant begins there.
    probation_fraction: AtomicU32,
    /// Recent evictions, by queue; recent inserts, and those of them that were ghost hits.
    recent_evictions: [AtomicU32; 2],
    recent_inserts: AtomicU32,
    recent_ghost_hits: AtomicU32,
    /// Of the evictions so far, those that an insert was counted for.
    matched_evictions: AtomicU32,
    /// Entries that it had when it last let one go.
    entries: AtomicU32,
    /// Recent inserts from which on the tenant may be taken for scanning.
    scan_min: AtomicU32,
    /// The mean charge of the entries that were evicted lately, in bytes; 0 before the first.
    mean_charge: AtomicU32,
    /// Where the registry has the tallies of this tenant's pair.
    pub(crate) pair: PairHint,
    /// Steps of the clock in one tick, as a power of two.
    shift: AtomicU8,
    /// With SIEVE, a bit for each node: the hand's laps there are odd, so main is ahead of the hand, and not probation.
    lap_bits: AtomicU64,
}

impl Tenant {
    /// The number of records that may be on probation, of a tenant with `entries` records.
    pub(crate) fn probation_limit(&self, entries: u64) -> u64 {
        let fraction = self.probation_fraction.load(Ordering::Relaxed).wrapping_add(FRACTION_FIRST);
        entries * u64::from(fraction) / u64::from(ONE)
    }

    /// How many ghost hits one of a key of this hash stands for; none: keys of this hash leave no ghosts, as the tenant scans.
    pub(crate) fn ghost_weight(&self, hash: u64) -> Option<u32> {
        if !self.is_scanning() {
            return Some(1);
        }
        // Bits that choose neither the bucket nor the tag.
        (hash >> 36 & u64::from(SCANNING_ONE_IN - 1) == 0).then_some(SCANNING_ONE_IN)
    }

    /// Counts an eviction from `queue` of a key of this hash, of a tenant that has `entries` records, whose ghosts count for as long
    /// as `reach` more are evicted. Returns the ghost to insert, if there is one.
    pub(crate) fn on_evict(&self, hash: u64, queue: Queue, entries: u64, reach: u64) -> Option<Ghost> {
        let clock = bump(&self.evictions[queue as usize]);
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

    /// Recent evictions.
    fn recent(&self) -> u32 {
        self.recent_evictions.iter().map(|queue| queue.load(Ordering::Relaxed)).sum()
    }

    /// Counts an insert whose key has a ghost, which stands for `weight` of them. If the ghost is near and the tenant `learns`, adapts the probation fraction.
    ///
    /// The record is worth keeping if the ghost is young enough for the size of the tenant: probation's ghosts count until three
    /// times as many were let go as the tenant has: one that comes back by then would be kept by a cache four times as large, and
    /// was used twice in that time. Where the line is fixed, half as many again: S3-FIFO has no use for more. Main's count for a
    /// tenth, or where that is a handful, for a little more: of a hundred entries few are read in the time that it takes to go
    /// round once. Where the line between the two queues should be is told only by those near it: what came back within a tenth
    /// of the tenant's size.
    pub(crate) fn ghost_hit(&self, ghost: Ghost, weight: u32, learns: bool) -> GhostHit {
        let queue = if ghost.is_main { Queue::Main } else { Queue::Probation };
        let clock = self.evictions[queue as usize].load(Ordering::Relaxed);
        let age = u64::from(self.ticks(clock).wrapping_sub(ghost.time) % GHOST_TIMES_MAX) << self.shift();
        let entries = u64::from(self.entries.load(Ordering::Relaxed)).max(SIZE_MIN);
        let near = entries / 10;
        let limit = match queue {
            Queue::Probation if learns => entries * GHOST_TIMES,
            Queue::Probation => entries + entries / 2,
            Queue::Main => near.max(SIZE_MIN),
        };
        self.recent_ghost_hits
            .store(self.recent_ghost_hits.load(Ordering::Relaxed).saturating_add(weight), Ordering::Relaxed);
        if learns && age <= near {
            self.learn(queue, entries);
        }
        // The age is in evictions from one queue; for each of them so many left both.
        let of_queue = u64::from(self.recent_evictions[queue as usize].load(Ordering::Relaxed)).max(1);
        let evictions = age.saturating_mul(u64::from(self.recent()).max(of_queue)) / of_queue;
        GhostHit { is_near: age <= limit, evictions }
    }

    /// Moves the probation fraction so that `queue` may be longer by one record.
    fn learn(&self, queue: Queue, entries: u64) {
        let step = (u64::from(ONE) / entries) as u32;
        let fraction = self.probation_fraction.load(Ordering::Relaxed).wrapping_add(FRACTION_FIRST);
        let fraction = match queue {
            Queue::Probation => fraction.saturating_add(step).min(FRACTION_MAX),
            Queue::Main => fraction.saturating_sub(step).max(FRACTION_MIN),
        };
        self.probation_fraction.store(fraction.wrapping_sub(FRACTION_FIRST), Ordering::Relaxed);
    }

    /// Counts an insert, if an eviction from the tenant came before it for which none was counted: a tenant that loses nothing has
    /// no ghosts, so that its misses meet none tells nothing.
    #[inline]
    pub(crate) fn note_insert(&self) {
        let evictions =
            self.evictions.iter().fold(0, |sum: u32, queue| sum.wrapping_add(queue.load(Ordering::Relaxed)));
        let unmatched = evictions.wrapping_sub(self.matched_evictions.load(Ordering::Relaxed));
        // Negative: a step was lost.
        if unmatched as i32 <= 0 {
            return;
        }
        let scan_min = self.scan_min.load(Ordering::Relaxed).max(INSERTS_MIN);
        // Those of long ago have left no ghosts either.
        let left = unmatched.min(2 * scan_min) - 1;
        self.matched_evictions.store(evictions.wrapping_sub(left), Ordering::Relaxed);
        if bump(&self.recent_inserts) >= scan_min * RECENT_TIMES {
            [&self.recent_inserts, &self.recent_ghost_hits].into_iter().for_each(halve);
        }
    }

    /// Counts evicted entries and what they were charged.
    pub(crate) fn note_evicted(&self, entries: u64, bytes: u64) {
        let Some(seen) = bytes.checked_div(entries) else { return };
        let seen = u32::try_from(seen).unwrap_or(u32::MAX).max(1);
        let mean = match self.mean_charge.load(Ordering::Relaxed) {
            0 => seen,
            mean => mean - mean / MEAN_OF + seen / MEAN_OF,
        };
        self.mean_charge.store(mean.max(1), Ordering::Relaxed);
    }

    /// The mean charge of the entries that were evicted lately, in bytes; none before the first.
    pub(crate) fn mean_charge(&self) -> Option<u64> {
        Some(u64::from(self.mean_charge.load(Ordering::Relaxed))).filter(|mean| *mean > 0)
    }

    /// Tells whether the tenant scans: next to none of what it inserts was there before, so more memory would earn it nothing. Its own
    /// inserts count, one for each eviction at most; an eviction alone does not: others may be the reason for it.
    pub(crate) fn is_scanning(&self) -> bool {
        let inserts = self.recent_inserts.load(Ordering::Relaxed);
        let hits = self.recent_ghost_hits.load(Ordering::Relaxed).saturating_mul(HITS_ONE_IN);
        inserts >= self.scan_min.load(Ordering::Relaxed).max(INSERTS_MIN) && hits < inserts
    }

    /// Tells whether nothing was evicted yet: the tenant's memory is still being filled.
    pub(crate) fn is_filling(&self) -> bool {
        self.evictions.iter().all(|queue| queue.load(Ordering::Relaxed) == 0)
    }

    /// Tells whether SIEVE's hand is in an odd lap. Nodes beyond 64 share bits, which costs a lap.
    pub(crate) fn is_lap_odd(&self, node: NodeId) -> bool {
        self.lap_bits.load(Ordering::Relaxed) >> (node.index() % 64) & 1 == 1
    }

    /// Begins the next lap of SIEVE's hand.
    pub(crate) fn next_lap(&self, node: NodeId) {
        self.lap_bits.fetch_xor(1 << (node.index() % 64), Ordering::Relaxed);
    }

    /// Makes ticks coarse enough that the oldest ghost that counts is told from one a lap later, and not much coarser. When that
    /// changes, ghosts get another age than they have; it does when a tenant has become twice as large.
    fn fit_clock(&self, entries: u64, reach: u64) {
        let span = (entries.max(SIZE_MIN) * (GHOST_TIMES + 1) * 2).max(reach.saturating_mul(2));
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
        let by_queue = self.evictions.iter().chain(&self.recent_evictions);
        all.chain(by_queue).for_each(|tally| tally.store(0, Ordering::Relaxed));
        self.shift.store(0, Ordering::Relaxed);
        self.lap_bits.store(0, Ordering::Relaxed);
    }
}

/// One more. What it was before.
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

    /// Of which a scan leaves ghosts.
    const HASH: u64 = 0;

    #[test]
    fn a_share_follows_what_comes_back_soon_and_stays_in_its_bounds() {
        let tenant = Tenant::default();
        assert_eq!(tenant.probation_limit(1_000), 99);
        for _ in 0..10_000 {
            let ghost = tenant.on_evict(HASH, Queue::Probation, 1_000, 0);
            if let Some(ghost) = ghost {
                assert!(tenant.ghost_hit(ghost, 1, true).is_near);
            }
        }
        assert_eq!(tenant.probation_limit(1_000), 899);
        for _ in 0..10_000 {
            if let Some(ghost) = tenant.on_evict(HASH, Queue::Main, 1_000, 0) {
                assert!(tenant.ghost_hit(ghost, 1, true).is_near);
            }
        }
        assert_eq!(tenant.probation_limit(1_000), 9);
    }

    #[test]
    fn a_ghost_counts_for_as_long_as_its_queue_says() {
        let cases = [
            (Queue::Probation, 1_000, 3_000),
            (Queue::Main, 1_000, 100),
            (Queue::Probation, 100, 300),
            (Queue::Main, 100, 64),
            (Queue::Probation, 3, 192),
            (Queue::Main, 3, 64),
        ];
        for (queue, entries, counts) in cases {
            let tenant = Tenant::default();
            let ghost = tenant.on_evict(HASH, queue, entries, 0).expect("nothing is known against it");
            for _ in 0..counts - 1 {
                tenant.on_evict(HASH, queue, entries, 0);
            }
            assert!(tenant.ghost_hit(ghost, 1, true).is_near);
            tenant.on_evict(HASH, queue, entries, 0);
            assert!(!tenant.ghost_hit(ghost, 1, true).is_near, "{queue:?} of {entries}");
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
        // Evictions of long ago do not count: as many as the budget has entries, at most.
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
        tenant.on_evict(HASH, Queue::Probation, many, 0);
        let ghost = tenant.on_evict(HASH, Queue::Probation, many, 0).expect("nothing is known against it");
        for _ in 0..5 * many / 2 {
            tenant.on_evict(HASH, Queue::Probation, many, 0);
        }
        assert!(tenant.ghost_hit(ghost, 1, true).is_near, "two and a half millions of a million let go since");
        for _ in 0..many {
            tenant.on_evict(HASH, Queue::Probation, many, 0);
        }
        assert!(!tenant.ghost_hit(ghost, 1, true).is_near, "three and a half");
    }
}
