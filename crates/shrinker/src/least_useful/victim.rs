//! The victim: the selected pair of a shrinker and a group, and the scan of a batch of its objects.
//!
//! Batches are small, so that an insert that evicts waits for a few objects only and the next
//! victim may be another pair. After a scan the pair's tallies (`utility/tallies.rs`) and score are
//! updated, and the utility clock, which counts freed bytes, advances.
//!
//! A shrinker may report a wrong number of freed objects, so each scan measures the fall in the
//! group's usage. After too many scans in a row without a fall, also of scans that free nothing, a
//! pair that does not count fewer objects is taken as empty until the next epoch, or until no other
//! pair can be selected.
//!
//! A scan may free many more objects than a batch has, such as all pages of a large entry. The
//! shrinker then counts again, and objects beyond [`SCAN_MAX`] are credited only as far as it
//! counts fewer than before the scan. So a false report gains no more than two false counts would.
//!
//! A change must ensure that one scan takes a bounded time whatever the callbacks return.
//! `BATCH_MAX` and `BATCH_PARTS` are also constants of the oracle, which has no background
//! (`tests/one_budget/oracle.rs` of the package `lowwater`).

use lowwater_lru_core::{Memcg, NodeId};

use super::scorer::Scorer;
use crate::control::{Reclaim, ShrinkControl};
use crate::protect::Unprotected;
use crate::registry::CallGuard;
use crate::shrink::{ScanAmount, ShrinkSlab, VisitOutcome};
use crate::work::{Progress, Work};

/// The maximum number of objects of one batch from one pair; the next victim is then selected.
const BATCH_MAX: u64 = 8;
/// The same in the background, where no insert waits for the end of the batch. The selection of a
/// victim and the visit of its shrinker cost as much as the eviction of some six entries.
const BATCH_MAX_OF_BACKGROUND: u64 = 32;
/// A batch is also no more than the group can lose before its `low` or `min` protects it, by the
/// mean size of freed objects; and at most this fraction of the pair's objects, as a divisor, so
/// that a small pair does not lose all of them at once; but at least one object.
const BATCH_PARTS: u64 = 64;
/// The divisor if there are more than `ALL_MAX` pairs. Then a pair is rarely selected, and a scan
/// costs several times what the eviction of one more object does.
const BATCH_PARTS_OF_MANY: u64 = 16;
/// The divisor for a pair of which no hits are known, if there are more than `ALL_MAX` pairs. One
/// that scans is selected again and again: few objects each time would cost a selection for nearly
/// each of its inserts. (No hits are known of an idle pair either, nor of one that has lost
/// nothing; both are mostly selected only if none that scans is a candidate.)
const BATCH_PARTS_OF_NO_HITS: u64 = 4;
/// Such a batch has at most this fraction of the registry's budget, as a divisor, or one object.
const BYTES_PARTS_OF_NO_HITS: u64 = 64;
/// The number of objects of one pair after which a scan ends though none was freed. More than a
/// batch, because the first objects may only lose a second chance. Also the number of freed objects
/// that are credited without a count.
const SCAN_MAX: u64 = 256;
/// At each multiple of this, less 1, of scans in a row without a fall in the usage of the victim's
/// group, the shrinker is taken to free none of the objects that it reports, unless it counts fewer
/// objects. A single scan proves nothing, because charges may come as fast.
const NO_FALL_MAX: u16 = 64;
/// After this many such scans, the bytes that the shrinker reports no longer advance the clock.
const NO_FALL_FEW: u16 = 8;

/// A pair that was selected.
pub(super) struct Victim {
    /// The pair's slot in the table of pairs.
    pub(super) slot: u32,
    /// The shrinker's id.
    pub(super) id: u32,
    pub(super) memcg: Memcg,
    /// The bytes that can be freed before `low` or `min` protects the group.
    pub(super) spare: u64,
}

/// The result of a scan.
pub(super) struct Scanned {
    pub(super) progress: Progress,
    pub(super) outcome: Outcome,
}

/// The calls of one scan.
#[derive(Default)]
struct Scans {
    progress: Progress,
    /// True if the last call was postponed: see [`VisitOutcome`].
    postponed: bool,
    /// The number of freed objects: see [`Victim::credited`].
    credited: u64,
    /// The bytes of the freed objects, if the shrinker reported them.
    freed_bytes: Option<u64>,
}

/// The result of a scan for the next selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Objects were freed.
    Freed,
    /// All scanned objects had been used and were kept; or nothing can be scanned at the moment.
    Kept,
    /// The pair is gone, and its slot may belong to another pair.
    Gone,
    /// No object can be freed, or the reports of the shrinker are not credible.
    Nothing,
}

impl Victim {
    /// Scans a batch of the pair's objects, of few pairs or `of_many`, and continues while all
    /// scanned objects are kept, up to [`SCAN_MAX`].
    pub(super) fn scan(&self, scorer: &Scorer<'_>, of_many: bool, work: &mut Work<'_>) -> Scanned {
        let pairs = scorer.pairs;
        let nothing = Scanned { progress: Progress::default(), outcome: Outcome::Nothing };
        let Some(tallies) = pairs.make_tallies(self.slot) else { return nothing };
        let Some(mut guard) = scorer.core.lookup_for(self.id, &self.memcg, NodeId::ZERO) else { return nothing };
        let (held, mean, before) = (tallies.objects(), tallies.freed_mean(), used(&self.memcg));
        let (max, mut free_max) = (batch_max(scorer.flags), self.spare / mean);
        let parts = match of_many {
            false => BATCH_PARTS,
            true if scorer.has_no_hits(self.slot) => {
                free_max = free_max.min(scorer.budget() / BYTES_PARTS_OF_NO_HITS / mean);
                BATCH_PARTS_OF_NO_HITS
            }
            true => BATCH_PARTS_OF_MANY,
        };
        let amount = ScanAmount::Batch { parts, max, free_max: free_max.max(1) };
        let Scans { progress, postponed, credited, freed_bytes } =
            self.scan_until_freed(scorer, &mut guard, amount, work);
        if progress.busy > 0 && progress.scanned == 0 {
            // Nothing was learned of the pair: another thread scans it.
            return Scanned { progress, outcome: Outcome::Kept };
        }
        let (fall, budget) = (before.saturating_sub(used(&self.memcg)), scorer.budget());
        let freed = credited.min(held);
        if !pairs.holds(self.slot, self.id, self.memcg.id()) {
            // The pair holds nothing any more.
            pairs.clock.advance(freed.saturating_mul(mean).min(fall).min(budget), budget);
            let outcome = if freed > 0 { Outcome::Freed } else { Outcome::Gone };
            return Scanned { progress, outcome };
        }
        // Clamped, as a shrinker may report anything.
        let kept = progress.scanned.saturating_sub(progress.freed).min(SCAN_MAX);
        // Of all freed objects, also those that are not credited.
        let part = |bytes: u64| u128::from(bytes) * u128::from(freed) / u128::from(progress.freed.max(1));
        let bytes = tallies.note_freed(freed, freed_bytes.map(|bytes| part(bytes) as u64), fall);
        tallies.scanned(freed, kept, guard.cost(), pairs.clock.epoch());
        if tallies.scans_without_fall() < NO_FALL_FEW {
            pairs.clock.advance(bytes.min(budget), budget);
        }
        let is_suspect = tallies.scans_without_fall() % NO_FALL_MAX == NO_FALL_MAX - 1;
        if tallies.is_stale() || is_suspect {
            scorer.count_inside(self.slot, &self.memcg, &mut guard);
        } else if progress.scanned > 0 {
            scorer.score(self.slot, &guard.options);
        }
        let is_less = tallies.objects() < held;
        if is_less {
            tallies.reset_scans_without_fall();
        }
        let outcome = match progress {
            _ if is_suspect && !is_less => Outcome::Nothing,
            Progress { scanned: 0, .. } if postponed => Outcome::Kept,
            Progress { freed: 0, scanned: 0, .. } => Outcome::Nothing,
            Progress { freed: 0, .. } => Outcome::Kept,
            _ => Outcome::Freed,
        };
        Scanned { progress, outcome }
    }

    /// Calls the shrinker for this amount of objects until it frees something.
    fn scan_until_freed(
        &self,
        scorer: &Scorer<'_>,
        guard: &mut CallGuard,
        amount: ScanAmount,
        work: &mut Work<'_>,
    ) -> Scans {
        let mut scans = Scans::default();
        while scans.progress.freed == 0 && scans.progress.scanned < SCAN_MAX {
            if scans.progress.scanned > 0 && guard.is_closed() {
                // A thread may be waiting for the end of the callbacks.
                break;
            }
            let node = self.node(scorer, guard).unwrap_or(NodeId::ZERO);
            if guard.is_quarantined() {
                // A count panicked.
                break;
            }
            let (core, memcg, flags) = (scorer.core, &self.memcg, scorer.flags);
            // The batch is within what is unprotected.
            let unprotected = Unprotected::ALL;
            let request =
                ShrinkSlab { core, memcg, node, flags, amount, unprotected, clears_bits: true, has_deferred: false };
            let visited = request.do_shrink_slab(guard, work);
            scans.progress += visited.progress;
            scans.credited = self.credited(scorer, guard, node, &visited);
            scans.freed_bytes = visited.freed_bytes;
            if visited.progress.scanned == 0 {
                scans.postponed = visited.postponed;
                break;
            }
        }
        scans
    }

    /// Returns the number of reported objects that are taken as freed: more than [`SCAN_MAX`] only
    /// as far as the shrinker counts fewer objects than before the scan.
    fn credited(&self, scorer: &Scorer<'_>, guard: &mut CallGuard, node: NodeId, visited: &VisitOutcome) -> u64 {
        let freed = visited.progress.freed;
        if freed <= SCAN_MAX || guard.is_closed() {
            return freed.min(SCAN_MAX);
        }
        match guard.count(&ShrinkControl::count(&self.memcg, node, scorer.flags)) {
            Ok(count) => freed.min(SCAN_MAX.max(visited.counted.saturating_sub(count.objects()))),
            Err(_panicked) => {
                scorer.core.panicked(guard);
                SCAN_MAX
            }
        }
    }

    /// Selects a node on which the pair holds objects, at random in proportion to the objects
    /// there. The last object of a node stays while other nodes have
    /// more: it may have been added just now. `None` if there is only one node, the shrinker is not
    /// NUMA-aware, a callback panicked, or objects were removed meanwhile.
    fn node(&self, scorer: &Scorer<'_>, guard: &mut CallGuard) -> Option<NodeId> {
        let nodes = scorer.core.map.nodes();
        if nodes == 1 || !guard.options.numa_aware {
            return None;
        }
        let mut count = |node: NodeId| match guard.count(&ShrinkControl::count(&self.memcg, node, scorer.flags)) {
            Ok(count) => Some(count.objects()),
            Err(_panicked) => {
                scorer.core.panicked(guard);
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
                None => return Some(node),
            }
        }
        None
    }
}

/// Returns the maximum number of objects of one batch.
pub(super) fn batch_max(flags: Reclaim) -> u64 {
    if flags.contains(Reclaim::BACKGROUND) {
        BATCH_MAX_OF_BACKGROUND
    } else {
        BATCH_MAX
    }
}

/// Returns the usage of a group without this processor's stock, where an uncharge may stay.
fn used(memcg: &Memcg) -> u64 {
    memcg.usage().saturating_sub(memcg.in_stock()).get()
}
