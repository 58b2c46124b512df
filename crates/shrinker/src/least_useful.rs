//! Reclaim from where memory earns least: batch by batch, from the pair of a shrinker and a group with
//! the least utility.
//!
//! Who needs memory calls this with a bound; a pass over everything in proportion ([`pass`](crate::pass))
//! is what remains where nothing can be chosen: where all is protected, or no pair is known.

mod scorer;
mod victim;

use lowwater_lru_core::Memcg;
use scorer::Scorer;
use victim::{Outcome, Scanned, Victim, BATCH_MAX};

use crate::control::Reclaim;
use crate::pass::{shelter, Layer, Protect};
use crate::registry::RegistryCore;
use crate::utility::{Candidates, Pairs, Standing, CANDIDATES_MAX, ONE};
use crate::work::{Progress, Work};

/// Pairs that could not give anything, after which one call goes no further.
const FAILED_MAX: usize = 8;
/// Batches of one call: a shrinker that only says that it frees something does not keep us for ever (S21).
const BATCHES_MAX: u32 = 1 << 18;
/// No slot.
const NO_SLOT: u32 = u32::MAX;

/// One call.
pub(crate) struct LeastUseful<'a> {
    pub(crate) core: &'a RegistryCore,
    /// Only pairs of this group and those below it pay.
    pub(crate) limit: &'a Memcg,
    /// The pair that needs the memory, by slot.
    pub(crate) needy: Option<u32>,
    pub(crate) flags: Reclaim,
}

/// The candidates of one choice, and their ranks.
struct Round {
    candidates: Candidates,
    /// Of those that were not chosen yet; the greatest for all others.
    ranks: [i32; CANDIDATES_MAX],
    /// Only those below are chosen.
    most: i32,
}

impl Round {
    /// Whether all pairs are among the candidates.
    fn is_all(&self) -> bool {
        self.candidates.is_all()
    }
}

impl LeastUseful<'_> {
    /// Frees batches until `work` is used up, or nothing more can be chosen. Ends also where shrinkers say
    /// that they free something, and do not.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Progress {
        let mut total = Progress::default();
        let Some(pairs) = self.core.map.by_utility() else { return total };
        work.forget_now();
        let scorer = Scorer { core: self.core, pairs, flags: self.flags };
        // Those of which nothing can go just now.
        let (mut failed, mut failures) = ([NO_SLOT; FAILED_MAX], 0);
        let mut batches = 0;
        while failures < FAILED_MAX && batches < BATCHES_MAX && work.bound().is_none() {
            let left_out = failed.get(..failures).unwrap_or(&[]);
            let Some((mut round, mut victim)) = self.choose(&scorer, left_out) else { break };
            let mut freed = 0;
            loop {
                let Scanned { progress, outcome } = victim.scan(&scorer, work);
                batches += 1;
                total += progress;
                freed += progress.freed;
                if outcome != Outcome::Gave {
                    failed[failures] = if outcome == Outcome::Gone { NO_SLOT } else { victim.slot };
                    failures += 1;
                }
                if outcome == Outcome::Nothing {
                    // It is asked again in the next epoch, or when there is nobody else.
                    self.set_empty(pairs, &victim);
                }
                if round.is_all() || freed >= BATCH_MAX || failures == FAILED_MAX || work.bound().is_some() {
                    break;
                }
                // Of many pairs each is small, and gives an entry or two: the others come from those that are next to it.
                let Some(next) = self.next_victim(pairs, &mut round) else { break };
                victim = next;
            }
            if freed > 0 && work.is_one_batch() {
                break;
            }
        }
        total
    }

    /// Passes over a pair in this epoch.
    fn set_empty(&self, pairs: &Pairs, Victim { slot, id, memcg }: &Victim) {
        let pair = pairs.pair(*slot).filter(|_| pairs.holds(*slot, *id, memcg.id()));
        pair.into_iter().for_each(|pair| pair.set_standing(Standing::Empty(pairs.clock.epoch() as u16)));
    }

    /// The candidate of the least score that is not protected. Where none is known that holds something,
    /// all are counted again.
    fn choose(&self, scorer: &Scorer<'_>, failed: &[u32]) -> Option<(Round, Victim)> {
        let pairs = scorer.pairs;
        // The background has the time; and of those below a group only few may be among them.
        let many = self.flags.contains(Reclaim::BACKGROUND) || *self.limit != self.core.root;
        let mut candidates = pairs.candidates(self.needy, many);
        candidates.remove(failed);
        for again in [false, true] {
            let mut round = self.round(scorer, candidates, again);
            if let Some(victim) = self.next_victim(pairs, &mut round) {
                pairs.note_victim(victim.slot);
                return Some((round, victim));
            }
        }
        None
    }

    /// The ranks of these candidates; with `again`, those that seemed empty are counted first.
    fn round(&self, scorer: &Scorer<'_>, candidates: Candidates, again: bool) -> Round {
        let pairs = scorer.pairs;
        let (epoch, budget) = (pairs.clock.epoch(), scorer.budget());
        let mut ranks = [i32::MAX; CANDIDATES_MAX];
        // The foreground counts one pair, unless it finds nothing: the one that was counted longest ago.
        let counts_all = again || self.flags.contains(Reclaim::BACKGROUND);
        let age =
            |slot: u32| pairs.pair(slot).filter(|pair| pair.who().is_some()).map(|pair| pair.standing().age(epoch));
        let oldest =
            if counts_all { None } else { candidates.as_slice().iter().copied().max_by_key(|slot| age(*slot)) };
        for (rank, slot) in ranks.iter_mut().zip(candidates.as_slice()) {
            let Some(pair) = pairs.pair(*slot).filter(|pair| pair.who().is_some()) else { continue };
            let standing = pair.standing();
            let is_due = match again {
                true => !matches!(standing, Standing::Scored(_)),
                false => standing.is_due(epoch),
            };
            if is_due && (counts_all || oldest == Some(*slot)) {
                scorer.count(*slot);
            } else if self.needy == Some(*slot) {
                scorer.score(*slot);
            }
            if let Standing::Scored(score) = pair.standing() {
                *rank = score.rank(epoch, budget);
            }
        }
        Round { candidates, ranks, most: i32::MAX }
    }

    /// The next victim of a round: the least that is not protected, and after it those of nearly its rank.
    fn next_victim(&self, pairs: &Pairs, round: &mut Round) -> Option<Victim> {
        let candidates = round.candidates.as_slice();
        // Mostly the first is not protected.
        for _ in candidates {
            let least = round.ranks.iter_mut().take(candidates.len()).enumerate().min_by_key(|(_, rank)| **rank);
            let (at, place) = least.filter(|(_, rank)| **rank < round.most)?;
            let rank = core::mem::replace(place, i32::MAX);
            if let Some(victim) = self.victim(pairs, *candidates.get(at)?) {
                if round.most == i32::MAX {
                    round.most = rank.saturating_add(ONE / 2);
                }
                return Some(victim);
            }
        }
        None
    }

    /// The pair of this slot, if its group is below the limit, and not protected there.
    fn victim(&self, pairs: &Pairs, slot: u32) -> Option<Victim> {
        let (id, memcg) = pairs.pair(slot)?.who()?;
        let memcg = self.core.map.memcg(memcg)?;
        let may_pay =
            memcg.is_descendant_of(self.limit) && shelter(&memcg, self.limit, Protect::Limits) == Some(Layer::AboveLow);
        may_pay.then_some(Victim { slot, id, memcg })
    }
}
