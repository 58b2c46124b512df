//! The pairs of shrinkers and groups with objects, each with its score, in one dense table.
//!
//! A selection considers all pairs up to [`ALL_MAX`]. If there are more, it considers the last
//! victim, the pair that needs the memory, and a few others in turn: O(1) for any number of pairs.
//! Below a group's limit those in turn are found by their group (`map/turn.rs`). A pair takes 16
//! bytes here, and about 8 in the index. Tallies are allocated when memory first becomes short, for
//! a part of the table at once.
//!
//! The slots in use are the first ones: when a pair is removed, the last pair moves into its slot,
//! so a selection never visits unused slots. All changes of slots are made under the index's lock.
//! Readers take no lock: a slot number that a reader has kept is a hint, and [`Pairs::holds`]
//! checks whether the slot still belongs to the pair. A thread that uses an outdated number adds
//! one step to the tallies, or stores the state, of the pair that has the slot now, or of none. The
//! state is corrected by the pair's next count, which is due in the next epoch; the step decays
//! like any other.
//!
//! A change must ensure that a selection stays O(1), and lock-free except below a group's limit,
//! and that an outdated slot number costs no more than this.

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
use super::score::{PairState, Score};
use super::tallies::Tallies;
use crate::hash::hash_of;

/// The number of pairs in the first part of the table; each part has twice as many as the previous
/// one.
const PART_FIRST: usize = 64;
/// Enough parts for every slot.
const PARTS: usize = 26;
/// Up to this number of pairs, all are candidates; below a group's limit also if only the group's
/// pairs are so few.
const ALL_MAX: u32 = 16;
/// The number of candidates in turn among more pairs, besides the last victim and the pair that
/// needs the memory.
const IN_TURN: u32 = 8;
/// The number of candidates in turn if there is time for more.
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
    /// The slot of the last victim.
    last: AtomicU32,
    /// The next slot to consider in turn.
    cursor: AtomicU32,
    /// The number of calls of [`random`](Self::random).
    steps: AtomicU64,
    pub(crate) clock: EvictionClock,
    /// The logarithm of the utility that a turnover of 1 has, as a mean over the pairs that report
    /// ghost hits; scaled as [`MEAN_OF`] says. [`NO_MEAN`] before the first.
    hits_per_turnover: AtomicI32,
}

/// A part of the table: some slots, and their tallies once memory is short.
struct Part {
    pairs: Box<[Pair]>,
    tallies: OnceBox<Box<[Tallies]>>,
}

/// One pair.
pub(crate) struct Pair {
    /// The ids of the shrinker and the group; or [`VACANT`].
    key: AtomicU64,
    /// A [`PairState`].
    state: AtomicU64,
}

/// The candidates of a selection, by slot.
pub(crate) struct Candidates {
    /// The slots; only the first `len` are candidates.
    slots: [u32; CANDIDATES_MAX],
    len: usize,
    /// True if there are at most [`ALL_MAX`] pairs. With more it is false, even where every pair is
    /// a candidate.
    is_all: bool,
}

impl Candidates {
    pub(crate) fn new() -> Self {
        Self { slots: [0; CANDIDATES_MAX], len: 0, is_all: false }
    }

    fn push(&mut self, slot: u32) {
        if let Some(place) = self.slots.get_mut(self.len) {
            *place = slot;
            self.len += 1;
        }
    }

    /// Adds a candidate, unless it is one.
    pub(crate) fn insert(&mut self, slot: u32) {
        if !self.as_slice().contains(&slot) {
            self.push(slot);
        }
    }

    /// Returns true if all pairs are candidates because there are at most [`ALL_MAX`].
    pub(crate) fn is_all(&self) -> bool {
        self.is_all
    }

    /// Keeps only the candidates for which `is_kept` returns true.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(u32) -> bool) {
        let mut kept = 0;
        for at in 0..self.len {
            if is_kept(self.slots[at]) {
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

/// Returns a shrinker and a group as one number.
fn pair_key(shrinker: u32, memcg: MemcgId) -> u64 {
    u64::from(shrinker) << 32 | u64::from(memcg.get())
}

/// Returns the position of a slot: its part, and the index in the part.
fn place(slot: u32) -> (usize, usize) {
    let at = slot as usize + PART_FIRST;
    let part = (at.ilog2() - PART_FIRST.ilog2()) as usize;
    (part, at - (PART_FIRST << part))
}

impl Pair {
    fn vacant() -> Self {
        Self { key: AtomicU64::new(VACANT), state: AtomicU64::new(PairState::Unknown.pack()) }
    }

    /// Returns the ids of the shrinker and the group, if the slot is in use.
    pub(crate) fn ids(&self) -> Option<(u32, MemcgId)> {
        match self.key.load(Ordering::Relaxed) {
            VACANT => None,
            key => Some(((key >> 32) as u32, MemcgId::new(key as u32))),
        }
    }

    pub(crate) fn state(&self) -> PairState {
        PairState::unpack(self.state.load(Ordering::Relaxed))
    }

    pub(crate) fn set_state(&self, state: PairState) {
        self.state.store(state.pack(), Ordering::Relaxed);
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
        let (key, mut slots) = (pair_key(shrinker, memcg), self.index.lock());
        if slots.find(hash_of(key), |slot| self.is(*slot, key)).is_some() {
            return true;
        }
        let hash = |slot: &u32| self.pair(*slot).map_or(0, |pair| hash_of(pair.key.load(Ordering::Relaxed)));
        if slots.try_reserve(1, hash).is_err() {
            return false;
        }
        let slot = slots.len() as u32;
        let Some(pair) = self.make(slot) else { return false };
        self.reset(slot);
        pair.key.store(key, Ordering::Relaxed);
        slots.insert_unique(hash_of(key), slot, hash);
        self.end.store(slot + 1, Ordering::Relaxed);
        true
    }

    /// Removes a pair that has no objects any more, or whose shrinker or group has ended. The last
    /// pair moves into its slot.
    pub(crate) fn remove(&self, shrinker: u32, memcg: MemcgId) {
        let (key, mut slots) = (pair_key(shrinker, memcg), self.index.lock());
        let Ok(entry) = slots.find_entry(hash_of(key), |slot| self.is(*slot, key)) else { return };
        let (slot, _) = entry.remove();
        let last = slots.len() as u32;
        let Some(moved) = self.pair(last) else { return };
        if slot != last {
            let hash = hash_of(moved.key.load(Ordering::Relaxed));
            slots.find_mut(hash, |slot| *slot == last).into_iter().for_each(|place| *place = slot);
            self.copy(last, slot);
        }
        moved.key.store(VACANT, Ordering::Relaxed);
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
                target.set_state(source.state());
            }
            // There are no tallies, or no memory for them: the pair is counted again.
            None => self.reset(to),
        }
        target.key.store(source.key.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Resets the state of a slot, before another pair uses it.
    fn reset(&self, slot: u32) {
        if let Some(tallies) = self.tallies(slot) {
            tallies.reset(self.clock.epoch());
        }
        if let Some(pair) = self.pair(slot) {
            pair.set_state(PairState::Unknown);
        }
    }

    /// Removes all pairs, and frees the index; the caller adds none from here on. The table stays,
    /// because readers take no lock.
    pub(crate) fn shut(&self) {
        let mut slots = self.index.lock();
        self.end.store(0, Ordering::Relaxed);
        *slots = HashTable::new();
    }

    /// Finds the slot of a pair. Locks the index.
    pub(crate) fn find(&self, shrinker: u32, memcg: MemcgId) -> Option<u32> {
        let key = pair_key(shrinker, memcg);
        self.index.lock().find(hash_of(key), |slot| self.is(*slot, key)).copied()
    }

    /// Returns true if the slot belongs to this pair.
    pub(crate) fn holds(&self, slot: u32, shrinker: u32, memcg: MemcgId) -> bool {
        self.is(slot, pair_key(shrinker, memcg))
    }

    fn is(&self, slot: u32, key: u64) -> bool {
        self.pair(slot).is_some_and(|pair| pair.key.load(Ordering::Relaxed) == key)
    }

    pub(crate) fn pair(&self, slot: u32) -> Option<&Pair> {
        let (part, at) = place(slot);
        self.parts.get(part)?.get()?.pairs.get(at)
    }

    /// Returns the pair of a slot; allocates its part of the table if necessary. `None` without
    /// memory.
    fn make(&self, slot: u32) -> Option<&Pair> {
        let (part, at) = place(slot);
        let pairs = || try_slice(PART_FIRST << part, |_| Pair::vacant()).ok_or(());
        let made = || try_box(Part { pairs: pairs()?, tallies: OnceBox::new() }).ok_or(());
        self.parts.get(part)?.get_or_try_init(made).ok()?.pairs.get(at)
    }

    /// Returns the tallies of a slot, if they are allocated.
    pub(crate) fn tallies(&self, slot: u32) -> Option<&Tallies> {
        let (part, at) = place(slot);
        self.parts.get(part)?.get()?.tallies.get()?.get(at)
    }

    /// Returns the tallies of a slot in use, allocated if necessary. `None` without memory.
    pub(crate) fn make_tallies(&self, slot: u32) -> Option<&Tallies> {
        let (part, at) = place(slot);
        let made = || try_box(try_slice(PART_FIRST << part, |_| Tallies::default()).ok_or(())?).ok_or(());
        self.parts.get(part)?.get()?.tallies.get_or_try_init(made).ok()?.get(at)
    }

    /// Replaces the candidates by those of one selection; `needy` is the slot of the pair that
    /// needs the memory. With `many` there are more candidates, because there is time.
    pub(crate) fn select(&self, candidates: &mut Candidates, needy: Option<u32>, many: bool) {
        self.select_in_turn(candidates, needy, if many { IN_TURN_MANY } else { IN_TURN });
    }

    /// As [`select`](Self::select), below a group's limit. Pairs of other groups may be among the
    /// candidates. Returns how many pairs of the group are to be added, as candidates in turn.
    pub(crate) fn select_below(&self, candidates: &mut Candidates, needy: Option<u32>, many: bool) -> usize {
        self.select_in_turn(candidates, needy, 0);
        match many {
            _ if candidates.is_all => 0,
            true => IN_TURN_MANY as usize,
            false => ALL_MAX as usize,
        }
    }

    fn select_in_turn(&self, candidates: &mut Candidates, needy: Option<u32>, in_turn: u32) {
        let end = self.end.load(Ordering::Relaxed);
        (candidates.len, candidates.is_all) = (0, end <= ALL_MAX);
        if candidates.is_all {
            return (0..end).for_each(|slot| candidates.push(slot));
        }
        let last = Some(self.last.load(Ordering::Relaxed)).filter(|last| *last < end);
        last.into_iter().chain(needy.filter(|slot| Some(*slot) != last)).for_each(|slot| candidates.push(slot));
        if in_turn == 0 {
            // A store of the cursor might undo another selection's.
            return;
        }
        let in_turn = in_turn.min(end);
        let from = self.cursor.load(Ordering::Relaxed) % end;
        let slots = (from..from + in_turn).map(|slot| slot % end);
        let is_new = |slot: &u32| Some(*slot) != last && Some(*slot) != needy;
        slots.filter(is_new).for_each(|slot| candidates.push(slot));
        self.cursor.store((from + in_turn) % end, Ordering::Relaxed);
    }

    /// Returns the candidates of one selection: see [`select`](Self::select).
    #[cfg(all(test, feature = "std", not(lowwater_loom)))]
    pub(crate) fn candidates(&self, needy: Option<u32>, many: bool) -> Candidates {
        let mut candidates = Candidates::new();
        self.select(&mut candidates, needy, many);
        candidates
    }

    /// Returns a pseudorandom number below `end`, which must not be 0; evenly distributed over many
    /// calls.
    pub(crate) fn random(&self, end: u64) -> u64 {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        ((u128::from(step.wrapping_mul(GOLDEN_RATIO)) * u128::from(end)) >> 64) as u64
    }

    /// Returns the slot of the only pair, if there is a single one.
    pub(crate) fn only(&self) -> Option<u32> {
        (self.end.load(Ordering::Relaxed) == 1).then_some(0)
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
        let counted = match (counted, pair.state()) {
            (Some(counted), _) => counted,
            (None, PairState::Scored(score)) => score.counted(),
            // The pair has to be counted first.
            (None, PairState::Unknown | PairState::Empty(_)) => return,
        };
        let utility = if reports {
            let of_many = self.end.load(Ordering::Relaxed) > ALL_MAX;
            let utility = tallies.utility(epoch, budget, of_many);
            if let Some((utility, turnover)) = utility.and_then(|utility| Some((utility, tallies.turnover(epoch)?))) {
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
            tallies.turnover(epoch).map(|turnover| turnover + mean + cost)
        };
        // The least utility follows from the insert rate, and not from a rate per object: otherwise
        // a small pair would shrink further and further.
        let none = Score::none(tallies.insert_rate(epoch, budget), budget);
        let utility = utility.map_or(none, |utility| utility.max(none));
        pair.set_state(PairState::Scored(Score::new(utility, tallies.bytes(), epoch, counted)));
    }

    /// Marks a pair as empty until the next epoch: [`evicted_since_count`] does not make it due
    /// before. A selection counts it before only if it finds no victim otherwise.
    ///
    /// [`evicted_since_count`]: Self::evicted_since_count
    pub(crate) fn set_empty(&self, slot: u32) {
        if let Some(tallies) = self.tallies(slot) {
            tallies.set_kib_left(0);
        }
        if let Some(pair) = self.pair(slot) {
            pair.set_state(PairState::Empty(self.clock.epoch() as u16));
        }
    }

    /// Returns the KiB that were evicted, of all pairs, since the pair was counted. Only for a pair
    /// that was counted in this epoch; 0 for one that was marked as empty since.
    pub(crate) fn evicted_since_count(&self, slot: u32) -> u32 {
        self.tallies(slot).map_or(0, |tallies| tallies.evicted_since(self.clock.kib_left()))
    }

    /// Returns the heap bytes.
    pub(crate) fn bytes(&self) -> usize {
        let parts = self.parts.iter().filter_map(OnceBox::get);
        let tallies =
            |part: &Part| part.tallies.get().map_or(0, |tallies| size_of_val(tallies) + size_of_val(&**tallies));
        let parts: usize = parts.map(|part| size_of::<Part>() + size_of_val(&*part.pairs) + tallies(part)).sum();
        parts + self.index.lock().allocation_size()
    }
}

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests;
