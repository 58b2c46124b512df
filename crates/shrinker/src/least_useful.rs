//! Reclaim from where memory earns least: batch by batch, from the pair of a shrinker and a group with
//! the least utility.
//!
//! Who needs memory calls this with a bound; a pass over everything in proportion ([`pass`](crate::pass))
//! is what remains where nothing can be chosen: where all is protected, or no pair is known.

use lowwater_lru_core::{Memcg, NodeId};

use crate::budget::SEEKS_DEFAULT;
use crate::control::{Reclaim, ShrinkControl};
use crate::pass::{shelter, Layer, Protect};
use crate::registry::{budget, CallGuard, RegistryCore};
use crate::shrink::{ScanAmount, ShrinkSlab};
use crate::shrinker::Count;
use crate::utility::{log2, Candidates, Pairs, Standing, CANDIDATES_MAX, ONE};
use crate::work::{Progress, Work};

/// Objects of one batch: of one pair; then it is chosen again.
const BATCH_MAX: u64 = 8;
/// .. and no more than this part of what the pair holds, or a small one would lose all at once.
const BATCH_PARTS: u64 = 64;
/// Objects that are looked at in one pair until one is freed: the first may only lose a second chance.
const LOOKS_MAX: u64 = 256;
/// Pairs that could not give anything, after which one call goes no further.
const FAILED_MAX: usize = 8;
/// Batches in a row in each of which the usage of the victim's group has not fallen: then it frees nothing
/// of what it says, unless it counts fewer objects. One batch proves nothing, as charges may come as fast.
const VAIN_MAX: u32 = 64;
/// After fewer it is no longer believed for the clock.
const VAIN_FEW: u32 = 8;

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

/// What came of a scan.
struct Scanned {
    progress: Progress,
    outcome: Outcome,
}

/// Whether a pair gave something, as far as can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Gave,
    /// All that was looked at was used, and is kept.
    Kept,
    Nothing,
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

/// A pair that was chosen.
struct Victim {
    slot: u32,
    id: u32,
    memcg: Memcg,
}

impl LeastUseful<'_> {
    /// Frees batches until `work` is used up, or nothing more can be chosen. Ends also where shrinkers say
    /// that they free something, and do not.
    pub(crate) fn run(&self, work: &mut Work<'_>) -> Progress {
        let mut total = Progress::default();
        let Some(pairs) = self.core.map.by_utility() else { return total };
        work.forget_now();
        // Those of which nothing can go just now.
        let (mut failed, mut failures) = ([NO_SLOT; FAILED_MAX], 0);
        while failures < FAILED_MAX && work.bound().is_none() {
            let Some((mut round, mut victim)) = self.choose(pairs, &failed) else { break };
            let mut freed = 0;
            loop {
                let Scanned { progress, outcome } = self.scan(pairs, &victim, work);
                total += progress;
                freed += progress.freed;
                if outcome != Outcome::Gave {
                    failed[failures] = victim.slot;
                    failures += 1;
                }
                if outcome == Outcome::Nothing {
                    // It is asked again in the next epoch, or when there is nobody else.
                    let empty = Standing::Empty(pairs.clock.epoch() as u16);
                    pairs.pair(victim.slot).into_iter().for_each(|pair| pair.set_standing(empty));
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

    /// The candidate of the least score that is not protected. Where none is known that holds something,
    /// all are counted again.
    fn choose(&self, pairs: &Pairs, failed: &[u32]) -> Option<(Round, Victim)> {
        // The background has the time; and of those below a group only few may be among them.
        let many = self.flags.contains(Reclaim::BACKGROUND) || *self.limit != self.core.root;
        let mut candidates = pairs.candidates(self.needy, many);
        candidates.remove(failed);
        for again in [false, true] {
            let mut round = self.round(pairs, candidates, again);
            if let Some(victim) = self.next_victim(pairs, &mut round) {
                pairs.note_victim(victim.slot);
                return Some((round, victim));
            }
        }
        None
    }

    /// The ranks of these candidates; with `again`, those that seemed empty are counted first.
    fn round(&self, pairs: &Pairs, candidates: Candidates, again: bool) -> Round {
        let (epoch, budget) = (pairs.clock.epoch(), budget(&self.core.root));
        let mut ranks = [i32::MAX; CANDIDATES_MAX];
        // The foreground counts one pair at most, unless it finds nothing; the background all.
        let mut may_count = true;
        for (rank, slot) in ranks.iter_mut().zip(candidates.as_slice()) {
            let Some(pair) = pairs.pair(*slot).filter(|pair| pair.who().is_some()) else { continue };
            let standing = pair.standing();
            let is_due = match again {
                true => !matches!(standing, Standing::Scored(_)),
                false => standing.is_due(epoch),
            };
            if is_due && may_count {
                self.count(pairs, *slot, budget);
                may_count = again || self.flags.contains(Reclaim::BACKGROUND);
            } else if self.needy == Some(*slot) {
                self.score(pairs, *slot, None, budget);
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

    /// Counts the objects of a pair, and computes its score.
    fn count(&self, pairs: &Pairs, slot: u32, budget: u64) {
        let Some((id, memcg)) = pairs.pair(slot).and_then(|pair| pair.who()) else { return };
        let Some(memcg) = self.core.map.memcg(memcg) else { return };
        let Some(mut guard) = self.core.lookup(id) else { return };
        let epoch = pairs.clock.epoch();
        let (held, bytes) = self.held(&mut guard, &memcg).unwrap_or_default();
        let Some(tallies) = pairs.make_tallies(slot) else { return };
        tallies.counted(held, bytes, epoch);
        match held {
            0 => pairs.pair(slot).into_iter().for_each(|pair| pair.set_standing(Standing::Empty(epoch as u16))),
            _ => self.score_as(pairs, slot, &guard, Some(epoch), budget),
        }
    }

    /// The objects of a pair on all nodes, and their bytes: as the shrinker weighs them, or at most what
    /// the group uses. None if a callback panicked.
    fn held(&self, guard: &mut CallGuard, memcg: &Memcg) -> Option<(u64, u64)> {
        let (mut held, mut bytes) = (0_u64, Some(0_u64));
        let nodes = if guard.options.numa_aware { self.core.map.nodes() } else { 1 };
        for node in 0..nodes {
            let sc = ShrinkControl::count(memcg, NodeId::new(node as u16), self.flags);
            let Ok((count, weight)) = guard.count(&sc).and_then(|count| Ok((count, guard.weigh(&sc)?))) else {
                self.core.panicked(guard);
                return None;
            };
            held = held.saturating_add(count.objects());
            bytes = bytes.zip(weight).map(|(sum, weight)| sum.saturating_add(weight.get()));
        }
        Some((held, bytes.unwrap_or_else(|| memcg.usage().get())))
    }

    fn score(&self, pairs: &Pairs, slot: u32, counted: Option<u32>, budget: u64) {
        let Some((id, _)) = pairs.pair(slot).and_then(|pair| pair.who()) else { return };
        if let Some(guard) = self.core.lookup(id) {
            self.score_as(pairs, slot, &guard, counted, budget);
        }
    }

    fn score_as(&self, pairs: &Pairs, slot: u32, guard: &CallGuard, counted: Option<u32>, budget: u64) {
        let cost = log2(u64::from(guard.options.seeks).max(1)) - log2(u64::from(SEEKS_DEFAULT));
        debug_assert!(cost.abs() <= 32 * ONE);
        pairs.score(slot, guard.options.reports_misses, cost, counted, budget);
    }

    /// Scans a batch of the victim's objects, and goes on while all that were looked at were kept.
    fn scan(&self, pairs: &Pairs, victim: &Victim, work: &mut Work<'_>) -> Scanned {
        let mut progress = Progress::default();
        let Some(tallies) = pairs.make_tallies(victim.slot) else {
            return Scanned { progress, outcome: Outcome::Nothing };
        };
        let cost = self.core.lookup(victim.id).map_or(0, |guard| guard.cost());
        let before = used(&victim.memcg);
        while progress.freed == 0 && progress.scanned < LOOKS_MAX {
            let (node, held) = self.node_of(pairs, victim).unwrap_or((NodeId::ZERO, tallies.objects()));
            let nr = (held / BATCH_PARTS).clamp(1, BATCH_MAX);
            let (amount, core, memcg, flags) = (ScanAmount::Batch(nr), self.core, &victim.memcg, self.flags);
            let request = ShrinkSlab { core, memcg, node, flags, amount, clears_bits: true, has_deferred: false };
            let looked = request.shrinker(victim.id, work);
            progress += looked;
            if looked.scanned == 0 {
                break;
            }
        }
        let vain = tallies.note_fall(used(&victim.memcg) < before);
        // A shrinker may say what it likes.
        let freed = progress.freed.min(tallies.objects()).min(LOOKS_MAX);
        let kept = progress.scanned.saturating_sub(progress.freed).min(LOOKS_MAX);
        tallies.scanned(freed, kept, cost, pairs.clock.epoch());
        let budget = budget(&self.core.root);
        if vain < VAIN_FEW {
            pairs.clock.advance(freed.saturating_mul(tallies.mean()).min(budget), budget);
        }
        if tallies.is_stale() {
            self.count(pairs, victim.slot, budget);
        } else if progress.scanned > 0 {
            self.score(pairs, victim.slot, None, budget);
        }
        let outcome = match progress {
            _ if vain % VAIN_MAX == VAIN_MAX - 1 && !self.is_less(pairs, victim.slot, budget) => Outcome::Nothing,
            Progress { freed: 0, scanned: 0, .. } => Outcome::Nothing,
            Progress { freed: 0, .. } => Outcome::Kept,
            _ => Outcome::Gave,
        };
        Scanned { progress, outcome }
    }

    /// Counts a pair again: whether it holds less than when it was last counted.
    fn is_less(&self, pairs: &Pairs, slot: u32, budget: u64) -> bool {
        let held = |pairs: &Pairs| pairs.tallies(slot).map_or(0, |tallies| tallies.objects());
        let before = held(pairs);
        self.count(pairs, slot, budget);
        held(pairs) < before
    }

    /// A node on which the victim holds something, at random in proportion to its objects there, and their
    /// number. The last object of a node stays while there are others: it may have come just now. None
    /// where there is one node only.
    fn node_of(&self, pairs: &Pairs, victim: &Victim) -> Option<(NodeId, u64)> {
        let nodes = self.core.map.nodes();
        if nodes == 1 {
            return None;
        }
        let guard = self.core.lookup(victim.id).filter(|guard| guard.options.numa_aware)?;
        let count = |node: NodeId| {
            let sc = ShrinkControl::count(&victim.memcg, node, self.flags);
            guard.count(&sc).map_or(0, Count::objects)
        };
        let nodes = || (0..nodes).map(|node| NodeId::new(node as u16));
        let all = nodes().fold(0, |sum: u64, node| sum.saturating_add(count(node).saturating_sub(1)));
        if all == 0 {
            return nodes().map(|node| (node, count(node))).find(|(_, held)| *held > 0);
        }
        let mut before = pairs.random(all);
        for node in nodes() {
            let held = count(node);
            match before.checked_sub(held.saturating_sub(1)) {
                Some(left) => before = left,
                None => return Some((node, held)),
            }
        }
        None
    }
}

/// What a group uses, without what this processor has in stock: there, what is given back may stay.
fn used(memcg: &Memcg) -> u64 {
    memcg.usage().saturating_sub(memcg.in_stock()).get()
}
