//! Counts of pairs, and computation of their scores.
//!
//! A pair is a group and a shrinker, and has a slot in [`Pairs`]. Its score is the usefulness of
//! its bytes, from its counted objects and its misses; [`least_useful`](super) selects victims of
//! low scores. A count calls the shrinker, which may take long, so no lock is held. A change must
//! ensure that after a callback the slot is checked to hold the same pair: the pair may be gone by
//! then.

use core::cell::Cell;

use lowwater_lru_core::{Memcg, NodeId};

use crate::budget::SEEKS_DEFAULT;
use crate::control::{Reclaim, ShrinkControl};
use crate::registry::{budget, CallGuard, RegistryCore, ShrinkerOptions};
use crate::utility::{log2, Pair, PairState, Pairs, ONE};

/// Counts pairs and computes their scores, for one call of reclaim.
pub(super) struct Scorer<'a> {
    pub(super) core: &'a RegistryCore,
    pub(super) pairs: &'a Pairs,
    /// The actions that the reclaiming thread allows a callback.
    pub(super) flags: Reclaim,
    has_counted: Cell<bool>,
}

impl<'a> Scorer<'a> {
    pub(super) fn new(core: &'a RegistryCore, pairs: &'a Pairs, flags: Reclaim) -> Self {
        Self { core, pairs, flags, has_counted: Cell::new(false) }
    }

    /// Returns whether pairs were counted since the last call.
    pub(super) fn take_has_counted(&self) -> bool {
        self.has_counted.take()
    }

    /// Returns the budget of the whole registry.
    pub(super) fn budget(&self) -> u64 {
        budget(&self.core.root)
    }

    /// Returns true if the pair in `slot` has a score, and no hits are known of it.
    pub(super) fn has_no_hits(&self, slot: u32) -> bool {
        match self.pairs.pair(slot).map(Pair::state) {
            Some(PairState::Scored(score)) => score.is_none(self.pairs.clock.epoch(), self.budget()),
            _ => false,
        }
    }

    /// Counts the objects of the pair in `slot`, and computes its score. Marks the pair empty if
    /// its group is gone or its shrinker cannot be called.
    pub(super) fn count(&self, slot: u32) {
        let Some((id, group)) = self.pairs.pair(slot).and_then(Pair::ids) else { return };
        // The pair is of all nodes of a shrinker, and node 0 stands for those of any shrinker.
        let guard = |memcg: &Memcg| self.core.lookup_for(id, memcg, NodeId::ZERO);
        match self.core.map.memcg(group).and_then(|memcg| guard(&memcg).map(|guard| (memcg, guard))) {
            Some((memcg, mut guard)) => self.count_inside(slot, &memcg, &mut guard),
            None if self.pairs.holds(slot, id, group) => self.pairs.set_empty(slot),
            None => {}
        }
    }

    /// As [`count`](Self::count), for a thread that has the shrinker's `guard`. Does nothing if the
    /// shrinker was closed since the guard was taken.
    pub(super) fn count_inside(&self, slot: u32, memcg: &Memcg, guard: &mut CallGuard) {
        if guard.is_closed() {
            return;
        }
        self.has_counted.set(true);
        let (held, weight) = self.held(guard, memcg).unwrap_or_default();
        // Read after the callbacks, which may take long.
        let epoch = self.pairs.clock.epoch();
        if !self.pairs.holds(slot, guard.key.id, memcg.id()) {
            // The pair is gone, and the slot may belong to another pair.
            return;
        }
        let Some(pair) = self.pairs.pair(slot) else { return };
        match self.pairs.make_tallies(slot) {
            // Without memory the pair waits for the next epoch, so that the foreground, which
            // counts the pair that was counted longest ago, counts other pairs too.
            None => pair.set_state(PairState::Empty(epoch as u16)),
            Some(tallies) => {
                tallies.counted(held, weight, memcg.usage().get(), epoch);
                tallies.set_kib_left(self.pairs.clock.kib_left());
                match held {
                    // Not `set_empty`: evictions make the pair due again, as it may fill.
                    0 => pair.set_state(PairState::Empty(epoch as u16)),
                    _ => self.score_as(slot, &guard.options, Some(epoch)),
                }
            }
        }
    }

    /// Returns the objects of a pair on all nodes, and their bytes if the shrinker knows them.
    /// `None` if a callback panicked.
    fn held(&self, guard: &mut CallGuard, memcg: &Memcg) -> Option<(u64, Option<u64>)> {
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
        Some((held, bytes))
    }

    /// Computes the score of a pair from its last count; `options` are those of its shrinker.
    pub(super) fn score(&self, slot: u32, options: &ShrinkerOptions) {
        self.score_as(slot, options, None);
    }

    /// Computes the score; `counted` is the epoch of the pair's count, if it was counted just now.
    fn score_as(&self, slot: u32, options: &ShrinkerOptions, counted: Option<u32>) {
        // The misses that a shrinker reports have a cost already.
        let cost = if options.reports_misses { 0 } else { cost_of(options.seeks) };
        self.pairs.score(slot, options.reports_misses, cost, counted, self.budget());
    }
}

/// Returns the logarithm of the cost of an object with this `seeks`.
fn cost_of(seeks: u32) -> i32 {
    let cost = log2(u64::from(seeks).max(1)) - log2(u64::from(SEEKS_DEFAULT));
    debug_assert!(cost.abs() <= 32 * ONE);
    cost
}
