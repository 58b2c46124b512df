//! When entries expire, in four bytes.
//!
//! Time is counted in ticks of 4 ms since the cache was made. A moment is rounded up to a tick, so an entry lives at least as long as
//! was asked, and at most a tick longer. The count goes round after 198 days, and is read as being within 99 days of now: a time to
//! live of more than that is for ever, and an entry that expired and was not met by any lookup or walk for 99 days would be alive again.

use std::time::{Duration, Instant};

/// Nanoseconds in a tick.
const TICK: u128 = 4_000_000;
/// Ticks that can be told from the past.
const AHEAD_MAX: u128 = (1 << 31) - 1;

/// A tick; 0 is the moment that does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(u32);

/// Where ticks are counted from.
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
    pub(super) fn is_past(self, now: Self) -> bool {
        !self.is_never() && now.0.wrapping_sub(self.0) as i32 >= 0
    }

    /// How long it is until then; none if it does not come.
    pub(super) fn left(self, now: Self) -> Option<Duration> {
        let ticks = self.0.wrapping_sub(now.0) as i32;
        (!self.is_never()).then(|| Duration::from_nanos(u64::from(ticks.max(0) as u32) * TICK as u64))
    }
}

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    /// The tick that is now.
    pub(super) fn now(&self) -> Moment {
        Moment((self.0.elapsed().as_nanos() / TICK) as u32)
    }

    /// The first tick that is at least `time` from now; never, if that is too far off.
    pub(super) fn after(&self, time: Duration) -> Moment {
        let (now, time) = (self.0.elapsed().as_nanos(), time.as_nanos());
        let at = (now + time).div_ceil(TICK);
        if at - now / TICK > AHEAD_MAX {
            return Moment::NEVER;
        }
        Moment(match at as u32 {
            0 => 1,
            at => at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_come_in_time_and_go_round() {
        let clock = Clock::start();
        let soon = clock.after(Duration::from_millis(20));
        assert!(!soon.is_past(clock.now()));
        assert!(soon.left(clock.now()).is_some_and(|left| left <= Duration::from_millis(24)));
        std::thread::sleep(Duration::from_millis(25));
        assert!(soon.is_past(clock.now()));
        assert!(clock.after(Duration::from_secs(200 * 86_400)).is_never());
        assert!(!Moment::NEVER.is_past(clock.now()) && Moment::NEVER.left(clock.now()).is_none());
        let (before, after) = (Moment(u32::MAX - 5), Moment(7));
        assert!(before.is_past(after) && !after.is_past(before));
        assert_eq!(after.left(before), Some(Duration::from_millis(13 * 4)));
    }
}
