//! The oracle: the rule by which caches share one budget, as plainly as possible. It computes in
//! floating point, has exact ghosts, and examines all pairs for every choice.
//!
//! The order inside a pair is LRU. Tallies decay by evicted bytes, which equal the inserted bytes
//! while memory is full. Each choice of a victim evicts a batch of a few entries.
//!
//! The utility of a pair is the greatest number of hits per byte that more memory would bring, over
//! all distances up to the budget. The pair with the least utility is the next victim.
//!
//! The constants are those of the shrinker crate (`utility/tallies.rs`, `score.rs` and `clock.rs`,
//! `least_useful/victim.rs`) and of `src/runtime/ghosts.rs`, written again: a change of one there
//! is made here first.
//!
//! A change must keep the oracle plain: an optimization here would need a proof of its own.

use std::collections::{BTreeMap, HashMap};

use super::stream::{Stream, ROOT};

/// Ghosts per cached entry, in all pairs together.
const GHOSTS_PER_ENTRY: usize = 2;
/// The bins of distances: up to a 64th of the budget, a 32nd, and so on to all of it. The distance
/// of a ghost hit is the memory in bytes by which the pair was too small for a hit.
const DISTANCES: usize = 7;
/// Tallies halve each time that this part of the budget has been evicted.
const HALF_LIFE: f64 = 0.25;
/// Added to each distance, as a part of the budget: otherwise a few chance hits at a short distance
/// would be many hits per byte.
const NEAR: f64 = 1.0 / 500.0;
/// The least utility is that of this many hits at the distance of the whole budget.
const HITS_MIN: f64 = 1.0 / 64.0;
/// Of pairs at the least utility, those with turnover are evicted first: the least utility is
/// divided by the turnover, at most by this.
const TURNOVER_MAX: f64 = 256.0;
/// The utility of a pair is divided by its bytes to the power of this: among equals the larger is
/// the victim.
const PULL: f64 = 0.1;
/// Entries that are evicted from one pair before the next choice, at most.
const BATCH_MAX: usize = 8;
/// The batch is also at most the pair's entries divided by this, but at least one entry.
const BATCH_PARTS: usize = 64;

/// All pairs under one budget.
pub struct Oracle<'s> {
    stream: &'s Stream,
    pairs: Vec<Pair>,
    /// The pair and key of each ghost, by the step of its eviction: the oldest first.
    ghosts: BTreeMap<u64, (usize, u64)>,
    /// Steps so far: one for each request, and one for each eviction.
    steps: u64,
    /// Bytes evicted so far.
    evicted: u64,
}

/// One cache's entries of one group.
#[derive(Default)]
struct Pair {
    /// The step of the last use of each key, and the keys by that step.
    used: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
    /// Bytes of its entries.
    held: u64,
    /// Bytes evicted so far, of this pair.
    evicted: u64,
    /// Of each ghost: its step, and the bytes evicted of this pair until then.
    ghosts: HashMap<u64, (u64, u64)>,
    /// The tallies: the cost of ghost hits by distance, and the bytes inserted. Both have decayed
    /// up to `decayed_at`, a value of [`Oracle::evicted`].
    hits: [f64; DISTANCES],
    inserted: f64,
    decayed_at: u64,
}

impl<'s> Oracle<'s> {
    pub fn new(stream: &'s Stream) -> Self {
        let pairs = stream.pairs.iter().map(|_| Pair::default()).collect();
        Self { stream, pairs, ghosts: BTreeMap::new(), steps: 0, evicted: 0 }
    }

    /// Looks a key up, and inserts it on a miss. Returns whether it was a hit.
    pub fn ask(&mut self, at: usize, key: u64) -> bool {
        self.steps += 1;
        let is_hit = self.pairs[at].used.contains_key(&key);
        if !is_hit {
            self.note_miss(at, key);
            self.make_room(at, self.stream.pairs[at].size(key));
        }
        let size = self.stream.pairs[at].size(key);
        let pair = &mut self.pairs[at];
        match pair.used.insert(key, self.steps) {
            Some(before) => drop(pair.by_use.remove(&before)),
            None => pair.held += size,
        }
        pair.by_use.insert(self.steps, key);
        is_hit
    }

    pub fn len(&self, at: usize) -> u64 {
        self.pairs[at].used.len() as u64
    }

    /// The budget: the root's limit.
    fn budget(&self) -> f64 {
        self.stream.groups[ROOT].max as f64
    }

    /// Counts the inserted bytes, and a ghost hit if the key has a ghost and the pair could have
    /// kept the entry within its limits.
    fn note_miss(&mut self, at: usize, key: u64) {
        self.decay(at);
        let budget = self.budget();
        let spec = &self.stream.pairs[at];
        let limit = self.stream.groups[spec.group].max.min(self.stream.groups[ROOT].max);
        let pair = &mut self.pairs[at];
        pair.inserted += spec.size(key) as f64;
        let Some((came, evicted)) = pair.ghosts.remove(&key) else { return };
        self.ghosts.remove(&came);
        let distance = pair.evicted - evicted;
        if distance + pair.held > limit {
            return;
        }
        let place = (0..DISTANCES).find(|place| distance as f64 <= reach(*place, budget)).unwrap_or(DISTANCES - 1);
        pair.hits[place] += spec.cost as f64;
    }

    fn decay(&mut self, at: usize) {
        let half_life = HALF_LIFE * self.budget();
        let pair = &mut self.pairs[at];
        let left = (-((self.evicted - pair.decayed_at) as f64) / half_life).exp2();
        pair.hits.iter_mut().for_each(|hits| *hits *= left);
        pair.inserted *= left;
        pair.decayed_at = self.evicted;
    }

    fn utility(&mut self, at: usize) -> f64 {
        self.decay(at);
        let (budget, pair) = (self.budget(), &self.pairs[at]);
        let turnover = pair.inserted / pair.held.max(1) as f64;
        let mut best = HITS_MIN / budget / turnover.clamp(1.0, TURNOVER_MAX);
        let mut hits = 0.0;
        for place in 0..DISTANCES {
            hits += pair.hits[place];
            best = f64::max(best, hits / (NEAR * budget + reach(place, budget)));
        }
        best / (pair.held.max(1) as f64).powf(PULL)
    }

    /// Evicts until the bytes fit into the group of a pair, and into the root.
    fn make_room(&mut self, at: usize, size: u64) {
        for limit in [self.stream.pairs[at].group, ROOT] {
            while self.usage(limit) + size > self.stream.groups[limit].max {
                let victim = self.least(limit).expect("a pair is not protected");
                let batch = (self.pairs[victim].used.len() / BATCH_PARTS).clamp(1, BATCH_MAX);
                (0..batch).for_each(|_| self.evict_one(victim));
            }
        }
    }

    /// Returns the bytes that the pairs of a group and its descendants hold.
    fn usage(&self, group: usize) -> u64 {
        let pairs = self.stream.pairs.iter().zip(&self.pairs);
        pairs.filter(|(spec, _)| group == ROOT || spec.group == group).map(|(_, pair)| pair.held).sum()
    }

    /// Returns the pair of least utility below a limit, of the pairs that are not empty and not
    /// protected.
    fn least(&mut self, limit: usize) -> Option<usize> {
        let is_candidate = |at: &usize| {
            let group = self.stream.pairs[*at].group;
            let is_protected = group != limit && self.usage(group) <= self.stream.groups[group].low;
            (limit == ROOT || group == limit) && self.pairs[*at].held > 0 && !is_protected
        };
        let candidates: Vec<usize> = (0..self.pairs.len()).filter(is_candidate).collect();
        let utilities: Vec<f64> = candidates.iter().map(|at| self.utility(*at)).collect();
        let least = (0..candidates.len()).min_by(|a, b| utilities[*a].total_cmp(&utilities[*b]));
        least.map(|n| candidates[n])
    }

    /// Evicts the least recently used entry of a pair, and adds its ghost.
    fn evict_one(&mut self, at: usize) {
        let pair = &mut self.pairs[at];
        let Some((_, key)) = pair.by_use.pop_first() else { return };
        let size = self.stream.pairs[at].size(key);
        pair.used.remove(&key);
        pair.held -= size;
        self.steps += 1;
        pair.ghosts.insert(key, (self.steps, pair.evicted));
        pair.evicted += size;
        self.ghosts.insert(self.steps, (at, key));
        self.evicted += size;
        let entries: usize = self.pairs.iter().map(|pair| pair.used.len()).sum();
        while self.ghosts.len() > GHOSTS_PER_ENTRY * entries {
            let (_, (at, key)) = self.ghosts.pop_first().expect("the ghosts are not empty");
            self.pairs[at].ghosts.remove(&key);
        }
    }
}

/// Returns the greatest distance of a bin, in bytes.
fn reach(place: usize, budget: f64) -> f64 {
    budget / (1 << (DISTANCES - 1 - place)) as f64
}
