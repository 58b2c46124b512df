//! Retired objects of the process, until their grace period is over.

use crate::queue::Queues;

/// Retired objects that are worth a fence on every processor. A list is 64 bytes.
pub(crate) const BATCH: usize = 64;

/// What waits for its readers.
pub(crate) struct Garbage {
    /// Retired things without a stamp.
    pub(crate) queues: Queues,
    /// The things that a collection could not free. They keep their stamp: with a new one at each
    /// collection, the fence of the visitor would always be too old.
    pub(crate) sealed: Option<Sealed>,
    /// From so many in `queues` on it is worth collecting.
    pub(crate) due_at: usize,
}

/// Retired things that were unreachable at a stamp.
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

    /// Takes back the things that a collection could not free. `later` loses its stamp if there is
    /// an `earlier` one.
    pub(crate) fn put_back(&mut self, earlier: Option<Sealed>, later: Sealed) {
        let mut kept = match earlier {
            None => later,
            Some(earlier) => {
                self.queues.append(later.queues);
                earlier
            }
        };
        if let Some(other) = self.sealed.take() {
            // Of another collection that ran at the same time.
            kept.queues.append(other.queues);
            kept.stamp = kept.stamp.max(other.stamp);
        }
        // Not before there is twice as much: a reader that stays must not make each retiring
        // O(all).
        self.due_at = (2 * self.queues.len() + kept.queues.len()).max(BATCH);
        self.sealed = (kept.queues.len() != 0).then_some(kept);
    }
}
