//! The statistics of one tenant of a cache: evictions, inserts and ghost hits. From them follow the
//! share of probation, the detection of scans, and the distance of a miss.
//!
//! Two methods adapt the share of probation: [`Tenant::learn`] after a ghost hit, and
//! [`Tenant::note_walk`] after an eviction walk. [`Tenant::ghost_hit`] decides which returning keys
//! enter main, by the lap time of main's hand ([`lap`](super::lap)).
//!
//! A tenant takes 104 bytes, in pages of 8 tenants with neighbouring ids. The page of a tenant is
//! allocated at its first eviction and stays until the cache is dropped. The directory of pages
//! (`tenants.rs`) costs a kilobyte, and at most four bytes for each id up to the highest in use.
//!
//! All fields are statistics that improve an estimate. All accesses are Relaxed: a lost update only
//! makes an estimate less exact, and no other memory is published through them.
//!
//! A change must ensure that a zeroed tenant is a valid new one, and that its size stays at 104
//! bytes: there is one for each group of each cache. docs/DESIGN.md (The cache: eviction order) has
//! the reasons for the margins and steps, and the values that were worse.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicU8, Ordering};

use lowwater_lru_core::NodeId;
use lowwater_shrinker::PairHint;

use super::evicted_deadlines::EvictedDeadlines;
use super::ghost_stamps::{is_sampled, ticks, GhostStamps, SCANNING_ONE_IN};
use super::lap::Lap;
use super::mean_uses::MeanUses;
use super::queue::Queue;
use super::queue_walk::QueueWalk;
use crate::cache::expiry::clock::Lifespan;
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
/// A tenant scans if fewer than 1 / `HITS_ONE_IN` of its recent inserts are ghost hits. With 64, a
/// tenant that scans with half of its requests and has a working set lost 1 % of the hits of that
/// set (`tests/mixed_scan.rs`).
const HITS_ONE_IN: u32 = 512;
/// One new key in some 8,000 finds the ghost of another (`runtime/ghosts.rs`). A ghost hit
/// is chance unless the recent ones are more than 1 / `CHANCE_ONE_IN` of the recent inserts and
/// the hits that this one represents.
const CHANCE_ONE_IN: u32 = 2_048;
/// The least number of recent inserts after which a tenant may count as scanning. The threshold is
/// half of the entries for which there is room, if that is more: a key that returns only after more
/// inserts would not stay in the cache anyway.
const INSERTS_MIN: u32 = 64;
/// The recent inserts and ghost hits are halved when the inserts reach this multiple of the scan
/// threshold; the recent evictions when they reach `RECENT_EVICTIONS_MAX`.
const RECENT_TIMES: u32 = 4;
const RECENT_EVICTIONS_MAX: u32 = 256;
/// The mean charge is that of about as many evicted entries as the tenant has, within these bounds.
/// A mean of fewer follows single large entries among small ones, and with it the length of the
/// ghosts' ticks (`fit_clock`) and the distances of misses. One of more lags behind the entries.
const MEAN_OF_MIN: u32 = 64;
const MEAN_OF_MAX: u32 = 8_192;
/// The ghosts' clock is coarse enough that ghosts are found until this multiple of the tenant's
/// records is evicted.
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

/// The number of records that eviction walks may keep in a row because of their uses.
const SPARED_MAX: u16 = 512;

/// The result of a ghost hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GhostHit {
    /// The key returned so soon that its record belongs in main.
    pub(crate) is_soon: bool,
    /// The tenant's evictions since the key's own: with this many entries more, the tenant would
    /// still have the key.
    pub(crate) evictions: u64,
    /// The ghost may be a false one: that of another key. It is not reported, as a few hits make a
    /// tenant look more useful than an idle one.
    pub(crate) is_chance: bool,
}

/// The statistics of one tenant. A zeroed tenant is a valid new one. See the module.
#[derive(Default)]
pub(crate) struct Tenant {
    /// Evictions so far, wrapping: the clock by which the age of a ghost is measured.
    evictions: AtomicU32,
    /// Probation's fraction minus [`FRACTION_FIRST`], so that a zeroed tenant starts there.
    probation_fraction: AtomicU32,
    /// Recent evictions, by queue; recent inserts; and the hits that their ghost hits represent.
    recent_evictions: [AtomicU32; 2],
    recent_inserts: AtomicU32,
    recent_ghost_hits: AtomicU32,
    /// The evictions so far that are matched with a counted insert.
    matched_evictions: AtomicU32,
    /// The tenant's number of entries at its last eviction.
    entries: AtomicU32,
    /// The number of recent inserts after which the tenant may count as scanning.
    scan_min: AtomicU32,
    /// The mean charge of recently evicted entries, in bytes; 0 before the first eviction. The bits
    /// of an `f32`: an integer would not move by small parts of a distance.
    mean_charge: AtomicU32,
    /// The laps of main's hand, from which the idle time of main's next victim follows.
    lap: Lap,
    /// The mean use count of the records that eviction walks visit, by queue.
    mean_uses: [MeanUses; 2],
    /// When evicted records would have expired.
    deadlines: EvictedDeadlines,
    /// The registry's slot for the pair of this cache and tenant.
    pub(crate) pair: PairHint,
    /// Evictions in one tick of the ghosts' clock, as a power of two.
    shift: AtomicU8,
    /// The number of groups of this id that have ended, wrapping: part of the salt of ghosts.
    generation: AtomicU8,
    /// The records that eviction walks have visited since one of them evicted any.
    spared: AtomicU16,
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

    /// Returns the number of ghost hits that one hit of a key of this mixed hash represents; `None`
    /// if the tenant scans and the hash is not in the sample, so that its keys have no ghosts.
    #[inline]
    pub(crate) fn ghost_weight(&self, hash: u64) -> Option<u32> {
        match self.is_scanning() {
            false => Some(1),
            true => is_sampled(hash).then_some(SCANNING_ONE_IN),
        }
    }

    /// Counts `nr` evictions from `queue`, of a tenant with `entries` records. `reach` is the age
    /// limit of ghosts in evictions: the entries for which there is room. Returns the stamps of the
    /// ghosts.
    pub(crate) fn on_evictions(&self, nr: u32, queue: Queue, entries: u64, reach: u64) -> GhostStamps {
        let first = add(&self.evictions, nr);
        add(&self.recent_evictions[queue as usize], nr);
        if self.recent() >= RECENT_EVICTIONS_MAX {
            self.recent_evictions.iter().for_each(halve);
        }
        let scan_min = u32::try_from(reach / 2).unwrap_or(u32::MAX).clamp(INSERTS_MIN, u32::MAX / 2 / RECENT_TIMES);
        self.scan_min.store(scan_min, Ordering::Relaxed);
        self.entries.store(u32::try_from(entries).unwrap_or(u32::MAX), Ordering::Relaxed);
        self.fit_clock(entries, reach);
        let is_main = queue == Queue::Main;
        GhostStamps { first, shift: self.shift(), is_main, is_scanning: self.is_scanning() }
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
        let evictions = self.age(ghost, clock);
        let entries = u64::from(self.entries.load(Ordering::Relaxed));
        if clock == 0 {
            // A tenant without evictions has no ghosts. (Or its clock wraps: one hit is lost.)
            return GhostHit { is_soon: false, evictions, is_chance: true };
        }
        let recent = self.recent_ghost_hits.load(Ordering::Relaxed).saturating_add(weight);
        self.recent_ghost_hits.store(recent, Ordering::Relaxed);
        if learns && evictions <= entries.max(SIZE_MIN) / NEAR_PARTS {
            self.learn(queue, entries.max(SIZE_MIN));
        }
        let is_soon = match learns {
            true => {
                // The time since the key's last insert: its stay on probation and its absence.
                let away = evictions + self.probation_limit(entries);
                let is_short = entries <= FEW_RECORDS && self.fraction() < FRACTION_SHORT;
                let margin = if is_short { MARGIN_HALVES_OF_FEW } else { MARGIN_HALVES };
                away * margin < 2 * self.lap.idle(clock)
            }
            false => evictions < entries,
        };
        let chance = self.recent_inserts.load(Ordering::Relaxed) / CHANCE_ONE_IN + weight;
        GhostHit { is_soon: queue == Queue::Probation && is_soon, evictions, is_chance: recent <= chance }
    }

    /// Returns the evictions since that of a ghost, up to the count `clock`.
    fn age(&self, ghost: Ghost, clock: u32) -> u64 {
        u64::from(ticks(clock, self.shift()).wrapping_sub(ghost.time)) << self.shift()
    }

    /// Notes the longest lifespan that is left of `nr` records, which were evicted just now, after
    /// [`on_evictions`](Self::on_evictions).
    pub(crate) fn note_rest(&self, nr: u32, rest: Lifespan) {
        let reach = 2 * self.scan_min.load(Ordering::Relaxed);
        self.deadlines.note(nr, self.evictions.load(Ordering::Relaxed), reach, rest);
    }

    /// Returns whether the record of a ghost would have expired by now, so that more memory would
    /// have brought no hit; `new` is the lifespan of the key's new record. Such a ghost is not to
    /// be counted by [`ghost_hit`](Self::ghost_hit).
    pub(crate) fn is_ended(&self, ghost: Ghost, new: Lifespan) -> bool {
        let clock = self.evictions.load(Ordering::Relaxed);
        clock != 0 && self.deadlines.has_passed(self.age(ghost, clock), clock, new)
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

    /// Returns whether the last [`SPARED_MAX`] records that walks visited were all kept because of
    /// their uses. The next walk evicts regardless of uses: an insert that waits for memory must
    /// not go through the whole cache because all of it is used.
    pub(crate) fn has_spared_many(&self) -> bool {
        self.spared.load(Ordering::Relaxed) >= SPARED_MAX
    }

    /// Notes that a walk visited records, and whether it evicted any of them.
    pub(crate) fn note_spared(&self, visited: u64, has_evicted: bool) {
        let spared = if has_evicted {
            0
        } else {
            self.spared.load(Ordering::Relaxed).saturating_add(visited.min(SPARED_MAX.into()) as u16)
        };
        // Relaxed: a hint; a lost update only makes the next walk visit more or fewer records.
        self.spared.store(spared.min(SPARED_MAX), Ordering::Relaxed);
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
        // A short idle time, as in the first lap, would make main's uses look too frequent.
        let idle = self.lap.idle(clock).max(entries.max(SIZE_MIN) / NEAR_PARTS);
        let uses_per_eviction = |queue: Queue, evictions: u64| {
            self.mean_uses[queue as usize].get() * u64::from(ONE) / MeanUses::ONE / evictions.max(1)
        };
        let earned = uses_per_eviction(Queue::Probation, stay);
        let lost = uses_per_eviction(Queue::Main, idle).saturating_sub(earned);
        if lost > 0 {
            // A twentieth of the difference for each eviction.
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
        if add(&self.recent_inserts, 1) >= scan_min * RECENT_TIMES {
            [&self.recent_inserts, &self.recent_ghost_hits].into_iter().for_each(halve);
        }
    }

    /// Adds an eviction batch of `entries` entries with a total charge of `bytes` to the mean
    /// charge.
    pub(crate) fn note_evicted(&self, entries: u64, bytes: u64) {
        if entries == 0 {
            return;
        }
        let seen = bytes as f32 / entries as f32;
        let mean = f32::from_bits(self.mean_charge.load(Ordering::Relaxed));
        // While the tenant has evicted fewer, all of them count. (Expired entries do, too, and are
        // no evictions of its clock.)
        let of = self.evictions.load(Ordering::Relaxed).min(self.entries.load(Ordering::Relaxed));
        let of = of.clamp(MEAN_OF_MIN, MEAN_OF_MAX) as f32;
        let part = if mean == 0.0 { 1.0 } else { (entries as f32 / of).min(1.0) };
        self.mean_charge.store((mean + (seen - mean) * part).max(1.0).to_bits(), Ordering::Relaxed);
    }

    /// Returns the mean charge of recently evicted entries, in bytes; `None` before the first.
    pub(crate) fn mean_charge(&self) -> Option<u64> {
        Some(u64::from(f32::from_bits(self.mean_charge.load(Ordering::Relaxed)) as u32)).filter(|mean| *mean > 0)
    }

    /// Returns whether the tenant scans: it had enough recent inserts, and fewer than
    /// 1 / [`HITS_ONE_IN`] of them were of recently evicted keys, so that more memory would bring
    /// the tenant almost no hits.
    ///
    /// Only the tenant's own inserts count, at most one per eviction. Evictions alone are no sign
    /// of a scan, because the inserts of other tenants may cause them.
    #[inline]
    pub(crate) fn is_scanning(&self) -> bool {
        let inserts = self.recent_inserts.load(Ordering::Relaxed);
        let hits = self.recent_ghost_hits.load(Ordering::Relaxed).saturating_mul(HITS_ONE_IN);
        inserts >= self.scan_min.load(Ordering::Relaxed).max(INSERTS_MIN) && hits < inserts
    }

    /// Returns whether the tenant has had no eviction yet, so that its memory is still filling.
    #[inline]
    pub(crate) fn is_filling(&self) -> bool {
        self.evictions.load(Ordering::Relaxed) == 0
    }

    /// Returns whether SIEVE's hand is in an odd lap on a node. Nodes whose numbers are equal
    /// modulo 64 share a bit, so that a new lap on one of them also switches the lists of the
    /// other.
    pub(crate) fn is_lap_odd(&self, node: NodeId) -> bool {
        self.lap_bits.load(Ordering::Relaxed) >> (node.index() % 64) & 1 == 1
    }

    /// Starts the next lap of SIEVE's hand on a node, unless another thread has started it already:
    /// `is_odd` is whether the lap that ends is odd.
    pub(crate) fn next_lap(&self, node: NodeId, is_odd: bool) {
        let bit = 1 << (node.index() % 64);
        let next = |bits| ((bits & bit != 0) == is_odd).then_some(bits ^ bit);
        // Relaxed, both: a word by itself. No update: another thread was faster.
        let _updated = self.lap_bits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Sets the length of a tick so that the oldest ghost that counts is found, and is not dated
    /// much coarser than that.
    ///
    /// After a change the existing ghosts are not found. Changes are rare: the length grows when
    /// the tenant has become twice as large, and shrinks only when it is too long by a factor of
    /// four.
    fn fit_clock(&self, entries: u64, reach: u64) {
        let span = (entries.max(SIZE_MIN) * GHOST_TIMES * 2).max(reach.saturating_mul(2));
        let wanted = span.ilog2().saturating_sub(GHOST_TIMES_MAX.ilog2()).min(SHIFT_MAX);
        let shift = self.shift();
        if wanted > shift || wanted + 1 < shift {
            self.shift.store(wanted as u8, Ordering::Relaxed);
        }
    }

    /// Returns the length of one tick of the ghosts' clock, in evictions, as a power of two.
    pub(crate) fn shift(&self) -> u32 {
        u32::from(self.shift.load(Ordering::Relaxed))
    }

    /// Returns the present time of the ghosts' clock, in ticks.
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        ticks(self.evictions.load(Ordering::Relaxed), self.shift())
    }

    /// Returns the number of groups of this id that have ended, wrapping. The groups of an id thus
    /// have different ghosts.
    #[inline]
    pub(crate) fn generation(&self) -> u8 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Resets the tenant of a group that ends, for the next group of this id, which is of the next
    /// generation. `pair` may stay, as a hint that is checked at each use.
    pub(crate) fn forget(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        let all = [&self.probation_fraction, &self.recent_ghost_hits, &self.entries, &self.scan_min];
        let all = all.into_iter().chain([&self.recent_inserts, &self.mean_charge, &self.matched_evictions]);
        let all = all.chain([&self.evictions]).chain(&self.recent_evictions);
        all.for_each(|tally| tally.store(0, Ordering::Relaxed));
        self.lap.reset();
        self.deadlines.reset();
        self.mean_uses.iter().for_each(MeanUses::reset);
        self.shift.store(0, Ordering::Relaxed);
        self.spared.store(0, Ordering::Relaxed);
        self.lap_bits.store(0, Ordering::Relaxed);
    }
}

/// Adds to a tally, wrapping, and returns its value before.
#[inline]
fn add(tally: &AtomicU32, more: u32) -> u32 {
    let before = tally.load(Ordering::Relaxed);
    tally.store(before.wrapping_add(more), Ordering::Relaxed);
    before
}

#[inline]
fn halve(tally: &AtomicU32) {
    tally.store(tally.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
