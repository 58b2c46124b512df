//! [`Schedule`]: when one kind of work runs next.
//!
//! Each kind rests on its own: the rest after a sweep for expired records delays no compaction, and
//! a notification, which each cache sends for its first deadline after a sweep, ends no rest.
//!
//! A change must ensure that a notification during a run leads to another run.

use std::time::{Duration, Instant};

use crate::runtime::maintenance::MaintenanceId;

/// The time after which the work on a cache, or on a dropped group, begins no further call, but for
/// large caches beside many small ones ([`Schedule::begin`]).
pub(super) const WORK: Duration = Duration::from_micros(500);

/// The kinds of work, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Empties and ends groups.
    EndGroups,
    /// Removes cleared records.
    Clear,
    /// Removes expired records.
    Reap,
    Compact,
}

impl Work {
    pub(super) const ALL: [Self; 4] = [Self::EndGroups, Self::Clear, Self::Reap, Self::Compact];
}

/// The result of one run over all groups, or over as many caches as there is time for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// The last visited cache.
    pub(super) last: MaintenanceId,
    /// The time until the next run; none: when notified.
    pub(super) wait: Option<Duration>,
    /// The time for which the next run waits in any case.
    pub(super) rest: Duration,
    /// The time of the visits that have ended with no more to do, and for which [`WORK`] was
    /// enough.
    pub(super) finished: Duration,
}

/// The bounds of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The run begins with the cache after this one.
    pub(super) after: MaintenanceId,
    /// The time that the run may take in each cache.
    pub(super) visit: Duration,
}

/// When one kind of work runs next.
#[derive(Debug)]
pub(super) struct Schedule {
    /// The time of the next run, at the end of the rest at the earliest; none: when notified.
    next: Option<Instant>,
    /// The end of the rest after the last run.
    rest_until: Instant,
    /// [`Run::last`] of the last run.
    last: MaintenanceId,
    /// [`Run::finished`] of the last run.
    finished: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { next: None, rest_until: Instant::now(), last: MaintenanceId::default(), finished: Duration::ZERO }
    }
}

impl Schedule {
    /// Makes the next run begin when the rest is over. Returns whether it would have begun later.
    pub(super) fn notify(&mut self) -> bool {
        let is_earlier = self.next.is_none_or(|next| self.rest_until < next);
        if is_earlier {
            self.next = Some(self.rest_until);
        }
        is_earlier
    }

    /// Returns the time of the next run; none: when notified.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Begins a run if it is due. Returns its bounds: a visit takes at most `most`, and at least
    /// [`WORK`].
    ///
    /// In between it is the time that the last run has taken in small caches. So the sweep of a
    /// large cache takes at least as much time as those of many small ones, which begin again in
    /// each run. Caches for which `WORK` is not enough do not prolong each other's visits: each
    /// would wait for the whole sweeps of the others.
    pub(super) fn begin(&mut self, now: Instant, most: Duration) -> Option<Bounds> {
        let visit = self.finished.min(most).max(WORK);
        self.next.take_if(|next| *next <= now).map(|_| Bounds { after: self.last, visit })
    }

    /// Ends a run.
    pub(super) fn end(&mut self, run: Run, now: Instant) {
        self.rest_until = now + run.rest;
        self.last = run.last;
        self.finished = run.finished;
        self.next = match self.next {
            None => run.wait.and_then(|wait| now.checked_add(wait.max(run.rest))),
            // A notification during the run.
            Some(_) => Some(self.rest_until),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const BOUNDS: Bounds = Bounds { after: MaintenanceId(0), visit: WORK };

    #[test]
    fn a_notification_ends_no_rest() {
        let mut schedule = Schedule::default();
        let start = schedule.rest_until;
        assert_eq!(schedule.begin(start, WORK), None, "not notified");
        assert!(schedule.notify());
        assert_eq!(schedule.begin(start, WORK), Some(BOUNDS));
        schedule.end(Run { wait: Some(50 * MS), rest: 10 * MS, ..Run::default() }, start);
        assert_eq!(schedule.next(), Some(start + 50 * MS));
        assert!(schedule.notify(), "earlier than the wait");
        assert!(!schedule.notify(), "notified already");
        assert_eq!(schedule.next(), Some(start + 10 * MS));
        assert_eq!(schedule.begin(start + 9 * MS, WORK), None);
        assert_eq!(schedule.begin(start + 10 * MS, WORK), Some(BOUNDS));
    }

    #[test]
    fn a_notification_during_a_run_leads_to_another() {
        let mut schedule = Schedule::default();
        let start = schedule.rest_until;
        schedule.notify();
        schedule.begin(start, WORK).unwrap();
        schedule.notify();
        schedule.end(Run { rest: 10 * MS, ..Run::default() }, start + MS);
        assert_eq!(schedule.next(), Some(start + 11 * MS));
        schedule.begin(start + 11 * MS, WORK).unwrap();
        schedule.end(Run::default(), start + 12 * MS);
        assert_eq!(schedule.next(), None);
    }

    #[test]
    fn a_large_cache_gets_the_time_of_many_small_ones() {
        let mut schedule = Schedule::default();
        let start = schedule.rest_until;
        for (finished, visit) in [(MS / 4, WORK), (3 * MS, 3 * MS), (90 * MS, 50 * MS)] {
            let last = MaintenanceId(7);
            schedule.end(Run { last, wait: Some(Duration::ZERO), finished, ..Run::default() }, start);
            let bounds = Bounds { after: last, visit };
            assert_eq!(schedule.begin(start, 50 * MS), Some(bounds), "{finished:?} in small caches");
        }
    }
}
