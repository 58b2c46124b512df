//! Counting pairs, and computing their scores.

use lowwater_lru_core::{Memcg, NodeId};

use crate::budget::SEEKS_DEFAULT;
use crate::control::{Reclaim, ShrinkControl};
use crate::registry::{budget, CallGuard, RegistryCore};
use crate::utility::{log2, Pairs, Standing, ONE};

/// Counts pairs and computes their scores, for one call of reclaim.
pub(super) struct Scorer<'a> {
    pub(super) core: &'a RegistryCore,
    pub(super) pairs: &'a Pairs,
    pub(super) flags: Reclaim,
}

impl Scorer<'_> {
    /// The budget of the whole registry.
    pub(super) fn budget(&self) -> u64 {
        budget(&self.core.root)
    }

    /// Counts the objects of a pair, and computes its score. One that cannot be called holds nothing that it
    /// would give.
    pub(super) fn count(&self, slot: u32) {
        let pairs = self.pairs;
        let Some((pair, (id, group))) = pairs.pair(slot).and_then(|pair| Some((pair, pair.who()?))) else { return };
        let memcg = self.core.map.memcg(group);
        let called = memcg.as_ref().and_then(|memcg| {
            let mut guard = self.core.lookup(id)?;
            let (held, weight) = self.held(&mut guard, memcg).unwrap_or_default();
            Some((guard, memcg, held, weight))
        });
        // After the callbacks, which may take long.
        let epoch = pairs.clock.epoch();
        if !pairs.holds(slot, id, group) {
            // The pair is gone, and the slot may be another's.
            return;
        }
        let empty = Standing::Empty(epoch as u16);
        let Some((guard, memcg, held, weight)) = called else { return pair.set_standing(empty) };
        let Some(tallies) = pairs.make_tallies(slot) else { return };
        tallies.counted(held, weight, memcg.usage().get(), epoch);
        match held {
            0 => pair.set_standing(empty),
            _ => self.score_as(slot, &guard, Some(epoch)),
        }
    }

    /// The objects of a pair on all nodes, and their bytes, if the shrinker knows them. None if a callback
    /// panicked.
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

    /// Computes the score of a pair as it was last counted.
    pub(super) fn score(&self, slot: u32) {
        let Some((id, _)) = self.pairs.pair(slot).and_then(|pair| pair.who()) else { return };
        if let Some(guard) = self.core.lookup(id) {
            self.score_as(slot, &guard, None);
        }
    }

    fn score_as(&self, slot: u32, guard: &CallGuard, counted: Option<u32>) {
        let cost = log2(u64::from(guard.options.seeks).max(1)) - log2(u64::from(SEEKS_DEFAULT));
        debug_assert!(cost.abs() <= 32 * ONE);
        self.pairs.score(slot, guard.options.reports_misses, cost, counted, self.budget());
    }
}
