//! When entries expire, in four bytes.
//!
//! Time is counted since the cache was made: in ticks of 4 ms for what expires within 20 days, in seconds for what expires later. A moment
//! is rounded up, so an entry lives at least as long as was asked, and at most a tick longer. Seconds last for 34 years; what is further
//! off is never. The count of ticks goes round after 49 days: an entry that expired, and was not met by any lookup or walk for 24
//! days after that, would be taken for alive again for as long.
//!
//! One bit says that a moment is that of an idle time, which a use pushes on. So it is pushed on, or replaced by a time that stays, in
//! one step.

use std::time::{Duration, Instant};

/// Nanoseconds in a tick.
const TICK: u64 = 4_000_000;
const SECOND: u64 = 1_000_000_000;
/// The same.
pub(super) const TICK_TIME: Duration = Duration::from_nanos(TICK);
/// Says that a moment is told in seconds.
const SECONDS: u32 = 1 << 31;
/// Says that a use pushes it on.
const IDLES: u32 = 1 << 30;
/// The number itself.
const NUMBER: u32 = IDLES - 1;
/// What is further off is told in seconds.
const FAR: u64 = 20 * 86_400 * SECOND;
/// An idle time is begun anew by a use when so much of it has passed, so that most uses write nothing. It is granted on top.
const PUSHED_BY: u32 = 8;

/// A moment that may come; 0 is the one that does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(u32);

/// The moment that is now: nanoseconds since the clock was started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now(u64);

/// How long an entry lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifetime {
    Forever,
    /// From when it was put in.
    Fixed(Duration),
    /// From when it was used last.
    Idle(Duration),
}

/// Where time is counted from.
#[derive(Debug)]
pub(super) struct Clock(Instant);

impl Moment {
    pub(super) const NEVER: Self = Self(0);

    pub(super) const fn raw(self) -> u32 {
        self.0
    }

    pub(super) fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    #[inline]
    pub(super) fn is_never(self) -> bool {
        self == Self::NEVER
    }

    /// Has it come?
    pub(super) fn is_past(self, now: Now) -> bool {
        if self.0 & SECONDS != 0 {
            return now.0 / SECOND >= u64::from(self.0 & NUMBER);
        }
        !self.is_never() && self.ticks_from(now) <= 0
    }

    /// How long it is until then, a tick less at most, and not more than was asked; none if it does not come.
    pub(super) fn left(self, now: Now) -> Option<Duration> {
        if self.is_never() {
            return None;
        }
        let left = if self.0 & SECONDS != 0 {
            (u64::from(self.0 & NUMBER) * SECOND).saturating_sub(SECOND + now.0)
        } else {
            (u64::try_from(self.ticks_from(now)).unwrap_or(0) * TICK).saturating_sub(TICK + now.0 % TICK)
        };
        Some(Duration::from_nanos(left))
    }

    /// Does it come before the other? Never comes last. What is told in seconds may have come closer than what is told in ticks: then `now` is
    /// asked for.
    pub(super) fn is_sooner_than(self, other: Self, now: impl FnOnce() -> Now) -> bool {
        match (self.is_never(), other.is_never()) {
            (true, _) => false,
            (false, true) => true,
            _ => match (self.0 & SECONDS, other.0 & SECONDS) {
                // Of 30 bits, the highest is the sign.
                (0, 0) => ((self.0.wrapping_sub(other.0) << 2) as i32) < 0,
                (SECONDS, SECONDS) => self.0 & NUMBER < other.0 & NUMBER,
                _ => {
                    let now = now();
                    self.nanoseconds_from(now) < other.nanoseconds_from(now)
                }
            },
        }
    }

    /// That which comes first.
    pub(super) fn sooner(a: Self, b: Self, now: Now) -> Self {
        if b.is_sooner_than(a, || now) {
            b
        } else {
            a
        }
    }

    /// Does a use push it on?
    #[inline]
    pub(super) fn idles(self) -> bool {
        self.0 & IDLES != 0
    }

    /// The same, pushed on by uses.
    fn idling(self) -> Self {
        if self.is_never() {
            self
        } else {
            Self(self.0 | IDLES)
        }
    }

    /// Ticks until then; they go round.
    fn ticks_from(self, now: Now) -> i32 {
        let now = (now.0 / TICK) as u32;
        // Of 30 bits, the highest is the sign.
        (self.0.wrapping_sub(now) << 2) as i32 >> 2
    }

    /// Until then; it is not never.
    fn nanoseconds_from(self, now: Now) -> i64 {
        match self.0 & SECONDS {
            0 => i64::from(self.ticks_from(now)) * TICK as i64,
            _ => (u64::from(self.0 & NUMBER) * SECOND) as i64 - now.0 as i64,
        }
    }

    /// The first that can be told at or after so many nanoseconds.
    fn at(nanoseconds: u128, now: Now) -> Self {
        let Some(at) = u64::try_from(nanoseconds).ok() else { return Self::NEVER };
        if at - now.0 > FAR {
            let seconds = u32::try_from(at.div_ceil(SECOND)).unwrap_or(u32::MAX);
            return if seconds <= NUMBER { Self(seconds | SECONDS) } else { Self::NEVER };
        }
        match at.div_ceil(TICK) as u32 & NUMBER {
            0 => Self(1),
            ticks => Self(ticks),
        }
    }
}

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(&self) -> Now {
        Now(self.0.elapsed().as_nanos() as u64)
    }

    /// The first moment that is at least `time` from now; never, if that is too far off.
    pub(super) fn after(&self, time: Duration) -> Moment {
        let now = self.now();
        Moment::at(u128::from(now.0) + time.as_nanos(), now)
    }

    /// When what lives so long expires, if it is not used again.
    pub(super) fn end_of(&self, lifetime: Lifetime) -> Moment {
        match lifetime {
            Lifetime::Forever => Moment::NEVER,
            Lifetime::Fixed(time) => self.after(time),
            Lifetime::Idle(time) => self.after(time.saturating_add(time / PUSHED_BY)).idling(),
        }
    }

    /// When what has so much time left expires; that of an idle time, perhaps.
    pub(super) fn end_after(&self, left: Option<Duration>, idles: bool) -> Moment {
        let at = left.map_or(Moment::NEVER, |left| self.after(left));
        if idles {
            at.idling()
        } else {
            at
        }
    }

    /// The new end of what idles until `at`, and was used just now; none where it need not be told.
    pub(super) fn pushed_on(&self, at: Moment, idle: Duration) -> Option<Moment> {
        let is_due = at.idles() && at.left(self.now()).is_some_and(|left| left < idle);
        is_due.then(|| self.end_of(Lifetime::Idle(idle))).filter(|end| *end != at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400 * SECOND;

    #[test]
    fn moments_come_no_earlier_than_asked_and_a_tick_later_at_most() {
        for begin in [0, 1, 3 * TICK + 7, 49 * DAY + 5, 50 * DAY, 98 * DAY + 5, 99 * DAY, 500 * DAY + 11] {
            for time in [0, 1, TICK, 5_000_000, 100 * SECOND, 19 * DAY, 21 * DAY, 3_000 * DAY] {
                let at = Moment::at(u128::from(begin + time), Now(begin));
                let tick = if time > FAR { SECOND } else { TICK };
                assert!(!at.is_never() && at.is_past(Now(begin + time + 2 * tick)), "{begin} {time}");
                assert!(time == 0 || !at.is_past(Now(begin + time - 1)), "{begin} {time}");
                let left = at.left(Now(begin)).expect("it comes").as_nanos() as u64;
                assert!(left <= time && left + 2 * tick >= time, "{begin} {time} {left}");
                assert_eq!(at.idling().left(Now(begin)), at.left(Now(begin)));
                assert!(at.idling().idles() && !at.idles());
                assert_eq!(at.idling().is_past(Now(begin + time)), at.is_past(Now(begin + time)));
            }
        }
    }

    #[test]
    fn moments_are_told_apart_by_which_comes_first() {
        for begin in [0, 20 * DAY, 49 * DAY, 50 * DAY - 7, 98 * DAY] {
            let times = [4 * TICK, 100 * SECOND, 19 * DAY, 21 * DAY, 3_000 * DAY];
            let mut moments: Vec<_> = times.map(|time| Moment::at(u128::from(begin + time), Now(begin))).into();
            moments.push(Moment::NEVER);
            for (i, a) in moments.iter().enumerate() {
                for (j, b) in moments.iter().enumerate() {
                    assert_eq!(a.is_sooner_than(*b, || Now(begin)), i < j, "{begin} {i} {j}");
                    assert_eq!(Moment::sooner(*a, *b, Now(begin)), moments[i.min(j)]);
                }
            }
        }
        // Told when it was far off, it has come close.
        let (day_22, now) = (Moment::at(u128::from(22 * DAY), Now(0)), Now(20 * DAY));
        let day_39 = Moment::at(u128::from(39 * DAY), now);
        assert!(day_22.is_sooner_than(day_39, || now) && !day_39.is_sooner_than(day_22, || now));
    }

    #[test]
    fn a_use_pushes_an_idle_time_on_when_an_eighth_has_passed() {
        let clock = Clock::start();
        let hour = Duration::from_secs(3_600);
        let fresh = clock.end_of(Lifetime::Idle(hour));
        assert_eq!(clock.pushed_on(fresh, hour), None, "nothing has passed");
        let aged = clock.after(hour - Duration::from_secs(1)).idling();
        assert!(clock.pushed_on(aged, hour).is_some_and(|end| end.idles()));
        assert_eq!(clock.pushed_on(clock.after(Duration::from_secs(1)), hour), None, "that is no idle time");
        assert!(clock.end_of(Lifetime::Idle(Duration::MAX)).is_never());
    }

    #[test]
    fn what_is_too_far_off_never_comes() {
        let clock = Clock::start();
        assert!(clock.after(Duration::MAX).is_never());
        assert!(clock.after(Duration::from_secs(100 * 365 * 86_400)).is_never());
        assert!(!Moment::NEVER.is_past(clock.now()) && Moment::NEVER.left(clock.now()).is_none());
    }
}
