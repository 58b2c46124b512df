//! A hint for the slot of a pair's tallies, kept by the pair's owner.
//!
//! The slot may belong to another pair by now; `Pairs::holds` checks it before use.

use lowwater_base::sync::atomic::{AtomicU32, Ordering};

/// The slot of a pair's tallies, which saves a lookup. A hint, which may be outdated.
///
/// All accesses are Relaxed: the slot is validated before use.
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
