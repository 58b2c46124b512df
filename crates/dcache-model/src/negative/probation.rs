//! The default: on probation until asked for again; a share of the group, a share of the directory.
//!
//! A name that does not exist is cached because it may be asked for again. Most never are. So a new negative joins a queue that is
//! short; when it comes to the queue's end, it is kept if it was asked for meanwhile, else it goes. Who goes is
//! [remembered](super::departed) for a while, and is taken for one that was asked for again when it comes back: so the queue can be short.
//!
//! The kept have a queue of their own, longer, where each walk gives merit to who was used and takes it from who was not: names that
//! come round again and again (the headers that every source includes) outlast those that were asked for twice in a row and never
//! since, also when a round is longer than the queue.
//!
//! Together they have the room of a share of what the same group holds in positives, with a floor: a group that caches much
//! may also cache many absences, and a flood (positives: none) stays at the floor. While the kept are few, probation is longer.
//! Hash buckets do not enter: a small machine's few buckets cost it no useful negatives (Viro's question), a big machine's many do not
//! let a flood grow.
//!
//! When there is no capacity, the directory of the new name pays first, from what it has on probation beyond its share: a small one, or as
//! many as were kept of it. So a directory that earns its room gets it, and a flood in one that does not costs no other.
//!
//! When the room shrinks at once, because the positives went, no lookup pays for all of it: each
//! new negative takes up to 32 others with it, so an excess of `n` is gone after `n / 31` of them,
//! and no lookup looks at more than some 900.
//!
//! A deceiver who asks for each name twice fills the kept queue of its own group, and pushes out that group's negatives. Other
//! groups, and its own positives, do not notice.

use super::policy::{NegativePolicy, Situation};
use super::trim::{trim_batch, Settled};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Probation {
    /// Negatives on probation that every group may have on each node.
    pub probation_floor: u64,
    /// Kept negatives that every group may have on each node.
    pub kept_floor: u64,
    /// Beyond the floors: one on probation for so many unused positives.
    pub positives_per_probation: u64,
    /// Beyond the floors: one kept for so many unused positives.
    pub positives_per_kept: u64,
    /// A directory of which nothing was kept may have this part of what its group may have on probation, before it pays for new ones
    /// first: a quarter, when this is 4.
    pub probation_per_directory: u64,
}

impl Default for Probation {
    fn default() -> Self {
        Self {
            probation_floor: 8,
            kept_floor: 144,
            positives_per_probation: 512,
            positives_per_kept: 32,
            probation_per_directory: 4,
        }
    }
}

impl Probation {
    /// How many may be on probation, and how many kept, beside so many positives.
    fn shares(&self, positives: u64) -> (u64, u64) {
        let share = |floor: u64, per: u64| floor.max(positives / per.max(1));
        (share(self.probation_floor, self.positives_per_probation), share(self.kept_floor, self.positives_per_kept))
    }
}

impl NegativePolicy for Probation {
    fn name(&self) -> &'static str {
        "default"
    }

    fn apart(&self) -> bool {
        true
    }

    fn settled(&self, negative: &Settled<'_>) {
        let (probation, kept) = self.shares(negative.positives());
        negative.recall(probation.saturating_add(kept));
        negative.trim_group(probation, kept, (probation / self.probation_per_directory.max(1)).max(1));
    }

    /// While there are fewer than the floor on probation. That a name was removed says nothing about who will ask for it, so no other goes for it; and
    /// to forget it at once costs less than to let it through the queue.
    fn keeps_removed(&self, removed: &Settled<'_>) -> bool {
        removed.on_probation() < self.probation_floor
    }

    fn bound(&self, situation: Situation) -> Option<u64> {
        let (probation, kept) = self.shares(situation.positives);
        Some(probation.saturating_add(trim_batch(probation)).saturating_add(kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_grow_with_positives_from_a_floor() {
        let policy = Probation::default();
        assert_eq!(policy.shares(0), (8, 144));
        assert_eq!(policy.shares(512_000), (1000, 16_000));
        let situation = Situation { buckets: 1 << 24, positives: 0, directories: 1 };
        assert_eq!(policy.bound(situation), Some(8 + 8 + 144), "buckets do not enter");
    }
}
