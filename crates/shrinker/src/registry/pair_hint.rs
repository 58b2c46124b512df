//! Where a pair's tallies are, as far as its owner remembers.

use lowwater_base::sync::atomic::{AtomicU32, Ordering};

/// Where a pair's tallies are, so that they are looked for once only. A hint, which may be out of date.
///
/// All accesses are Relaxed: the slot is looked at again.
#[doc(hidden)]
#[derive(Default)]
pub struct PairHint(
    /// One more than the slot; 0 for none.
    AtomicU32,
);

impl PairHint {
    /// The slot that it names.
    pub(crate) fn slot(&self) -> Option<u32> {
        self.0.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Names this slot from now on.
    pub(super) fn set(&self, slot: u32) {
        self.0.store(slot + 1, Ordering::Relaxed);
    }
}
