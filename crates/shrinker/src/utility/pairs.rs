//! The pairs of shrinkers and groups with objects, each with its score, in one dense table.
//!
//! A selection considers all pairs up to [`ALL_MAX`]. If there are more, it considers the last
//! victim, the pair that needs the memory, and a few others in turn: O(1) for any number of pairs.
//! A pair takes 16 bytes here, and about 8 in the index. Tallies are allocated when memory first
//! becomes short, for a part of the table at once.
//!
//! The slots in use are the first ones: when a pair is removed, the last pair moves into its slot,
//! so a selection never visits unused slots. All changes of slots are made under the index's lock.
//! Readers take no lock: a slot that they keep is a hint, and [`Pairs::holds`] checks whether it
//! still belongs to the pair. A thread that is late writes one step of a pair's tallies, or its
//! standing, to the pair that has the slot now, or to none. The standing is corrected when the pair
//! is next counted, which is in the next epoch; the step decays like any other.

use alloc::boxed::Box;

use hashbrown::HashTable;
use once_cell::race::OnceBox;

use lowwater_base::fallible::{try_box, try_slice};
use lowwater_base::hash::GOLDEN_RATIO;
use lowwater_base::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use lowwater_base::sync::Mutex;
use lowwater_lru_core::MemcgId;

use super::clock::EvictionClock;
use super::log2::log2;
use super::miss::Miss;
use super::score::{Score, Standing};
use super::tallies::Tallies;
use crate::hash::hash_of;

/// The number of pairs in the first part of the table; each part has twice as many as the previous
/// one.
const PART_FIRST: usize = 64;
/// Enough parts for every slot.
const PARTS: usize = 26;
/// Up to this number of pairs, all are candidates.
const ALL_MAX: u32 = 16;
/// The number of candidates in turn among more pairs, besides the last victim and the pair that
/// needs the memory.
const IN_TURN: u32 = 8;
/// That number if there is time, or if only pairs below a group count.
const IN_TURN_MANY: u32 = 64;
/// The maximum number of candidates of one selection.
pub(crate) const CANDIDATES_MAX: usize = 2 + IN_TURN_MANY as usize;
/// A slot number that no pair has.
const NONE: u32 = u32::MAX;
/// The key of an unused slot.
const VACANT: u64 = u64::MAX;
/// A measured pair moves the mean of hits per turnover by 1/`MEAN_OF` of the difference; the mean
/// is stored in 1/`MEAN_OF` of a 256th.
const MEAN_OF: i32 = 64;
/// The mean before the first measured pair.
const NO_MEAN: i32 = i32::MIN;

/// The table of pairs; see the module.
pub(crate) struct Pairs {
    parts: [OnceBox<Part>; PARTS],
    /// The slot of each pair.
    index: Mutex<HashTable<u32>>,
    /// The number of pairs, which have the slots below it. Changed under the index's lock.
    end: AtomicU32,
    /// The slot of the last victim, and the next slot to consider in turn.
    last: AtomicU32,
    cursor: AtomicU32,
    /// The number of calls of [`random`](Self::random).
    steps: AtomicU64,
    pub(crate) clock: EvictionClock,
    /// The logarithm of the utility that a turnover of 1 has, as a mean over the pairs that report
    /// ghost hits.
    hits_per_turnover: AtomicI32,
}

struct Part {
    pairs: Box<[Pair]>,
    tallies: OnceBox<Box<[Tallies]>>,
}

/// One pair.
pub(crate) struct Pair {
    /// The ids of the shrinker and the group; or [`VACANT`].
    who: AtomicU64,
    /// A [`Standing`].
    standing: AtomicU64,
}

/// The candidates of a selection, by slot.
pub(crate) struct Candidates {
    slots: [u32; CANDIDATES_MAX],
    len: usize,
    /// True if all pairs are candidates.
    is_all: bool,
}

impl Candidates {
    pub(crate) fn new() -> Self {
        Self { slots: [NONE; CANDIDATES_MAX], len: 0, is_all: false }
    }

    fn push(&mut self, slot: u32) {
        if let Some(place) = self.slots.get_mut(self.len) {
            *place = slot;
            self.len += 1;
        }
    }

    /// True if all pairs are candidates.
    pub(crate) fn is_all(&self) -> bool {
        self.is_all
    }

    /// Removes these slots from the candidates.
    pub(crate) fn remove(&mut self, failed: &[u32]) {
        if failed.is_empty() {
            return;
        }
        let mut kept = 0;
        for at in 0..self.len {
            if !failed.contains(&self.slots[at]) {
                self.slots[kept] = self.slots[at];
                kept += 1;
            }
        }
        self.len = kept;
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.slots[..self.len]
    }
}

/// A shrinker and a group as one number.
fn key(shrinker: u32, memcg: MemcgId) -> u64 {
    u64::from(shrinker) << 32 | u64::from(memcg.get())
}

/// The position of a slot: its part, and the index in the part.
fn place(slot: u32) -> (usize, usize) {
    let at = slot as usize + PART_FIRST;
    let part = (at.ilog2() - PART_FIRST.ilog2()) as usize;
    (part, at - (PART_FIRST << part))
}

impl Pair {
    fn vacant() -> Self {
        Self { who: AtomicU64::new(VACANT), standing: AtomicU64::new(Standing::Unknown.pack()) }
    }

    /// The ids of the shrinker and the group, if the slot is in use.
    pub(crate) fn who(&self) -> Option<(u32, MemcgId)> {
        match self.who.load(Ordering::Relaxed) {
            VACANT => None,
            who => Some(((who >> 32) as u32, MemcgId::new(who as u32))),
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        Standing::unpack(self.standing.load(Ordering::Relaxed))
    }

    pub(crate) fn set_standing(&self, standing: Standing) {
        self.standing.store(standing.pack(), Ordering::Relaxed);
    }
}

impl Pairs {
    pub(crate) fn new() -> Self {
        Self {
            parts: [const { OnceBox::new() }; PARTS],
            index: Mutex::new(HashTable::new()),
            end: AtomicU32::new(0),
            last: AtomicU32::new(NONE),
            cursor: AtomicU32::new(0),
            steps: AtomicU64::new(0),
            clock: EvictionClock::default(),
            hits_per_turnover: AtomicI32::new(NO_MEAN),
        }
    }

    /// Adds a pair with objects, unless it exists. Returns false without memory: the pair is then
    /// missing, and only a pass finds its objects.
    #[must_use]
    pub(crate) fn add(&self, shrinker: u32, memcg: MemcgId) -> bool {
        let (who, mut slots) = (key(shrinker, memcg), self.index.lock());
        if slots.find(hash_of(who), |slot| self.is(*slot, who)).is_some() {
            return true;
        }
        let hash = |slot: &u32| self.pair(*slot).map_or(0, |pair| hash_of(pair.who.load(Ordering::Relaxed)));
        if slots.try_reserve(1, hash).is_err() {
            return false;
        }
        let slot = slots.len() as u32;
        let Some(pair) = self.make(slot) else { return false };
        self.reset(slot);
        pair.who.store(who, Ordering::Relaxed);
        slots.insert_unique(hash_of(who), slot, hash);
        self.end.store(slot + 1, Ordering::Relaxed);
        true
    }

    /// Removes a pair that has no objects any more, or whose shrinker or group has ended. The last
    /// pair moves into its slot.
    pub(crate) fn remove(&self, shrinker: u32, memcg: MemcgId) {
        let (who, mut slots) = (key(shrinker, memcg), self.index.lock());
        let Ok(entry) = slots.find_entry(hash_of(who), |slot| self.is(*slot, who)) else { return };
        let (slot, _) = entry.remove();
        let last = slots.len() as u32;
        let Some(moved) = self.pair(last) else { return };
        if slot != last {
            let hash = hash_of(moved.who.load(Ordering::Relaxed));
            slots.find_mut(hash, |slot| *slot == last).into_iter().for_each(|place| *place = slot);
            self.copy(last, slot);
        }
        moved.who.store(VACANT, Ordering::Relaxed);
        self.end.store(last, Ordering::Relaxed);
        if slots.is_empty() {
            *slots = HashTable::new();
        }
    }

    /// Copies a pair with its tallies to a free slot.
    fn copy(&self, from: u32, to: u32) {
        let (Some(source), Some(target)) = (self.pair(from), self.pair(to)) else { return };
        match self.tallies(from).and_then(|tallies| Some((tallies, self.make_tallies(to)?))) {
            Some((tallies, copy)) => {
                copy.copy_from(tallies);
                target.set_standing(source.standing());
            }
            // There are no tallies, or no memory for them: the pair is counted again.
            None => self.reset(to),
        }
        target.who.store(source.who.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Resets the state of a slot, before another pair uses it.
    fn reset(&self, slot: u32) {
        if let Some(tallies) = self.tallies(slot) {
            tallies.reset(self.clock.epoch());
        }
        if let Some(pair) = self.pair(slot) {
            pair.set_standing(Standing::Unknown);
        }
    }

    /// Removes all pairs, and frees the index: none is added from here on. The table stays, because
    /// readers take no lock.
    pub(crate) fn shut(&self) {
        let mut slots = self.index.lock();
        self.end.store(0, Ordering::Relaxed);
        *slots = HashTable::new();
    }

    /// Finds the slot of a pair. Locks the index.
    pub(crate) fn find(&self, shrinker: u32, memcg: MemcgId) -> Option<u32> {
        let who = key(shrinker, memcg);
        self.index.lock().find(hash_of(who), |slot| self.is(*slot, who)).copied()
    }

    /// True if the slot belongs to this pair.
    pub(crate) fn holds(&self, slot: u32, shrinker: u32, memcg: MemcgId) -> bool {
        self.is(slot, key(shrinker, memcg))
    }

    fn is(&self, slot: u32, who: u64) -> bool {
        self.pair(slot).is_some_and(|pair| pair.who.load(Ordering::Relaxed) == who)
    }

    pub(crate) fn pair(&self, slot: u32) -> Option<&Pair> {
        let (part, at) = place(slot);
        self.parts.get(part)?.get()?.pairs.get(at)
    }

    /// The pair of a slot; allocates its part of the table if necessary. `None` without memory.
    fn make(&self, slot: u32) -> Option<&Pair> {
        let (part, at) = place(slot);
        let pairs = || try_slice(PART_FIRST << part, |_| Pair::vacant()).ok_or(());
        let made = || try_box(Part { pairs: pairs()?, tallies: OnceBox::new() }).ok_or(());
        self.parts.get(part)?.get_or_try_init(made).ok()?.pairs.get(at)
    }

    /// The tallies of a slot, if they are allocated.
    pub(crate) fn tallies(&self, slot: u32) -> Option<&Tallies> {
        let (part, at) = place(slot);
        self.parts.get(part)?.get()?.tallies.get()?.get(at)
    }

    /// The tallies of a slot in use, allocated if necessary. `None` without memory.
    pub(crate) fn make_tallies(&self, slot: u32) -> Option<&Tallies> {
        let (part, at) = place(slot);
        let made = || try_box(try_slice(PART_FIRST << part, |_| Tallies::default()).ok_or(())?).ok_or(());
        self.parts.get(part)?.get()?.tallies.get_or_try_init(made).ok()?.get(at)
    }

    /// Replaces the candidates by those of one selection; `needy` is the slot of the pair that
    /// needs the memory. With `many` there are more candidates, because there is time, or because
    /// only pairs below some group will count.
    pub(crate) fn select(&self, candidates: &mut Candidates, needy: Option<u32>, many: bool) {
        let end = self.end.load(Ordering::Relaxed);
        (candidates.len, candidates.is_all) = (0, end <= ALL_MAX);
        if candidates.is_all {
            return (0..end).for_each(|slot| candidates.push(slot));
        }
        let last = Some(self.last.load(Ordering::Relaxed)).filter(|last| *last < end);
        last.into_iter().chain(needy.filter(|slot| Some(*slot) != last)).for_each(|slot| candidates.push(slot));
        let in_turn = if many { IN_TURN_MANY } else { IN_TURN }.min(end);
        let from = self.cursor.load(Ordering::Relaxed) % end;
        let slots = (from..from + in_turn).map(|slot| slot % end);
        let is_new = |slot: &u32| Some(*slot) != last && Some(*slot) != needy;
        slots.filter(is_new).for_each(|slot| candidates.push(slot));
        self.cursor.store((from + in_turn) % end, Ordering::Relaxed);
    }

    /// The candidates of one selection: see [`select`](Self::select).
    #[cfg(all(test, feature = "std", not(lowwater_loom)))]
    pub(crate) fn candidates(&self, needy: Option<u32>, many: bool) -> Candidates {
        let mut candidates = Candidates::new();
        self.select(&mut candidates, needy, many);
        candidates
    }

    /// A pseudorandom number below `end`, which must not be 0; evenly distributed over many calls.
    pub(crate) fn random(&self, end: u64) -> u64 {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        ((u128::from(step.wrapping_mul(GOLDEN_RATIO)) * u128::from(end)) >> 64) as u64
    }

    /// Records the selected victim.
    pub(crate) fn note_victim(&self, slot: u32) {
        if self.last.load(Ordering::Relaxed) != slot {
            self.last.store(slot, Ordering::Relaxed);
        }
    }

    /// Counts a ghost hit of a pair. Without memory for its tallies the hit is ignored.
    pub(crate) fn hit(&self, slot: u32, miss: Miss, budget: u64) {
        let Some(tallies) = self.make_tallies(slot) else { return };
        let epoch = self.clock.epoch();
        if tallies.hit(miss, epoch, budget) {
            self.score(slot, true, 0, None, budget);
        }
    }

    /// Updates the score of a pair: if it reports ghost hits, from these, otherwise from its
    /// turnover with `cost`, the logarithm of the cost of its objects. `counted` is the epoch of a
    /// new count, if any.
    pub(crate) fn score(&self, slot: u32, reports: bool, cost: i32, counted: Option<u32>, budget: u64) {
        let (Some(pair), Some(tallies)) = (self.pair(slot), self.tallies(slot)) else { return };
        let epoch = self.clock.epoch();
        let counted = match (counted, pair.standing()) {
            (Some(counted), _) => counted,
            (None, Standing::Scored(score)) => score.counted(),
            // The pair has to be counted first.
            (None, Standing::Unknown | Standing::Empty(_)) => return,
        };
        let turnover = tallies.turnover(epoch);
        let utility = if reports {
            let utility = tallies.utility(epoch, budget);
            if let (Some(utility), Some(turnover)) = (utility, turnover) {
                let seen = (utility - turnover).saturating_mul(MEAN_OF);
                let mean = match self.hits_per_turnover.load(Ordering::Relaxed) {
                    NO_MEAN => seen,
                    mean => mean + (seen - mean) / MEAN_OF,
                };
                self.hits_per_turnover.store(mean, Ordering::Relaxed);
            }
            utility
        } else {
            let mean = match self.hits_per_turnover.load(Ordering::Relaxed) {
                NO_MEAN => -log2(budget.max(1)),
                mean => mean / MEAN_OF,
            };
            turnover.map(|turnover| turnover + mean + cost)
        };
        // By its insert rate, and not per object: otherwise a small pair would shrink further and
        // further.
        let none = Score::none(tallies.insert_rate(epoch, budget), budget);
        let utility = utility.map_or(none, |utility| utility.max(none));
        pair.set_standing(Standing::Scored(Score::new(utility, tallies.bytes(), epoch, counted)));
    }

    /// Heap bytes.
    pub(crate) fn bytes(&self) -> usize {
        let parts = self.parts.iter().filter_map(OnceBox::get);
        let tallies =
            |part: &Part| part.tallies.get().map_or(0, |tallies| size_of_val(tallies) + size_of_val(&**tallies));
        let parts: usize = parts.map(|part| size_of::<Part>() + size_of_val(&*part.pairs) + tallies(part)).sum();
        parts + self.index.lock().allocation_size()
    }
}

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests {
    use super::super::log2::ONE;
    use super::*;
    use alloc::vec::Vec;
    use lowwater_lru_core::ByteSize;
    use proptest::prelude::*;

    const BUDGET: u64 = 1 << 20;

    /// The state that must be kept of a pair: its standing, and its tallies, if it has any.
    fn known(pairs: &Pairs, slot: u32) -> (Standing, Option<i32>) {
        let tallies = pairs.tallies(slot);
        (pairs.pair(slot).unwrap().standing(), tallies.and_then(|tallies| tallies.utility(0, BUDGET)))
    }

    proptest! {
        /// Compares with a plain list of pairs and the state of each.
        #[test]
        fn slots_are_dense_and_pairs_keep_what_is_known_of_them(
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
                        prop_assert_eq!(known(&pairs, slot), (Standing::Unknown, None));
                        if tally == 0 {
                            pairs.make_tallies(slot).unwrap().scanned(0, n as u64 + 1, 16, 0);
                            let score = Score::new(n as i32, n as u64, 0, 0);
                            pairs.pair(slot).unwrap().set_standing(Standing::Scored(score));
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
                prop_assert!(pairs.pair(end).is_none_or(|pair| pair.who().is_none()), "a slot that is free");
            }
        }
    }

    #[test]
    fn choices_in_turn_come_by_all_pairs_alike() {
        let pairs = Pairs::new();
        (0..50).for_each(|memcg| assert!(pairs.add(1, MemcgId::new(memcg))));
        let mut seen = [0; 50];
        for _ in 0..50 {
            let candidates = pairs.candidates(Some(7), false);
            candidates.as_slice().iter().for_each(|slot| seen[*slot as usize] += 1);
        }
        assert_eq!(seen.iter().filter(|seen| **seen == 8).count(), 49, "{seen:?}");
        assert_eq!(seen[7], 50, "the needy is always among them");
        assert_eq!(pairs.candidates(None, true).as_slice().len(), 50);
    }

    fn of(n: u32) -> Pairs {
        let pairs = Pairs::new();
        (0..n).for_each(|memcg| assert!(pairs.add(1, MemcgId::new(memcg))));
        pairs
    }

    #[test]
    fn sixteen_pairs_are_all_looked_at_and_of_more_ten() {
        for n in 0..=16 {
            let candidates = of(n).candidates(Some(0), false);
            assert_eq!(candidates.as_slice(), Vec::from_iter(0..n));
            assert!(candidates.is_all());
        }
        let pairs = of(17);
        pairs.note_victim(3);
        let next = |needy, many| pairs.candidates(needy, many).as_slice().to_vec();
        assert_eq!(
            next(Some(16), false),
            [3, 16, 0, 1, 2, 4, 5, 6, 7],
            "the last victim, the needy, and eight in turn"
        );
        assert_eq!(next(Some(3), false), [3, 8, 9, 10, 11, 12, 13, 14, 15], "they may be the same");
        assert_eq!(next(None, false), [3, 16, 0, 1, 2, 4, 5, 6]);
        assert_eq!(next(None, true), [3, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0, 1, 2, 4, 5, 6], "each once");
        assert!(!pairs.candidates(None, true).is_all());
        pairs.note_victim(16);
        pairs.remove(1, MemcgId::new(0));
        assert!(pairs.add(2, MemcgId::new(0)));
        assert_eq!(next(None, false)[0], 16);
        let pairs = of(18);
        pairs.note_victim(17);
        pairs.remove(1, MemcgId::new(17));
        assert_eq!(pairs.candidates(None, false).as_slice(), [0, 1, 2, 3, 4, 5, 6, 7], "the last victim is gone");
    }

    #[test]
    fn candidates_that_failed_are_left_out() {
        let mut candidates = of(5).candidates(None, false);
        candidates.remove(&[]);
        assert_eq!(candidates.as_slice(), [0, 1, 2, 3, 4]);
        candidates.remove(&[3, 0, NONE]);
        assert_eq!(candidates.as_slice(), [1, 2, 4]);
    }

    #[test]
    fn the_bytes_of_pairs_are_those_of_the_parts_their_tallies_and_the_index() {
        let pairs = of(PART_FIRST as u32 + 1);
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
    fn an_index_without_pairs_has_no_memory() {
        let pairs = of(40);
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
        match pairs.pair(slot).unwrap().standing() {
            Standing::Scored(score) => score,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_turnover_is_worth_the_mean_of_those_that_report() {
        let pairs = of(3);
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
        let utility = pairs.tallies(1).unwrap().utility(0, BUDGET).unwrap();
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

    /// The insert rate of a pair that was counted once, with this number of objects of one byte.
    fn pairs_rate(objects: u64) -> Option<i32> {
        let tallies = Tallies::default();
        tallies.counted(objects, Some(objects), 0, 0);
        tallies.insert_rate(0, BUDGET)
    }

    #[test]
    fn a_pair_without_hits_is_judged_by_its_inserts() {
        let pairs = of(1);
        let none = Score::none(pairs_rate(BUDGET / 2), BUDGET);
        assert_eq!(none, Score::none(None, BUDGET) - 5 * ONE);
        assert_eq!(scored(&pairs, 0, BUDGET / 2, true, 0), Score::new(none, BUDGET / 2, 0, 0));
    }

    #[test]
    fn a_score_is_computed_again_with_every_eighth_hit_of_a_pair_that_was_counted() {
        let pairs = of(1);
        let hits = |n: u32| {
            (0..n).for_each(|_| pairs.hit(0, Miss::at(ByteSize::new(1)), BUDGET));
            pairs.pair(0).unwrap().standing()
        };
        assert_eq!(hits(8), Standing::Unknown, "it has to be counted first");
        let before = Standing::Scored(scored(&pairs, 0, 1_000, true, 0));
        assert_eq!(hits(7), before);
        assert_ne!(hits(1), before);
    }
}
