//! Group ends, counted: whether a group ended while a round over the groups was under way.
//!
//! A group that ends hands its objects to its parent, which such a round may have visited already.
//! So a round in which a group ended proves nothing about what is left; [`Recheck`] says so to each
//! loop that stops where "nothing is left".
//!
//! # Orderings
//!
//! ```text
//!     Map::offline                            a round
//!       begun += 1                              mark = finished (Acquire)
//!       take the group's unit out (lock)        visit the groups that have a unit (lock)
//!       set the bit at the parent               begun != mark? an end overlapped
//!       finished += 1 (Release)
//! ```
//!
//! - If the end had finished before the mark, the round sees the parent's bit: Release and Acquire.
//! - Else, if the round does not meet the group's unit, the lock shows it that the end has begun.
//! - Else the round meets the group itself. One that is dying, before or after its visit, is
//!   reported as an end of its own ([`Ends::met_dying`]): its lists may have moved although the map
//!   does not know yet.

use lowwater_base::mutated;
use lowwater_base::sync::atomic::{AtomicU64, Ordering};

/// Rounds in which a group ended that one verdict overlooks: then it stands although it may be
/// wrong, so that the loop ends beside a thread that makes and ends groups as fast (S22).
const OVERLOOKED_MAX: u8 = 16;

/// The ends that have begun and those that have finished; never more of the latter.
#[derive(Default)]
pub(crate) struct Ends {
    begun: AtomicU64,
    finished: AtomicU64,
}

/// The ends that had finished when a round began.
#[derive(Clone, Copy)]
pub(crate) struct EndsMark(u64);

impl Ends {
    /// A group's unit is about to be taken out.
    pub(super) fn begin(&self) {
        // Relaxed: a round that misses the unit has had the lock under which it is taken out after
        // this.
        if !mutated!("end_begins_late") {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
        if mutated!("end_finishes_early") {
            self.finished.fetch_add(1, Ordering::Release);
        }
    }

    /// The group's bits are its parent's.
    pub(super) fn finish(&self) {
        // Release: meets the Acquire in `mark`, so that a round which does not see this end in
        // progress sees the parent's bits.
        if mutated!("end_begins_late") {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
        if !mutated!("end_finishes_early") {
            self.finished.fetch_add(1, Ordering::Release);
        }
    }

    /// A round met a group that is dying, whose objects may be its parent's already.
    #[cold]
    pub(crate) fn met_dying(&self) {
        self.begin();
        self.finish();
    }

    /// A round begins.
    pub(crate) fn mark(&self) -> EndsMark {
        // Acquire: meets the Release in `finish`.
        EndsMark(self.finished.load(Ordering::Acquire))
    }

    /// Did an end overlap with what was done since the mark?
    pub(crate) fn overlapped(&self, mark: EndsMark) -> bool {
        // Relaxed: see `begin`.
        self.begun.load(Ordering::Relaxed) != mark.0
    }
}

/// Whether to believe a round that found nothing, a bounded number of times not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recheck {
    overlooked: u8,
}

impl Recheck {
    /// May the round that began at the mark be believed? If not, the caller goes round again.
    pub(crate) fn believes(&mut self, ends: &Ends, mark: EndsMark) -> bool {
        if !ends.overlapped(mark) || self.overlooked == OVERLOOKED_MAX {
            return true;
        }
        self.overlooked += 1;
        // The end may be another thread's, and not finished.
        lowwater_base::sync::yield_now();
        false
    }
}
