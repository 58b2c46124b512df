//! The pairs of shrinkers and groups that hold something, each with its score, in one dense table.
//!
//! A choice looks at all of them up to [`ALL_MAX`]; of more, at the pair that was least the last time, at
//! the one that needs the memory, and at a few others in turn: O(1) however many there are. A pair is
//! 16 bytes here, and about 8 in the index. Its tallies are made when memory is short for the first
//! time, for a part of the table at once.
//!
//! The slots in use are the first ones: when a pair is removed, the last pair moves into its slot, so a
//! choice never looks at slots in vain. All changes of slots are made under the index's lock. Readers take
//! no lock: a slot that they keep is a hint, and [`Pairs::holds`] tells whether it is still the pair's. A
//! thread that is late writes one step of a pair's tallies, or its standing, to the pair that has the slot
//! now, or to none. The standing is right again when the pair is next counted, which is in the next epoch;
//! the step decays like any other.

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

/// Pairs of the first part of the table; each part has twice as many as the one before.
const PART_FIRST: usize = 64;
/// Enough for every slot.
const PARTS: usize = 26;
/// So many pairs are all looked at.
const ALL_MAX: u32 = 16;
/// Of more, so many in turn, beside the last victim and the pair that needs the memory.
const IN_TURN: u32 = 8;
/// ... or so many where there is time, or only those below a group count.
const IN_TURN_MANY: u32 = 64;
/// Pairs that one choice looks at, at most.
pub(crate) const CANDIDATES_MAX: usize = 2 + IN_TURN_MANY as usize;
/// No slot.
const NONE: u32 = u32::MAX;
/// No pair.
const VACANT: u64 = u64::MAX;
/// A measured pair moves the mean of hits per turnover by one in so many of the distance; the mean is
/// kept in as many parts of a 256th.
const MEAN_OF: i32 = 64;
/// No pair was measured yet.
const NO_MEAN: i32 = i32::MIN;

/// See the module.
pub(crate) struct Pairs {
    parts: [OnceBox<Part>; PARTS],
    /// The slot of each pair.
    index: Mutex<HashTable<u32>>,
    /// The number of pairs, which have the slots below. Changed under the index's lock.
    end: AtomicU32,
    /// The slot of the pair that was least in the last choice, and the next slot to look at in turn.
    last: AtomicU32,
    cursor: AtomicU32,
    /// Steps of [`random`](Self::random).
    steps: AtomicU64,
    pub(crate) clock: EvictionClock,
    /// Of pairs that report ghost hits: the mean of the logarithm of the utility of a turnover of 1.
    hits_per_turnover: AtomicI32,
}

struct Part {
    pairs: Box<[Pair]>,
    tallies: OnceBox<Box<[Tallies]>>,
}

/// One pair.
pub(crate) struct Pair {
    /// The shrinker's id and the group's; or [`VACANT`].
    who: AtomicU64,
    /// A [`Standing`].
    standing: AtomicU64,
}

/// The pairs that a choice looks at, by slot.
#[derive(Clone, Copy)]
pub(crate) struct Candidates {
    slots: [u32; CANDIDATES_MAX],
    len: usize,
    /// All pairs are among them.
    is_all: bool,
}

impl Candidates {
    fn push(&mut self, slot: u32) {
        if let Some(place) = self.slots.get_mut(self.len) {
            *place = slot;
            self.len += 1;
        }
    }

    /// Whether all pairs are among them.
    pub(crate) fn is_all(&self) -> bool {
        self.is_all
    }

    /// Leaves these out.
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

/// Where a slot is: the part, and the place in it.
fn place(slot: u32) -> (usize, usize) {
    let at = slot as usize + PART_FIRST;
    let part = (at.ilog2() - PART_FIRST.ilog2()) as usize;
    (part, at - (PART_FIRST << part))
}

impl Pair {
    fn vacant() -> Self {
        Self { who: AtomicU64::new(VACANT), standing: AtomicU64::new(Standing::Unknown.pack()) }
    }

    /// The shrinker's id and the group's, if the slot is in use.
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

    /// Adds a pair that holds something, unless it is there. False without memory: then it is left out, and
    /// its objects are found by a pass only.
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

    /// Removes a pair that holds nothing any more, or whose shrinker or group ends. The last pair moves into
    /// its slot.
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

    /// Copies a pair, and what is known of it, to a slot that is free.
    fn copy(&self, from: u32, to: u32) {
        let (Some(source), Some(target)) = (self.pair(from), self.pair(to)) else { return };
        match self.tallies(from).and_then(|tallies| Some((tallies, self.make_tallies(to)?))) {
            Some((tallies, copy)) => {
                copy.copy_from(tallies);
                target.set_standing(source.standing());
            }
            // There are no tallies, or there is no memory for them: the pair is counted anew.
            None => self.reset(to),
        }
        target.who.store(source.who.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Forgets what is known of a slot's pair: the slot is for another.
    fn reset(&self, slot: u32) {
        if let Some(tallies) = self.tallies(slot) {
            tallies.reset(self.clock.epoch());
        }
        if let Some(pair) = self.pair(slot) {
            pair.set_standing(Standing::Unknown);
        }
    }

    /// Forgets all pairs, and frees the index: none is added from here on. The table stays, as readers take
    /// no lock.
    pub(crate) fn shut(&self) {
        let mut slots = self.index.lock();
        self.end.store(0, Ordering::Relaxed);
        *slots = HashTable::new();
    }

    /// The slot of a pair. Locks the index.
    pub(crate) fn find(&self, shrinker: u32, memcg: MemcgId) -> Option<u32> {
        let who = key(shrinker, memcg);
        self.index.lock().find(hash_of(who), |slot| self.is(*slot, who)).copied()
    }

    /// Whether the slot is this pair's.
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

    /// The pair of a slot, whose part of the table is made if it is not there. None without memory.
    fn make(&self, slot: u32) -> Option<&Pair> {
        let (part, at) = place(slot);
        let pairs = || try_slice(PART_FIRST << part, |_| Pair::vacant()).ok_or(());
        let made = || try_box(Part { pairs: pairs()?, tallies: OnceBox::new() }).ok_or(());
        self.parts.get(part)?.get_or_try_init(made).ok()?.pairs.get(at)
    }

    /// The tallies of a slot, if there are any.
    pub(crate) fn tallies(&self, slot: u32) -> Option<&Tallies> {
        let (part, at) = place(slot);
        self.parts.get(part)?.get()?.tallies.get()?.get(at)
    }

    /// The tallies of a slot that is in use, made if there are none. None without memory.
    pub(crate) fn make_tallies(&self, slot: u32) -> Option<&Tallies> {
        let (part, at) = place(slot);
        let made = || try_box(try_slice(PART_FIRST << part, |_| Tallies::default()).ok_or(())?).ok_or(());
        self.parts.get(part)?.get()?.tallies.get_or_try_init(made).ok()?.get(at)
    }

    /// The pairs that one choice looks at; `needy` is the slot of the pair that needs the memory. With
    /// `many`, more of them: there is time, or only those below some group will count.
    pub(crate) fn candidates(&self, needy: Option<u32>, many: bool) -> Candidates {
        let mut candidates = Candidates { slots: [NONE; CANDIDATES_MAX], len: 0, is_all: false };
        let end = self.end.load(Ordering::Relaxed);
        if end <= ALL_MAX {
            (0..end).for_each(|slot| candidates.push(slot));
            candidates.is_all = true;
            return candidates;
        }
        let last = Some(self.last.load(Ordering::Relaxed)).filter(|last| *last < end);
        last.into_iter().chain(needy.filter(|slot| Some(*slot) != last)).for_each(|slot| candidates.push(slot));
        let in_turn = if many { IN_TURN_MANY } else { IN_TURN }.min(end);
        let from = self.cursor.load(Ordering::Relaxed) % end;
        let slots = (from..from + in_turn).map(|slot| slot % end);
        let is_new = |slot: &u32| Some(*slot) != last && Some(*slot) != needy;
        slots.filter(is_new).for_each(|slot| candidates.push(slot));
        self.cursor.store((from + in_turn) % end, Ordering::Relaxed);
        candidates
    }

    /// A number below `end`, which is not 0; spread evenly over many calls.
    pub(crate) fn random(&self, end: u64) -> u64 {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        ((u128::from(step.wrapping_mul(GOLDEN_RATIO)) * u128::from(end)) >> 64) as u64
    }

    /// Notes the pair that was chosen.
    pub(crate) fn note_victim(&self, slot: u32) {
        if self.last.load(Ordering::Relaxed) != slot {
            self.last.store(slot, Ordering::Relaxed);
        }
    }

    /// Counts a ghost hit of a pair. Without memory for its tallies it does not count.
    pub(crate) fn hit(&self, slot: u32, miss: Miss, budget: u64) {
        let Some(tallies) = self.make_tallies(slot) else { return };
        let epoch = self.clock.epoch();
        if tallies.hit(miss, epoch, budget) {
            self.score(slot, true, 0, None, budget);
        }
    }

    /// Computes the score of a pair again: of one that reports ghost hits by these, of another by its
    /// turnover, whose objects have this logarithm of a cost. It was `counted` now, or as before.
    pub(crate) fn score(&self, slot: u32, reports: bool, cost: i32, counted: Option<u32>, budget: u64) {
        let (Some(pair), Some(tallies)) = (self.pair(slot), self.tallies(slot)) else { return };
        let epoch = self.clock.epoch();
        let counted = match (counted, pair.standing()) {
            (Some(counted), _) => counted,
            (None, Standing::Scored(score)) => score.counted(),
            // It has to be counted first.
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
        // By what it inserts, and not for each object held: one that holds little would hold less and less.
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
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const BUDGET: u64 = 1 << 20;

    /// What a pair is known by: its standing, and its tallies, if it has any.
    fn known(pairs: &Pairs, slot: u32) -> (Standing, Option<i32>) {
        let tallies = pairs.tallies(slot);
        (pairs.pair(slot).unwrap().standing(), tallies.and_then(|tallies| tallies.utility(0, BUDGET)))
    }

    proptest! {
        /// The plain twin: a list of pairs, and of what each is known by.
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
                // Not each time: all of them are looked up.
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
}
