//! Counters of group ends, which tell whether a group ended during a round over the groups.
//!
//! A group that ends hands its objects to its parent, which the round may have visited already. So
//! a round in which a group ended proves nothing about the remaining objects; [`Recheck`] reports
//! this to each loop that stops when "nothing is left".
//!
//! # Orderings
//!
//! ```text
//!     Map::offline                            a round
//!       begun += 1                              mark = finished (Acquire)
//!       remove the ShrinkerInfo (lock)          visit the groups with a ShrinkerInfo (lock)
//!       set the bit at the parent               begun != mark? an end overlapped
//!       finished += 1 (Release)
//! ```
//!
//! - If the end finished before the mark, the round sees the parent's bit: Release and Acquire.
//! - Otherwise, if the round does not find the group's [`ShrinkerInfo`](super::shrinker_info), the
//!   shard's lock makes the increment of `begun` visible.
//! - Otherwise the round visits the group itself. A group that is dying, before or after its visit,
//!   is reported as an end of its own ([`Ends::met_dying`]): its lists may have moved although the
//!   map does not record the end yet.
//!
//! Numbers such as S22 are those of docs/INVARIANTS.md.
//!
//! A change must ensure that an end is counted as begun before the `ShrinkerInfo` is removed, and
//! as finished after the parent has the bits.

use lowwater_base::mutated;
use lowwater_base::sync::atomic::{AtomicU64, Ordering};

/// The maximum number of repeated rounds for one verdict. After that the verdict stands although it
/// may be wrong, so that the loop ends even if another thread creates and ends groups as fast
/// (S22).
const OVERLOOKED_MAX: u8 = 16;

/// Ends that have begun and ends that have finished; `finished` is never greater.
#[derive(Default)]
pub(crate) struct Ends {
    begun: AtomicU64,
    finished: AtomicU64,
}

/// The number of ends that had finished when a round began.
#[derive(Clone, Copy)]
pub(crate) struct EndsMark(u64);

impl Ends {
    /// Counts an end, before the group's `ShrinkerInfo` is removed.
    pub(super) fn begin(&self) {
        // Relaxed: a round that does not find the `ShrinkerInfo` has taken the lock under which it
        // was removed, after this increment.
        if !mutated!("end_begins_late") {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
        if mutated!("end_finishes_early") {
            self.finished.fetch_add(1, Ordering::Release);
        }
    }

    /// Counts an end as finished, after the parent has the group's bits.
    pub(super) fn finish(&self) {
        // Release: pairs with the Acquire in `mark`, so that a round that does not see this end in
        // progress sees the parent's bits.
        if mutated!("end_begins_late") {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
        if !mutated!("end_finishes_early") {
            self.finished.fetch_add(1, Ordering::Release);
        }
    }

    /// Reports that a round visited a dying group; its parent may have its objects already.
    #[cold]
    pub(crate) fn met_dying(&self) {
        self.begin();
        self.finish();
    }

    /// Returns the mark of a round that begins now.
    pub(crate) fn mark(&self) -> EndsMark {
        // Acquire: pairs with the Release in `finish`.
        EndsMark(self.finished.load(Ordering::Acquire))
    }

    /// Returns true if an end overlapped with the time since the mark.
    pub(crate) fn overlapped(&self, mark: EndsMark) -> bool {
        // Relaxed: the shard's lock orders the load, see `begin`.
        self.begun.load(Ordering::Relaxed) != mark.0
    }
}

/// Decides whether a round that found nothing is conclusive; inconclusive at most a bounded number
/// of times.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Recheck {
    overlooked: u8,
}

impl Recheck {
    /// Returns true if the round that began at the mark is conclusive. If not, the caller repeats
    /// the round.
    pub(crate) fn accepts(&mut self, ends: &Ends, mark: EndsMark) -> bool {
        if !ends.overlapped(mark) || self.overlooked == OVERLOOKED_MAX {
            return true;
        }
        self.overlooked += 1;
        // The end may be another thread's, and not finished.
        lowwater_base::sync::yield_now();
        false
    }
}
