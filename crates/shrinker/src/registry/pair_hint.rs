//! The last known slot of a pair (a shrinker and a group) in the registry's table of pairs. A
//! caller of `MissReporter` keeps one for each group, so that a report takes no lock.
//!
//! The slot may belong to another pair by now. `MissReporter` checks this (`Pairs::holds`); as the
//! needy pair of `shrink_least_useful`, an outdated slot only adds another pair to the candidates.
//! A change must ensure that nothing relies on the slot without such a check.

use lowwater_base::sync::atomic::{AtomicU32, Ordering};

/// The slot of a pair in the table of pairs, which saves a lookup. It may be outdated.
///
/// All accesses are Relaxed: the slot is a hint, and orders no other data.
#[doc(hidden)]
#[derive(Default)]
pub struct PairHint(
    /// The slot plus one; 0 for none.
    AtomicU32,
);

impl PairHint {
    /// Returns the stored slot.
    pub(crate) fn slot(&self) -> Option<u32> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Stores a slot.
    pub(super) fn set(&self, slot: u32) {
        self.0.store(slot + 1, Ordering::Relaxed);
    }
}
