//! The state of a clear (`clear.rs`): the epoch, and how far the housekeeper is.
//!
//! Only the two bytes of [`Clear`] exist before the first clear, so that an empty cache is small.
//!
//! A change must keep the order of the [phases](Phase).

use std::sync::atomic::{AtomicU8, Ordering};

use lowwater_rcu::{start_poll, EpochParity, GracePeriod, Guard};
use lowwater_store::index::Cursor;
use parking_lot::Mutex;

use crate::cache::record::Record;

/// The number of entries up to which a `clear`, or the drop of the cache, removes the entries
/// itself: in about a millisecond.
pub(in crate::cache) const REMOVED_AT_ONCE: usize = 4_096;

/// The epoch of a cache's records.
pub(in crate::cache) struct Clear {
    /// Not zero if a use of a record must do more than mark it: [`ACTS_ON_USE`] for any record, or
    /// [`CHECKS_EPOCH`].
    uses: AtomicU8,
    epoch: EpochParity,
}

/// The state that only clears in progress need.
#[derive(Default)]
pub(in crate::cache) struct ClearState {
    /// The number of cleared records that count as records. Locked while both counts change, so
    /// that their difference is exact.
    pub(in crate::cache) left: Mutex<usize>,
    /// The clear in progress.
    pub(in crate::cache) sweep: Mutex<Option<ClearSweep>>,
}

/// A bit of [`Clear::uses`]: the cache is in LRU order, or has computed deadlines.
const ACTS_ON_USE: u8 = 1;
/// A bit of [`Clear::uses`]: records may be cleared.
const CHECKS_EPOCH: u8 = 2;

/// The progress of a clear.
pub(in crate::cache) struct ClearSweep {
    phase: Phase,
    /// The position of the sweep; done between two phases.
    pub(in crate::cache) at: Cursor,
    /// Begun by the clear; in the last phase, at the end of the last sweep.
    grace_period: GracePeriod,
}

/// The present part of a clear, in this order.
enum Phase {
    /// Sweeps, perhaps beside inserts that have read the last epoch. So the records' memory returns
    /// also if a reader stays inside.
    FirstSweep,
    /// Sweeps after the grace period.
    LastSweep,
    /// Waits for readers that may have found a record before its removal.
    Ending,
}

/// The next step of a clear.
pub(in crate::cache) enum Step {
    Sweep,
    /// The last sweep has just ended.
    Swept,
    /// Readers are inside.
    Wait,
    /// The clear has ended.
    End,
}

impl ClearSweep {
    /// Returns the progress of a clear that has just begun.
    pub(in crate::cache) fn new(grace_period: GracePeriod) -> Self {
        Self { phase: Phase::FirstSweep, at: Cursor::new(), grace_period }
    }

    /// Returns the next step.
    pub(in crate::cache) fn step(&mut self) -> Step {
        if !self.at.is_done() {
            return Step::Sweep;
        }
        match self.phase {
            Phase::LastSweep => {
                self.phase = Phase::Ending;
                self.grace_period = start_poll();
                Step::Swept
            }
            _ if !self.grace_period.poll() => Step::Wait,
            Phase::FirstSweep => {
                self.phase = Phase::LastSweep;
                self.at = Cursor::new();
                Step::Sweep
            }
            Phase::Ending => Step::End,
        }
    }
}

impl Clear {
    pub(in crate::cache) fn new(acts_on_use: bool) -> Self {
        let uses = AtomicU8::new(if acts_on_use { ACTS_ON_USE } else { 0 });
        Self { uses, epoch: EpochParity::new() }
    }

    /// Returns a number that is not zero if a use of a record must do more than mark it.
    #[inline]
    pub(in crate::cache) fn checks_uses(&self) -> u32 {
        // Relaxed: a thread that must see a clear has synchronized with its end by other means.
        u32::from(self.uses.load(Ordering::Relaxed))
    }

    /// Returns whether a use of any record does more than mark it: in LRU order, or with computed
    /// deadlines.
    #[inline]
    pub(in crate::cache) fn acts_on_use(&self) -> bool {
        self.checks_uses() & u32::from(ACTS_ON_USE) != 0
    }

    /// Returns the parity for records that are inserted before the guard is dropped.
    #[inline]
    pub(in crate::cache) fn is_odd(&self, guard: &Guard) -> bool {
        self.epoch.current(guard)
    }

    /// Returns whether a record was cleared: also after its removal, in the read side that has
    /// found it in the index.
    #[inline]
    pub(in crate::cache) fn has_cleared<K, V>(&self, record: &Record<K, V>) -> bool {
        self.epoch.past().is_some_and(|past| record.is_of_epoch(past))
    }

    /// Begins an epoch, in which the records that are in the index are cleared.
    pub(in crate::cache) fn begin(&self) -> GracePeriod {
        let grace_period = self.epoch.begin();
        // Relaxed: as in `checks_uses`.
        self.uses.fetch_or(CHECKS_EPOCH, Ordering::Relaxed);
        grace_period
    }

    /// Ends the clear: no record of the other parity is left.
    pub(in crate::cache) fn end(&self) {
        self.epoch.end();
        // Relaxed: no reader has a cleared record, so none decides by this.
        self.uses.fetch_and(!CHECKS_EPOCH, Ordering::Relaxed);
    }
}
