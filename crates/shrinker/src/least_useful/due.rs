//! Which pairs are due for a count: those without a score, and those whose score is old.
//!
//! A change must ensure that a pair is due again after a bounded number of evicted bytes: a pair
//! that is never counted keeps its old score, and so its memory.

use lowwater_lru_core::Memcg;

use crate::utility::{Pair, PairState, Pairs};

/// Below a group's limit a pair is due for a count after evictions anywhere of as many bytes as
/// this fraction, a divisor, of the group's usage. An epoch is the same fraction of the budget, so
/// it may be many times what the group can use.
const COUNT_PARTS: u64 = 16;
/// In a small group this many KiB must be evicted, or a quarter of the usage if that is less, so
/// that a small group beside one that evicts much is not counted at each insert.
const COUNT_KIB_MIN: u64 = 64;

/// Tells for one selection which pairs are due for a count.
pub(super) struct Due<'a> {
    pairs: &'a Pairs,
    epoch: u32,
    /// The selection found nothing before: each pair without a score is due.
    again: bool,
    /// Below a group's limit: a pair is due, too, if more KiB were evicted since its last count.
    kib_max: Option<u64>,
}

impl<'a> Due<'a> {
    /// `group`: the group at whose limit the selection is, unless it is the root.
    pub(super) fn new(pairs: &'a Pairs, epoch: u32, again: bool, group: Option<&Memcg>) -> Self {
        let kib_max = group.map(|group| {
            let usage = group.usage().get() >> 10;
            (usage / COUNT_PARTS).max(COUNT_KIB_MIN.min(usage / 4))
        });
        Self { pairs, epoch, again, kib_max }
    }

    /// Returns the pair of a slot; none if the slot is free.
    pub(super) fn in_use(&self, slot: u32) -> Option<&'a Pair> {
        self.pairs.pair(slot).filter(|pair| pair.ids().is_some())
    }

    /// Returns true if the pair of this slot is due.
    pub(super) fn is_due(&self, pair: &Pair, slot: u32) -> bool {
        let is_due = match self.again {
            true => !matches!(pair.state(), PairState::Scored(_)),
            false => pair.state().is_due(self.epoch),
        };
        is_due || self.kib_max.is_some_and(|max| u64::from(self.pairs.evicted_since_count(slot)) > max)
    }

    /// Returns the slot of the pair that was counted longest ago: by epochs, and below a group's
    /// limit, where these are long, by evicted bytes.
    pub(super) fn oldest(&self, slots: &[u32]) -> Option<u32> {
        let evicted = |slot| self.kib_max.map_or(0, |_| self.pairs.evicted_since_count(slot));
        let age = |slot: u32| self.in_use(slot).map(|pair| (pair.state().age(self.epoch), evicted(slot)));
        slots.iter().copied().max_by_key(|slot| age(*slot))
    }
}
