//! Reclaim by utility: objects are freed batch by batch from the (shrinker, group) pair with the
//! least utility.
//!
//! The *rank* of a pair is its score at the present epoch: the higher, the more its memory is
//! worth. The caller's [`Work`] bounds the scanned objects and the time. Where no victim can be
//! selected, because every pair is protected or no pair is known, the caller falls back to a
//! proportional pass over all pairs ([`pass`](crate::pass)) or to [direct reclaim](crate::direct).
//!
//! Numbers such as S21 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that a call ends after a bounded number of callbacks.

mod due;
mod scorer;
#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests;
mod victim;

use core::cell::OnceCell;

use due::Due;
use lowwater_lru_core::Memcg;
use scorer::Scorer;
use victim::{batch_max, Outcome, Scanned, Victim};

use crate::control::Reclaim;
use crate::protect::{Layer, Protect, Unprotected};
use crate::registry::RegistryCore;
use crate::utility::{Candidates, Pair, PairState, Pairs, CANDIDATES_MAX, ONE};
use crate::work::{Progress, Work};

/// The number of pairs that fail in a row, with nothing freed between them, after which a call
/// stops.
const FAILED_MAX: usize = 8;
/// The maximum number of batches of one call, so that a shrinker that falsely reports freed objects
/// does not keep it running for ever (S21).
const BATCHES_MAX: u32 = 1 << 18;
/// A slot number that no pair has.
const NO_SLOT: u32 = u32::MAX;

/// One call of reclaim by utility.
pub(crate) struct LeastUseful<'a> {
    pub(crate) core: &'a RegistryCore,
    /// Only pairs of this group and of groups below it are victims.
    pub(crate) limit: &'a Memcg,
    /// The slot of the pair that needs the memory, if a pair does.
    pub(crate) needy: Option<u32>,
    pub(crate) flags: Reclaim,
}

/// The candidates of one selection, and their ranks.
struct Round {
    candidates: Candidates,
    /// The ranks of candidates that were not selected yet; `i32::MAX` for other candidates.
    ranks: [i32; CANDIDATES_MAX],
    /// Only candidates with a rank below this are selected.
    rank_end: i32,
}

impl Round {
    fn new() -> Self {
        Self { candidates: Candidates::new(), ranks: [0; CANDIDATES_MAX], rank_end: i32::MAX }
    }

    /// Returns true if all pairs are candidates, because there are at most `ALL_MAX`.
    fn is_all(&self) -> bool {
        self.candidates.is_all()
    }
}

impl LeastUseful<'_> {
    /// Frees batches until `work` is used up, or no victim can be selected. Ends also if shrinkers
    /// report freed objects and free none.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Progress {
        let mut total = Progress::default();
        let Some(pairs) = self.core.map.by_utility() else { return total };
        work.forget_now();
        let scorer = Scorer::new(self.core, pairs, self.flags);
        // Slots of pairs that could free nothing since the last batch.
        let (mut failed, mut failures) = ([NO_SLOT; FAILED_MAX], 0);
        let (mut batches, mut round) = (0, None);
        while failures < FAILED_MAX && batches < BATCHES_MAX && work.bound().is_none() {
            let left_out = failed.get(..failures).unwrap_or(&[]);
            let chosen = match pairs.only() {
                Some(slot) => {
                    round = None;
                    self.choose_only(&scorer, slot, left_out)
                }
                None => self.choose(&scorer, round.get_or_insert_with(Round::new), left_out),
            };
            let Some(mut victim) = chosen else { break };
            if scorer.take_has_counted() {
                work.spend_time_between_visits(self.core.config.clock.as_deref());
            }
            let mut freed = 0;
            let mut of_many = round.as_mut().filter(|round| !round.is_all());
            loop {
                let Scanned { progress, outcome } = victim.scan(&scorer, of_many.is_some(), work);
                batches += 1;
                total += progress;
                freed = u64::saturating_add(freed, progress.freed);
                if outcome != Outcome::Freed {
                    // The slot of a pair that is gone may belong to another pair by now.
                    failed[failures] = if outcome == Outcome::Gone { NO_SLOT } else { victim.slot };
                    failures += 1;
                }
                if outcome == Outcome::Nothing {
                    // The pair is considered again in the next epoch, or if there is no other.
                    self.set_empty(pairs, &victim);
                }
                // With many pairs each is small and gives up an object or two: the rest comes from
                // pairs with nearly the same rank.
                let Some(round) = &mut of_many else { break };
                if freed >= batch_max(self.flags) || failures == FAILED_MAX || work.bound().is_some() {
                    break;
                }
                let Some(next) = self.next_victim(pairs, round) else { break };
                victim = next;
            }
            if freed > 0 {
                if work.is_one_batch() {
                    break;
                }
                // A pair that kept its objects is considered again after each batch from another
                // pair, as if each batch were a call. A call of the background may never end, and
                // its first victims would keep their memory for as long.
                failures = 0;
            }
        }
        total
    }

    /// Marks a pair as empty for this epoch.
    fn set_empty(&self, pairs: &Pairs, Victim { slot, id, memcg, .. }: &Victim) {
        if pairs.holds(*slot, *id, memcg.id()) {
            pairs.set_empty(*slot);
        }
    }

    /// Returns true if the limit is one of a group, and not that of all pairs.
    fn is_of_group(&self) -> bool {
        *self.limit != self.core.root
    }

    /// Begins a round: selects candidates, without the `failed` ones and below a group's limit only
    /// those of that group and the groups below it, and of these the victim with the least rank. If
    /// there is none, counts the candidates without a score and tries once more.
    fn choose(&self, scorer: &Scorer<'_>, round: &mut Round, failed: &[u32]) -> Option<Victim> {
        let pairs = scorer.pairs;
        // The background has time for more candidates.
        let many = self.flags.contains(Reclaim::BACKGROUND);
        if self.is_of_group() {
            let in_turn = pairs.select_below(&mut round.candidates, self.needy, many);
            // Others cannot be victims, and counts of them would take the turns of those that can.
            round.candidates.retain(|slot| self.is_below(pairs, slot));
            self.core.map.add_in_turn(self.limit, in_turn, &mut round.candidates);
        } else {
            pairs.select(&mut round.candidates, self.needy, many);
        }
        if !failed.is_empty() {
            round.candidates.retain(|slot| !failed.contains(&slot));
        }
        for again in [false, true] {
            self.rank(scorer, round, again);
            if let Some(victim) = self.next_victim(pairs, round) {
                pairs.note_victim(victim.slot);
                return Some(victim);
            }
        }
        None
    }

    /// As [`choose`](Self::choose), for a table with a single pair, which needs no rank.
    fn choose_only(&self, scorer: &Scorer<'_>, slot: u32, failed: &[u32]) -> Option<Victim> {
        let pairs = scorer.pairs;
        if failed.contains(&slot) {
            return None;
        }
        for again in [false, true] {
            let due = Due::new(pairs, pairs.clock.epoch(), again, None);
            let pair = due.in_use(slot)?;
            if due.is_due(pair, slot) {
                scorer.count(slot);
            }
            let is_scored = matches!(pair.state(), PairState::Scored(_));
            if let Some(victim) = is_scored.then(|| self.victim(pairs, slot)).flatten() {
                pairs.note_victim(slot);
                return Some(victim);
            }
        }
        None
    }

    /// Ranks the candidates, after counts of those that are due. The foreground counts only some of
    /// these; with `again` all are counted, and each one without a score is due.
    fn rank(&self, scorer: &Scorer<'_>, Round { candidates, ranks, rank_end }: &mut Round, again: bool) {
        let pairs = scorer.pairs;
        let (epoch, budget) = (pairs.clock.epoch(), scorer.budget());
        *rank_end = i32::MAX;
        let due = Due::new(pairs, epoch, again, self.is_of_group().then_some(self.limit));
        // The foreground counts a single pair, the one that was counted longest ago, unless it
        // finds nothing. Below a group's limit, and with many pairs, it also counts the pair that
        // needs the memory, which grows at this moment.
        let counts_all = again || self.flags.contains(Reclaim::BACKGROUND);
        let counts_needy = self.is_of_group() || !candidates.is_all();
        // Found at the first pair that is due: mostly none is.
        let oldest = OnceCell::new();
        let is_oldest = |slot: u32| *oldest.get_or_init(|| due.oldest(candidates.as_slice())) == Some(slot);
        for (rank, slot) in ranks.iter_mut().zip(candidates.as_slice().iter().copied()) {
            *rank = i32::MAX;
            let Some(pair) = due.in_use(slot) else { continue };
            let is_needy = self.needy == Some(slot);
            if due.is_due(pair, slot) && (counts_all || is_needy && counts_needy || is_oldest(slot)) {
                scorer.count(slot);
            } else if is_needy && candidates.as_slice().len() > 1 {
                self.score_needy(scorer, slot);
            }
            if let PairState::Scored(score) = pair.state() {
                *rank = score.rank(epoch, budget);
            }
        }
    }

    /// Computes the score of the pair that needs the memory, with the ghost hits since the last
    /// score.
    fn score_needy(&self, scorer: &Scorer<'_>, slot: u32) {
        let id = scorer.pairs.pair(slot).and_then(Pair::ids).map(|(id, _)| id);
        let options = id.and_then(|id| self.core.options(id));
        options.into_iter().for_each(|options| scorer.score(slot, &options));
    }

    /// Returns the next victim of a round: the candidate of the least rank that is not protected,
    /// and after it candidates of nearly the same rank.
    fn next_victim(&self, pairs: &Pairs, round: &mut Round) -> Option<Victim> {
        let candidates = round.candidates.as_slice();
        // Usually the first one is not protected.
        for _ in candidates {
            let least = round.ranks.iter_mut().take(candidates.len()).enumerate().min_by_key(|(_, rank)| **rank);
            let (at, place) = least.filter(|(_, rank)| **rank < round.rank_end)?;
            let rank = core::mem::replace(place, i32::MAX);
            if let Some(victim) = self.victim(pairs, *candidates.get(at)?) {
                if round.rank_end == i32::MAX {
                    round.rank_end = rank.saturating_add(ONE / 2);
                }
                return Some(victim);
            }
        }
        None
    }

    /// Returns true if the group of a pair is the limited one or below it.
    fn is_below(&self, pairs: &Pairs, slot: u32) -> bool {
        let is_below = |memcg: &Memcg| memcg.is_descendant_of(self.limit);
        let group = pairs.pair(slot).and_then(Pair::ids).map(|(_, group)| group);
        group.and_then(|group| self.core.map.part_of_memcg(group, is_below)).unwrap_or(false)
    }

    /// Returns the pair of a slot as a victim, if its group is below the limit and not protected.
    fn victim(&self, pairs: &Pairs, slot: u32) -> Option<Victim> {
        let (id, memcg) = pairs.pair(slot)?.ids()?;
        let memcg = self.core.map.memcg(memcg)?;
        if !memcg.is_descendant_of(self.limit) {
            return None;
        }
        let unprotected = Unprotected::in_layer(Layer::AboveLow, &memcg, self.limit, Protect::Limits)?;
        Some(Victim { slot, id, memcg, spare: unprotected.bytes })
    }
}
