//! The clock of a cache, and the times to live of its records.

use std::time::{Duration, Instant};

use super::compact_duration::CompactDuration;
use super::deadline::{Deadline, Now};

/// The time to live of a record.
#[doc(alias = "time to live")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ttl {
    Forever,
    /// Counted from the record's insert.
    Fixed(Duration),
    /// Counted from the record's last use.
    Idle(Duration),
}

/// The clock of a cache, started when the cache is made.
#[derive(Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(&self) -> Now {
        Now(self.0.elapsed().as_nanos() as u64)
    }

    /// Returns the first deadline at least `time` from now; [`Deadline::NEVER`] if that is too far
    /// off to be encoded.
    pub(crate) fn after(&self, time: Duration) -> Deadline {
        let now = self.now();
        Deadline::at(u128::from(now.0) + time.as_nanos(), now)
    }

    /// Returns the deadline of a record with this time to live.
    pub(crate) fn deadline_of(&self, ttl: Ttl) -> Deadline {
        match ttl {
            Ttl::Forever => Deadline::NEVER,
            Ttl::Fixed(time) => self.after(time),
            Ttl::Idle(time) => self.deadline_after(Some(time), Some(time)),
        }
    }

    /// Returns the deadline of a record that expires in `left`, and that a use extends to `idle`,
    /// if given. [`Deadline::NEVER`] if `left` is `None`, or if a time is too long to be encoded.
    pub(crate) fn deadline_after(&self, left: Option<Duration>, idle: Option<Duration>) -> Deadline {
        let Some(left) = left else { return Deadline::NEVER };
        match idle {
            None => self.after(left),
            Some(idle) => {
                CompactDuration::at_least(idle).map_or(Deadline::NEVER, |idle| Deadline::idle(idle, left, self.now()))
            }
        }
    }

    /// Returns the extended deadline of a record that was used just now. `None` if `at` is no idle
    /// deadline, has passed, or was extended so recently that the whole idle time is still left:
    /// then the use writes nothing.
    pub(crate) fn extended(&self, at: Deadline) -> Option<Deadline> {
        let (idle, now) = (at.idle_time()?, self.now());
        let is_due = at.nanoseconds_from(now) < idle.nanoseconds() as i64 && !at.is_past(now);
        is_due.then(|| Deadline::idle(idle, Duration::MAX, now))
    }
}

#[cfg(test)]
mod tests {
    use super::super::compact_duration::TICK;
    use super::super::deadline::{FAR, SECOND};
    use super::*;

    const DAY: u64 = 86_400 * SECOND;

    #[test]
    fn moments_come_no_earlier_than_asked_and_a_tick_later_at_most() {
        for begin in [0, 1, 3 * TICK + 7, 49 * DAY + 5, 50 * DAY, 98 * DAY + 5, 99 * DAY, 500 * DAY + 11] {
            for time in [0, 1, TICK, 5_000_000, 100 * SECOND, 19 * DAY, 21 * DAY, 3_000 * DAY] {
                let at = Deadline::at(u128::from(begin + time), Now(begin));
                let tick = if time > FAR { SECOND } else { TICK };
                assert!(!at.is_never() && at.is_past(Now(begin + time + 2 * tick)), "{begin} {time}");
                assert!(time == 0 || !at.is_past(Now(begin + time - 1)), "{begin} {time}");
                let left = at.time_left(Now(begin)).expect("a deadline is not never").as_nanos() as u64;
                assert!(left <= time && left + 2 * tick >= time, "{begin} {time} {left}");
                let until = at.until(Now(begin)).expect("a deadline is not never").as_nanos() as u64;
                assert!(at.is_past(Now(begin + until)) && (until == 0 || !at.is_past(Now(begin + until - 1))));
            }
        }
    }

    #[test]
    fn moments_are_told_apart_by_which_comes_first() {
        for begin in [0, 20 * DAY, 49 * DAY, 50 * DAY - 7, 98 * DAY] {
            let times = [4 * TICK, 100 * SECOND, 19 * DAY, 21 * DAY, 3_000 * DAY];
            let mut moments: Vec<_> = times.map(|time| Deadline::at(u128::from(begin + time), Now(begin))).into();
            moments.push(Deadline::NEVER);
            for (i, a) in moments.iter().enumerate() {
                for (j, b) in moments.iter().enumerate() {
                    assert_eq!(a.is_before(*b, || Now(begin)), i < j, "{begin} {i} {j}");
                    assert_eq!(Deadline::earlier(*a, *b, Now(begin)), moments[i.min(j)]);
                }
            }
        }
        // `day_22` was encoded in seconds, because it was far off then. It is compared when it is
        // near, with a deadline in ticks.
        let (day_22, now) = (Deadline::at(u128::from(22 * DAY), Now(0)), Now(20 * DAY));
        let day_39 = Deadline::at(u128::from(39 * DAY), now);
        assert!(day_22.is_before(day_39, || now) && !day_39.is_before(day_22, || now));
    }

    #[test]
    fn an_idle_time_ends_no_earlier_than_asked_and_an_eighth_later_at_most() {
        for begin in [0, 1, 3 * TICK + 7, 49 * DAY + 5, 500 * DAY + 11] {
            for time in [0, 1, TICK, 100_000_000, 129_000_000, SECOND, 1_801 * SECOND, 35 * DAY + 1, 3_000 * DAY] {
                let idle = CompactDuration::at_least(Duration::from_nanos(time)).expect("below the maximum");
                let at = Deadline::idle(idle, Duration::MAX, Now(begin));
                assert!(at.is_idle() && !at.is_past(Now(begin + time)), "{begin} {time}");
                assert!(at.is_past(Now(begin + time + time / 8 + 4 * TICK)), "{begin} {time}");
                let until = at.until(Now(begin)).expect("a deadline is not never").as_nanos() as u64;
                assert!(!at.is_past(Now(begin + until - 1)) && at.is_past(Now(begin + until)));
                let left = at.time_left(Now(begin)).expect("a deadline is not never").as_nanos() as u64;
                assert!(left <= idle.nanoseconds() && left + time / 8 + TICK >= time, "{begin} {time} {left}");
                // The deadline is still past after 30,000 times the idle time, before its count of
                // units wraps. Not checked for longer idle times, whose product overflows.
                let long = time.min(1_801 * SECOND) * 30_000 + time / 8;
                assert!(time > 1_801 * SECOND || at.is_past(Now(begin + long + 4 * TICK)), "{begin} {time}");
                // An idle deadline with half of the idle time left.
                let half = Deadline::idle(idle, Duration::from_nanos(time / 2), Now(begin));
                assert!(
                    !half.is_past(Now(begin + time / 2)) && half.is_past(Now(begin + time / 2 + time / 8 + 4 * TICK))
                );
                assert_eq!(half.time_to_idle(), at.time_to_idle());
            }
        }
    }

    #[test]
    fn idle_times_of_several_lengths_are_told_apart_by_which_comes_first() {
        for begin in [0, 20 * DAY, 49 * DAY + 3] {
            let times = [SECOND, 10 * SECOND, 3_600 * SECOND, 30 * DAY].map(Duration::from_nanos);
            let idling =
                |time| Deadline::idle(CompactDuration::at_least(time).expect("below the maximum"), time, Now(begin));
            let fixed = |time: Duration| Deadline::at(u128::from(begin) + time.as_nanos() * 3 / 2, Now(begin));
            let moments: Vec<_> = times.into_iter().flat_map(|time| [idling(time), fixed(time)]).collect();
            for (i, a) in moments.iter().enumerate() {
                for (j, b) in moments.iter().enumerate() {
                    assert_eq!(a.is_before(*b, || Now(begin)), i < j, "{begin} {i} {j}");
                }
            }
        }
    }

    #[test]
    fn a_use_pushes_an_idle_time_on_when_a_little_has_passed() {
        let clock = Clock::start();
        let hour = Duration::from_secs(3_600);
        let fresh = clock.deadline_of(Ttl::Idle(hour));
        assert_eq!(clock.extended(fresh), None, "extended without elapsed time");
        let aged = clock.deadline_after(Some(hour * 14 / 16), Some(hour));
        assert!(clock.extended(aged).is_some_and(|end| end.time_to_idle() == fresh.time_to_idle()));
        assert_eq!(clock.extended(clock.after(Duration::from_secs(1))), None, "not an idle deadline");
        assert!(clock.deadline_of(Ttl::Idle(Duration::MAX)).is_never());
    }

    #[test]
    fn what_is_too_far_off_never_comes() {
        let clock = Clock::start();
        assert!(clock.after(Duration::MAX).is_never());
        assert!(clock.after(Duration::from_secs(100 * 365 * 86_400)).is_never());
        assert!(!Deadline::NEVER.is_past(clock.now()) && Deadline::NEVER.time_left(clock.now()).is_none());
    }
}
