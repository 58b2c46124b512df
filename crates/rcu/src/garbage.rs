//! Retired objects of the process, until their grace period is over.
//!
//! The stamp is the global epoch at which objects were unreachable (`local_epoch.rs`). Invariant:
//! an object never gets an earlier stamp than that epoch; a later one is safe, but delays its free.

use crate::queue::Queues;

/// The number of retired objects that justify a fence on every processor: 64 lists of 64 bytes are
/// 4 KiB.
pub(crate) const BATCH: usize = 64;

/// Retired objects that wait for their grace period.
pub(crate) struct Garbage {
    /// Retired objects without a stamp.
    pub(crate) queues: Queues,
    /// The objects that a collection could not free. They keep their stamp: with a new stamp at
    /// each collection, the fence of the visitor (`heavy_fence.rs`) would always be too old.
    pub(crate) sealed: Option<Sealed>,
    /// The length of `queues` at which a collection is due.
    pub(crate) due_at: usize,
}

/// Retired objects that were unreachable at a stamp.
pub(crate) struct Sealed {
    pub(crate) queues: Queues,
    pub(crate) stamp: u64,
}

impl Garbage {
    pub(crate) const fn new() -> Self {
        Self { queues: Queues::new(), sealed: None, due_at: BATCH }
    }

    pub(crate) fn is_due(&self) -> bool {
        self.queues.len() >= self.due_at
    }

    /// Takes back the objects that a collection could not free. `later` loses its stamp if there is
    /// an `earlier` batch.
    pub(crate) fn put_back(&mut self, earlier: Option<Sealed>, later: Sealed) {
        let mut kept = match earlier {
            None => later,
            Some(earlier) => {
                self.queues.append(later.queues);
                earlier
            }
        };
        if let Some(other) = self.sealed.take() {
            // The remains of another collection that ran concurrently.
            kept.queues.append(other.queues);
            kept.stamp = kept.stamp.max(other.stamp);
        }
        // The next collection is due when the number has doubled: otherwise a long-lived reader
        // would make each retire O(all objects).
        self.due_at = (2 * self.queues.len() + kept.queues.len()).max(BATCH);
        self.sealed = (kept.queues.len() != 0).then_some(kept);
    }
}
