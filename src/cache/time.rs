//! When entries expire, in four bytes.
//!
//! Time is counted since the cache was made: in ticks of 4 ms for what expires within 20 days, in seconds for what expires later. A moment
//! is rounded up, so an entry lives at least as long as was asked, and at most a tick longer. Seconds last for 34 years; what is further
//! off is never. The count of ticks goes round after 49 days: an entry that expired, and was not met by any lookup or walk for 24
//! days after that, would be taken for alive again for as long.
//!
//! One bit says that a moment is that of an idle time, which a use pushes on, by how long is told in ten bits beside it: so an entry can have
//! an idle time of its own, and it is pushed on, or replaced by a time that stays, in one step. Such a time is told in 32 to 63 units of so many
//! ticks as that takes, rounded up, and so is its end; that goes round after 30,000 times the time, and after two hours at least.

mod idle;

use std::time::{Duration, Instant};

use idle::Idle;

/// Nanoseconds in a tick.
const TICK: u64 = 4_000_000;
const SECOND: u64 = 1_000_000_000;
/// The same.
pub(super) const TICK_TIME: Duration = Duration::from_nanos(TICK);
/// Says that a use pushes it on.
const IDLES: u32 = 1 << 31;
/// Says that a moment that no use pushes on is told in seconds.
const SECONDS: u32 = 1 << 30;
/// The number itself.
const NUMBER: u32 = SECONDS - 1;
/// What is further off is told in seconds.
const FAR: u64 = 20 * 86_400 * SECOND;
/// Of an idle time's moment: how many bits its number has, how long the time is above it.
const IDLE_NUMBER_BITS: u32 = 21;
const IDLE_NUMBER: u32 = (1 << IDLE_NUMBER_BITS) - 1;
/// Units from when it was told to its end, at most: 63, those that are granted, and one for rounding; and some for clocks that were read at the same time.
const IDLE_AHEAD_MAX: i64 = 127;
/// An idle time is begun anew by a use when so many units of it have passed, so that most uses write nothing. They are granted on top.
const PUSHED_BY: u32 = 2;

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
        !self.is_never() && self.nanoseconds_from(now) <= 0
    }

    /// How long it is until then, a tick less at most, and not more than was asked; none if it does not come. Of an idle time not what was granted
    /// on top.
    pub(super) fn left(self, now: Now) -> Option<Duration> {
        if self.is_never() {
            return None;
        }
        let on_top = match self.idle() {
            Some(idle) => u64::from(PUSHED_BY + 1) * idle.unit(),
            None if self.0 & SECONDS != 0 => SECOND,
            None => TICK,
        };
        let left = u64::try_from(self.nanoseconds_from(now)).unwrap_or(0);
        Some(Duration::from_nanos(left.saturating_sub(on_top)))
    }

    /// How long it is until it comes; none if it does not.
    pub(super) fn until(self, now: Now) -> Option<Duration> {
        (!self.is_never()).then(|| Duration::from_nanos(u64::try_from(self.nanoseconds_from(now)).unwrap_or(0)))
    }

    /// Does it come before the other? Never comes last. What is told in other units may have come closer: then `now` is asked for.
    pub(super) fn is_sooner_than(self, other: Self, now: impl FnOnce() -> Now) -> bool {
        match (self.is_never(), other.is_never()) {
            (true, _) => false,
            (false, true) => true,
            _ => match (self.0 & (IDLES | SECONDS), other.0 & (IDLES | SECONDS)) {
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

    /// How long it idles, if a use pushes it on: not less than was asked.
    pub(super) fn time_to_idle(self) -> Option<Duration> {
        self.idle().map(|idle| Duration::from_nanos(idle.nanoseconds()))
    }

    fn idle(self) -> Option<Idle> {
        self.idles().then_some(Idle::from_raw((self.0 & !IDLES) >> IDLE_NUMBER_BITS))
    }

    /// Until then; it is not never.
    fn nanoseconds_from(self, now: Now) -> i64 {
        if let Some(idle) = self.idle() {
            let unit = idle.unit();
            // No end is further ahead than that; what seems to be is past.
            let units = match i64::from(self.0.wrapping_sub((now.0 / unit) as u32) & IDLE_NUMBER) {
                ahead if ahead <= IDLE_AHEAD_MAX => ahead,
                behind => behind - i64::from(IDLE_NUMBER) - 1,
            };
            return units.saturating_mul(unit as i64).saturating_sub((now.0 % unit) as i64);
        }
        if self.0 & SECONDS != 0 {
            return (u64::from(self.0 & NUMBER) * SECOND) as i64 - now.0 as i64;
        }
        // Of 30 bits, the highest is the sign.
        let ticks = (self.0.wrapping_sub((now.0 / TICK) as u32) << 2) as i32 >> 2;
        i64::from(ticks) * TICK as i64 - (now.0 % TICK) as i64
    }

    /// The end of what idles so long, and has so much of it left now.
    fn idling(idle: Idle, left: Duration, now: Now) -> Self {
        let at = u128::from(now.0) + left.as_nanos().min(idle.nanoseconds().into());
        let number = at.div_ceil(idle.unit().into()) as u32;
        Self(IDLES | idle.raw() << IDLE_NUMBER_BITS | number.wrapping_add(PUSHED_BY) & IDLE_NUMBER)
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
            Lifetime::Idle(time) => self.end_after(Some(time), Some(time)),
        }
    }

    /// When what has so much time left expires; of an idle time of so long, perhaps.
    pub(super) fn end_after(&self, left: Option<Duration>, idle: Option<Duration>) -> Moment {
        let Some(left) = left else { return Moment::NEVER };
        match idle {
            None => self.after(left),
            Some(idle) => Idle::at_least(idle).map_or(Moment::NEVER, |idle| Moment::idling(idle, left, self.now())),
        }
    }

    /// The new end of what idles until `at`, and was used just now; none where it need not be told.
    pub(super) fn pushed_on(&self, at: Moment) -> Option<Moment> {
        let (idle, now) = (at.idle()?, self.now());
        let is_due = at.nanoseconds_from(now) < idle.nanoseconds() as i64 && !at.is_past(now);
        is_due.then(|| Moment::idling(idle, Duration::MAX, now))
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
                let until = at.until(Now(begin)).expect("it comes").as_nanos() as u64;
                assert!(at.is_past(Now(begin + until)) && (until == 0 || !at.is_past(Now(begin + until - 1))));
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
    fn an_idle_time_ends_no_earlier_than_asked_and_an_eighth_later_at_most() {
        for begin in [0, 1, 3 * TICK + 7, 49 * DAY + 5, 500 * DAY + 11] {
            for time in [0, 1, TICK, 100_000_000, 129_000_000, SECOND, 1_801 * SECOND, 35 * DAY + 1, 3_000 * DAY] {
                let idle = Idle::at_least(Duration::from_nanos(time)).expect("it is not too long");
                let at = Moment::idling(idle, Duration::MAX, Now(begin));
                assert!(at.idles() && !at.is_past(Now(begin + time)), "{begin} {time}");
                assert!(at.is_past(Now(begin + time + time / 8 + 4 * TICK)), "{begin} {time}");
                let until = at.until(Now(begin)).expect("it comes").as_nanos() as u64;
                assert!(!at.is_past(Now(begin + until - 1)) && at.is_past(Now(begin + until)));
                let left = at.left(Now(begin)).expect("it comes").as_nanos() as u64;
                assert!(left <= idle.nanoseconds() && left + time / 8 + TICK >= time, "{begin} {time} {left}");
                // Long after, it is still past.
                let long = time.min(1_801 * SECOND) * 30_000 + time / 8;
                assert!(time > 1_801 * SECOND || at.is_past(Now(begin + long + 4 * TICK)), "{begin} {time}");
                // With half of it left.
                let half = Moment::idling(idle, Duration::from_nanos(time / 2), Now(begin));
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
            let idling = |time| Moment::idling(Idle::at_least(time).expect("it is not too long"), time, Now(begin));
            let fixed = |time: Duration| Moment::at(u128::from(begin) + time.as_nanos() * 3 / 2, Now(begin));
            let moments: Vec<_> = times.into_iter().flat_map(|time| [idling(time), fixed(time)]).collect();
            for (i, a) in moments.iter().enumerate() {
                for (j, b) in moments.iter().enumerate() {
                    assert_eq!(a.is_sooner_than(*b, || Now(begin)), i < j, "{begin} {i} {j}");
                }
            }
        }
    }

    #[test]
    fn a_use_pushes_an_idle_time_on_when_a_little_has_passed() {
        let clock = Clock::start();
        let hour = Duration::from_secs(3_600);
        let fresh = clock.end_of(Lifetime::Idle(hour));
        assert_eq!(clock.pushed_on(fresh), None, "nothing has passed");
        let aged = clock.end_after(Some(hour * 14 / 16), Some(hour));
        assert!(clock.pushed_on(aged).is_some_and(|end| end.time_to_idle() == fresh.time_to_idle()));
        assert_eq!(clock.pushed_on(clock.after(Duration::from_secs(1))), None, "that is no idle time");
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
