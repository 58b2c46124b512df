//! When entries expire, in four bytes.
//!
//! Time is counted since the cache was made: in ticks of 4 ms for what expires within 40 days, in seconds for what expires later. A moment
//! is rounded up, so an entry lives at least as long as was asked, and at most a tick longer. Seconds last for 68 years; what is further
//! off is never. The count of ticks goes round after 99 days: an entry that expired, and was not met by any lookup or walk for 49
//! days after that, would be taken for alive again for as long.

use std::time::{Duration, Instant};

/// Nanoseconds in a tick.
const TICK: u64 = 4_000_000;
const SECOND: u64 = 1_000_000_000;
/// Says that a moment is told in seconds.
const SECONDS: u32 = 1 << 31;
/// What is further off is told in seconds.
const FAR: u64 = 40 * 86_400 * SECOND;

/// A moment that may come; 0 is the one that does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(u32);

/// The moment that is now: nanoseconds since the clock was started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now(u64);

/// Where time is counted from.
#[derive(Debug)]
pub(super) struct Clock(Instant);

impl Moment {
    pub(super) const NEVER: Self = Self(0);

    pub(super) fn raw(self) -> u32 {
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
            return now.0 / SECOND >= u64::from(self.0 & !SECONDS);
        }
        !self.is_never() && self.ticks_from(now) <= 0
    }

    /// How long it is until then, a tick less at most, and not more than was asked; none if it does not come.
    pub(super) fn left(self, now: Now) -> Option<Duration> {
        if self.is_never() {
            return None;
        }
        let left = if self.0 & SECONDS != 0 {
            (u64::from(self.0 & !SECONDS) * SECOND).saturating_sub(SECOND + now.0)
        } else {
            (u64::try_from(self.ticks_from(now)).unwrap_or(0) * TICK).saturating_sub(TICK + now.0 % TICK)
        };
        Some(Duration::from_nanos(left))
    }

    /// Ticks until then; they go round.
    fn ticks_from(self, now: Now) -> i32 {
        let now = (now.0 / TICK) as u32;
        // Of 31 bits, the highest is the sign.
        (self.0.wrapping_sub(now) << 1) as i32 >> 1
    }

    /// The first that can be told at or after so many nanoseconds.
    fn at(nanoseconds: u128, now: Now) -> Self {
        let Some(at) = u64::try_from(nanoseconds).ok() else { return Self::NEVER };
        if at - now.0 > FAR {
            let seconds = u32::try_from(at.div_ceil(SECOND)).unwrap_or(u32::MAX);
            return if seconds < SECONDS { Self(seconds | SECONDS) } else { Self::NEVER };
        }
        match at.div_ceil(TICK) as u32 & !SECONDS {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400 * SECOND;

    #[test]
    fn moments_come_no_earlier_than_asked_and_a_tick_later_at_most() {
        for begin in [0, 1, 3 * TICK + 7, 98 * DAY + 5, 99 * DAY, 500 * DAY + 11] {
            for time in [0, 1, TICK, 5_000_000, 100 * SECOND, 39 * DAY, 41 * DAY, 3_000 * DAY] {
                let at = Moment::at(u128::from(begin + time), Now(begin));
                let tick = if time > FAR { SECOND } else { TICK };
                assert!(!at.is_never() && at.is_past(Now(begin + time + 2 * tick)), "{begin} {time}");
                assert!(time == 0 || !at.is_past(Now(begin + time - 1)), "{begin} {time}");
                let left = at.left(Now(begin)).expect("it comes").as_nanos() as u64;
                assert!(left <= time && left + 2 * tick >= time, "{begin} {time} {left}");
            }
        }
    }

    #[test]
    fn what_is_too_far_off_never_comes() {
        let clock = Clock::start();
        assert!(clock.after(Duration::MAX).is_never());
        assert!(clock.after(Duration::from_secs(100 * 365 * 86_400)).is_never());
        assert!(!Moment::NEVER.is_past(clock.now()) && Moment::NEVER.left(clock.now()).is_none());
    }
}
