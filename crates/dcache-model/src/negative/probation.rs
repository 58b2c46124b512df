//! The default policy of negatives: a segmented LRU with a probationary and a protected segment,
//! bounded per memcg and node, and per directory.
//!
//! A negative is cached because its name may be looked up again. Most never are. So a new negative
//! joins a short probation list. At the end of that list it is promoted if it was looked up again
//! meanwhile, else it is killed, and its name enters the [ghost table](crate::ghost). A name found
//! there counts as looked up again, so the probation list can be short.
//!
//! Promoted negatives join the protected list, which is longer. There each trim raises the usage
//! count of those that were used and lowers that of the others (GCLOCK): names that are looked up
//! in a loop, such as the headers that every source includes, outlast those that were looked up
//! twice in a row, also when the loop is longer than the list.
//!
//! Both lists together hold at most a share of the positives of the same memcg, with a floor: a
//! memcg that caches many files may also cache many absences, and a flood without positives stays
//! at the floor. While the protected list is short, the probation list may be longer. The number of
//! hash buckets does not enter: a small machine loses no useful negatives, a big one lets no flood
//! grow.
//!
//! At the bound, the directory of the new name loses negatives first, from those on probation
//! beyond its share: a small part, or as many as it has protected ones. So a directory with names
//! that are looked up again gets a larger share, and a flood in another directory takes none of it.
//!
//! When the bound falls at once, because the positives went, each new negative trims up to 32
//! others, so an excess of `n` is gone after `n / 31` new negatives. A memcg that ends leaves its
//! negatives to its parent: a new negative also trims up to 32 of an ancestor. No lookup scans more
//! than some 1,500 (the sums of the bounds in `trim.rs`, `end_probation` and `trim_protected`).
//!
//! A client that looks up each name twice fills the protected list of its own memcg, and evicts the
//! negatives of that memcg. Other memcgs, and its own positives, are not affected.
//!
//! A change must ensure that a flood without positives stays at the floor, and that no positive is
//! killed.

use super::policy::{BoundInputs, NegativePolicy};
use super::trim::{trim_batch, NewNegative};

/// The policy of this module: the floors and shares of both lists.
#[doc(alias = "SLRU")]
#[doc(alias = "segmented LRU")]
#[derive(Clone, Copy, Debug)]
pub struct Probation {
    /// Negatives on probation that each memcg may have on each node, of each mount, whatever its
    /// positives.
    pub probation_floor: u64,
    /// Protected negatives that each memcg may have on each node, of each mount, whatever its
    /// positives.
    pub protected_floor: u64,
    /// Unused positives for each negative on probation, if that allows more than the floor does.
    pub positives_per_probation: u64,
    /// Unused positives for each protected negative, if that allows more than the floor does.
    pub positives_per_protected: u64,
    /// The divisor of a directory's share: a directory without protected negatives may have this
    /// part of the memcg's probation list (a quarter, when this is 4) before it is trimmed first.
    pub probation_per_directory: u64,
}

impl Default for Probation {
    fn default() -> Self {
        Self {
            probation_floor: 8,
            protected_floor: 144,
            positives_per_probation: 512,
            positives_per_protected: 32,
            probation_per_directory: 4,
        }
    }
}

impl Probation {
    /// Returns the bounds of the probation list and the protected list for this number of unused
    /// positives.
    fn shares(&self, positives: u64) -> (u64, u64) {
        let share = |floor: u64, per: u64| floor.max(positives / per.max(1));
        (
            share(self.probation_floor, self.positives_per_probation),
            share(self.protected_floor, self.positives_per_protected),
        )
    }
}

impl NegativePolicy for Probation {
    fn name(&self) -> &'static str {
        "default"
    }

    fn has_own_lists(&self) -> bool {
        true
    }

    fn negative_added(&self, negative: &NewNegative<'_>) {
        let (probation, protected) = self.shares(negative.positives());
        negative.take_ghost_by(|positives| {
            let (probation, protected) = self.shares(positives);
            probation.saturating_add(protected)
        });
        negative.trim_group(probation, protected, (probation / self.probation_per_directory.max(1)).max(1));
        negative.trim_ancestor(|positives| self.shares(positives));
    }

    /// Returns true while fewer negatives than the floor are on probation. The removal of a name
    /// does not predict lookups of it, so no other negative is trimmed for it.
    fn can_keep_removed(&self, removed: &NewNegative<'_>) -> bool {
        removed.on_probation() < self.probation_floor
    }

    fn bound(&self, inputs: BoundInputs) -> Option<u64> {
        let (probation, protected) = self.shares(inputs.positives);
        Some(probation.saturating_add(trim_batch(probation)).saturating_add(protected))
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
        let inputs = BoundInputs { buckets: 1 << 24, positives: 0, directories: 1 };
        assert_eq!(policy.bound(inputs), Some(8 + 8 + 144), "buckets do not enter");
    }
}
