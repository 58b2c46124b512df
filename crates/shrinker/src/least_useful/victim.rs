//! The pair that was chosen, and a batch of its objects.

use lowwater_lru_core::{Memcg, NodeId};

use super::scorer::Scorer;
use crate::control::ShrinkControl;
use crate::shrink::{Asked, ScanAmount, ShrinkSlab};
use crate::work::{Progress, Work};

/// Objects of one batch: of one pair; then it is chosen again.
pub(super) const BATCH_MAX: u64 = 8;
/// .. and no more than this part of what the pair holds, or a small one would lose all at once.
const BATCH_PARTS: u64 = 64;
/// Objects that are looked at in one pair until one is freed: the first may only lose a second chance.
const SCAN_MAX: u64 = 256;
/// Batches in a row in each of which the usage of the victim's group has not fallen: then it frees nothing
/// of what it says, unless it counts fewer objects. One batch proves nothing, as charges may come as fast.
const VAIN_MAX: u16 = 64;
/// After fewer it is no longer believed for the clock.
const VAIN_FEW: u16 = 8;

/// A pair that was chosen.
pub(super) struct Victim {
    pub(super) slot: u32,
    pub(super) id: u32,
    pub(super) memcg: Memcg,
}

/// What came of a scan.
pub(super) struct Scanned {
    pub(super) progress: Progress,
    pub(super) outcome: Outcome,
}

/// Whether a pair gave something, as far as can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Gave,
    /// All that was looked at was used, and is kept; or nothing is to be scanned just now.
    Kept,
    /// The pair is gone, and its slot may be another's.
    Gone,
    Nothing,
}

impl Victim {
    /// Scans a batch of its objects, and goes on while all that were looked at were kept.
    pub(super) fn scan(&self, scorer: &Scorer<'_>, work: &mut Work<'_>) -> Scanned {
        let pairs = scorer.pairs;
        let Some(tallies) = pairs.make_tallies(self.slot) else {
            return Scanned { progress: Progress::default(), outcome: Outcome::Nothing };
        };
        let (cost, before) = (scorer.core.lookup(self.id).map_or(0, |guard| guard.cost()), used(&self.memcg));
        let (held, mean) = (tallies.objects(), tallies.mean());
        let (progress, put_off) = self.look(scorer, held, work);
        let (fall, budget) = (before.saturating_sub(used(&self.memcg)), scorer.budget());
        // A shrinker may say what it likes.
        let freed = progress.freed.min(held).min(SCAN_MAX);
        if !pairs.holds(self.slot, self.id, self.memcg.id()) {
            // It holds nothing any more.
            pairs.clock.advance(freed.saturating_mul(mean).min(fall).min(budget), budget);
            let outcome = if freed > 0 { Outcome::Gave } else { Outcome::Gone };
            return Scanned { progress, outcome };
        }
        let kept = progress.scanned.saturating_sub(progress.freed).min(SCAN_MAX);
        let bytes = tallies.note_fall(freed, fall);
        tallies.scanned(freed, kept, cost, pairs.clock.epoch());
        if tallies.vain() < VAIN_FEW {
            pairs.clock.advance(bytes.min(budget), budget);
        }
        let is_suspect = tallies.vain() % VAIN_MAX == VAIN_MAX - 1;
        if tallies.is_stale() || is_suspect {
            scorer.count(self.slot);
        } else if progress.scanned > 0 {
            scorer.score(self.slot);
        }
        let is_less = tallies.objects() < held;
        if is_less {
            tallies.not_in_vain();
        }
        let outcome = match progress {
            _ if is_suspect && !is_less => Outcome::Nothing,
            Progress { scanned: 0, .. } if put_off => Outcome::Kept,
            Progress { freed: 0, scanned: 0, .. } => Outcome::Nothing,
            Progress { freed: 0, .. } => Outcome::Kept,
            _ => Outcome::Gave,
        };
        Scanned { progress, outcome }
    }

    /// Asks the shrinker, which was last counted to hold so many objects, until it frees something. Returns
    /// also whether it was put off: see [`Asked`].
    fn look(&self, scorer: &Scorer<'_>, held: u64, work: &mut Work<'_>) -> (Progress, bool) {
        let mut progress = Progress::default();
        while progress.freed == 0 && progress.scanned < SCAN_MAX {
            let (node, held) = self.node(scorer).unwrap_or((NodeId::ZERO, held));
            let amount = ScanAmount::Batch((held / BATCH_PARTS).clamp(1, BATCH_MAX));
            let (core, memcg, flags) = (scorer.core, &self.memcg, scorer.flags);
            let request = ShrinkSlab { core, memcg, node, flags, amount, clears_bits: true, has_deferred: false };
            let Asked { progress: looked, put_off } = request.shrinker(self.id, work);
            progress += looked;
            if looked.scanned == 0 {
                return (progress, put_off);
            }
        }
        (progress, false)
    }

    /// A node on which the pair holds something, at random in proportion to its objects there, and their
    /// number. The last object of a node stays while there are others: it may have come just now. None
    /// where there is one node only, or a callback panicked.
    fn node(&self, scorer: &Scorer<'_>) -> Option<(NodeId, u64)> {
        let nodes = scorer.core.map.nodes();
        if nodes == 1 {
            return None;
        }
        let mut guard = scorer.core.lookup(self.id).filter(|guard| guard.options.numa_aware)?;
        let mut count = |node: NodeId| match guard.count(&ShrinkControl::count(&self.memcg, node, scorer.flags)) {
            Ok(count) => Some(count.objects()),
            Err(_panicked) => {
                scorer.core.panicked(&mut guard);
                None
            }
        };
        let nodes = || (0..nodes).map(|node| NodeId::new(node as u16));
        let mut all = 0_u64;
        for node in nodes() {
            all = all.saturating_add(count(node)?.saturating_sub(1));
        }
        let mut before = if all > 0 { scorer.pairs.random(all) } else { 0 };
        for node in nodes() {
            let held = count(node)?;
            let weight = if all > 0 { held.saturating_sub(1) } else { held };
            match before.checked_sub(weight) {
                Some(left) => before = left,
                None => return Some((node, held)),
            }
        }
        None
    }
}

/// The usage of a group without this processor's stock, where an uncharge may stay.
fn used(memcg: &Memcg) -> u64 {
    memcg.usage().saturating_sub(memcg.in_stock()).get()
}
