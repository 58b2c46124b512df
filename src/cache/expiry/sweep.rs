//! The progress of the reaper's sweep over the index, and the earliest deadline that was registered
//! since the last sweep began.
//!
//! In a file of its own, because inserts register deadlines here while `reaper.rs` sweeps. Either
//! the sweep visits the inserted record, or the record's deadline is left for the next sweep
//! (`base::earliest_deadline`).
//!
//! A change must ensure that no deadline is missed: a record is in the index before its deadline is
//! registered.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use lowwater_base::EarliestDeadline;
use lowwater_store::index::Cursor;
use once_cell::race::OnceBox;
use parking_lot::Mutex;

use super::deadline::{Deadline, Floor};

/// The time of the next sweep, and the sweep in progress. The sweep is allocated when it is first
/// needed, mostly for a deadline, so that a cache without deadlines is small.
#[derive(Default)]
pub(crate) struct SweepSchedule {
    /// The earliest deadline registered since the last sweep began.
    pub(crate) earliest: EarliestDeadline,
    /// Readers hold back removed records: the records' memory is to be collected later.
    pub(crate) has_retained: AtomicBool,
    /// They were removed since the housekeeper's last run: so are others, probably, and the
    /// collection waits for another run.
    pub(crate) is_recent: AtomicBool,
    /// The sweep's state; none before its first use (see [`sweep`](Self::sweep)).
    pub(crate) sweep: OnceBox<Mutex<Sweep>>,
}

/// One sweep over the index, or the time between two.
#[doc(alias = "Reaper")]
pub(crate) struct Sweep {
    /// The position; none between two sweeps.
    pub(crate) at: Option<Cursor>,
    /// The earliest deadline that the sweep has seen and that had not passed. Between two sweeps,
    /// that of the last one.
    pub(crate) earliest_seen: Deadline,
    /// When the sweep began, by the system's clock, for the pause until the next one.
    pub(crate) began: Option<Instant>,
    /// When the sweep began, by the cache's clock (`clock.rs`).
    pub(crate) began_at: u64,
    /// The value of `began_at` of the last sweep that has ended; none before the first. All records
    /// that were in the index at that time, and whose deadline, stale time included, had passed
    /// by then, are removed.
    pub(crate) swept_to: Option<u64>,
    /// The sweep has removed a record: when the sweep ends, memory is released.
    pub(crate) freed: bool,
    /// Threads that have removed records, and have yet to count them and to call the listeners.
    pub(crate) finishing: u32,
}

impl Default for Sweep {
    fn default() -> Self {
        Self {
            at: None,
            earliest_seen: Deadline::NEVER,
            began: None,
            began_at: 0,
            swept_to: None,
            freed: false,
            finishing: 0,
        }
    }
}

impl SweepSchedule {
    /// Registers a deadline. Returns true if it is the earliest; the caller then notifies the
    /// housekeeper. The record must be in the index already. `floor` is the clock's, relative to
    /// which deadlines are compared (`deadline.rs`).
    #[inline]
    pub(crate) fn lower(&self, at: Deadline, floor: Floor) -> bool {
        let is_earlier = |ours, stored| Deadline::from_raw(ours).is_before(Deadline::from_raw(stored), floor);
        !at.is_never() && self.earliest.lower(at.raw(), is_earlier)
    }

    /// Returns the sweep; none until a deadline was registered, or a manual clock was advanced.
    pub(crate) fn sweep(&self) -> Option<&Mutex<Sweep>> {
        match self.earliest_registered() {
            Deadline::NEVER => self.sweep.get(),
            _ => Some(self.sweep.get_or_init(Box::default)),
        }
    }

    /// Returns the heap bytes of the sweep's state.
    pub(crate) fn footprint(&self) -> usize {
        self.sweep.get().map_or(0, size_of_val)
    }

    pub(crate) fn earliest_registered(&self) -> Deadline {
        Deadline::from_raw(self.earliest.get())
    }
}

const _: () =
    assert!(Deadline::NEVER.raw() == EarliestDeadline::NONE, "without a registered deadline, the earliest is never");
