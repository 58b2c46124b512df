//! Deadlines: when records expire, in four bytes.
//!
//! Time is counted since the cache was made: in ticks of 4 ms for deadlines within 20 days, in
//! seconds for later ones. A deadline is rounded up, so a record lives at least as long as
//! requested, and at most a tick longer. Seconds last for 34 years; a deadline further off is
//! stored as never. The count of ticks wraps after 49 days: an expired record that no lookup or
//! walk has visited for 24 days would count as alive again for the next 24 days.
//!
//! One bit marks an idle deadline, which a use extends. Ten bits beside it encode the idle time, so
//! that each record can have its own, and so that extending the deadline, or replacing it with a
//! fixed one, is a single store. An idle time is 32 to 63 units, and a unit is a number of ticks
//! that depends on the idle time; the idle time is rounded up to units, and so is the deadline. The
//! count of units wraps after 30,000 times the idle time, and after two hours at least.

use std::time::Duration;

use super::compact_duration::{CompactDuration, TICK};

pub(crate) const SECOND: u64 = 1_000_000_000;
/// Set in an idle deadline: a use extends it.
const IDLE: u32 = 1 << 31;
/// Set in a deadline in seconds that is no idle deadline.
const SECONDS: u32 = 1 << 30;
/// The bits of the number of ticks or seconds.
const NUMBER: u32 = SECONDS - 1;
/// Nanoseconds beyond which a deadline is in seconds.
pub(crate) const FAR: u64 = 20 * 86_400 * SECOND;
/// Bits of the number of units in an idle deadline; the idle time is in the bits above.
const IDLE_NUMBER_BITS: u32 = 21;
const IDLE_NUMBER: u32 = (1 << IDLE_NUMBER_BITS) - 1;
/// The most units from the current time to an idle deadline: 63, those of [`EXTENDED_BY`], and one
/// for rounding; the rest is a margin for clocks that were read at the same time.
const IDLE_AHEAD_MAX: i64 = 127;
/// A use extends an idle deadline only when more than this many units of it have passed, so that
/// most uses write nothing. The same number of units is added to each idle deadline.
const EXTENDED_BY: u32 = 2;

/// The time when a record expires; 0 is never.
#[doc(alias = "expiration")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline(u32);

/// The current time: nanoseconds since the clock was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now(pub(crate) u64);

impl Deadline {
    pub(crate) const NEVER: Self = Self(0);

    pub(crate) const fn raw(self) -> u32 {
        self.0
    }

    pub(crate) fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    #[inline]
    pub(crate) fn is_never(self) -> bool {
        self == Self::NEVER
    }

    /// Returns whether the deadline has passed.
    pub(crate) fn is_past(self, now: Now) -> bool {
        !self.is_never() && self.nanoseconds_from(now) <= 0
    }

    /// Returns the time left: at most one tick too short, and never longer than requested; none for
    /// never. The units added to an idle deadline ([`EXTENDED_BY`]) are subtracted.
    pub(crate) fn time_left(self, now: Now) -> Option<Duration> {
        if self.is_never() {
            return None;
        }
        let on_top = match self.idle_time() {
            Some(idle) => u64::from(EXTENDED_BY + 1) * idle.unit(),
            None if self.0 & SECONDS != 0 => SECOND,
            None => TICK,
        };
        let left = u64::try_from(self.nanoseconds_from(now)).unwrap_or(0);
        Some(Duration::from_nanos(left.saturating_sub(on_top)))
    }

    /// Returns the time until the deadline passes; none for never.
    pub(crate) fn until(self, now: Now) -> Option<Duration> {
        (!self.is_never()).then(|| Duration::from_nanos(u64::try_from(self.nanoseconds_from(now)).unwrap_or(0)))
    }

    /// Returns whether the deadline is before `other`. Never is last. Deadlines in different units
    /// are compared by the time left from `now`.
    pub(crate) fn is_before(self, other: Self, now: impl FnOnce() -> Now) -> bool {
        match (self.is_never(), other.is_never()) {
            (true, _) => false,
            (false, true) => true,
            _ => match (self.0 & (IDLE | SECONDS), other.0 & (IDLE | SECONDS)) {
                // The number has 30 bits; the highest bit of the difference is the sign.
                (0, 0) => ((self.0.wrapping_sub(other.0) << 2) as i32) < 0,
                (SECONDS, SECONDS) => self.0 & NUMBER < other.0 & NUMBER,
                _ => {
                    let now = now();
                    self.nanoseconds_from(now) < other.nanoseconds_from(now)
                }
            },
        }
    }

    /// Returns the earlier of two deadlines.
    pub(crate) fn earlier(a: Self, b: Self, now: Now) -> Self {
        if b.is_before(a, || now) {
            b
        } else {
            a
        }
    }

    /// Returns whether a use extends the deadline.
    #[inline]
    pub(crate) fn is_idle(self) -> bool {
        self.0 & IDLE != 0
    }

    /// The idle time, if a use extends the deadline: not shorter than requested.
    pub(crate) fn time_to_idle(self) -> Option<Duration> {
        self.idle_time().map(|idle| Duration::from_nanos(idle.nanoseconds()))
    }

    pub(crate) fn idle_time(self) -> Option<CompactDuration> {
        self.is_idle().then_some(CompactDuration::from_raw((self.0 & !IDLE) >> IDLE_NUMBER_BITS))
    }

    /// Returns the nanoseconds until the deadline, which is not never; negative if it has passed.
    pub(crate) fn nanoseconds_from(self, now: Now) -> i64 {
        if let Some(idle) = self.idle_time() {
            let unit = idle.unit();
            // No deadline is further ahead than `IDLE_AHEAD_MAX`; a larger difference means that
            // the deadline has passed.
            let units = match i64::from(self.0.wrapping_sub((now.0 / unit) as u32) & IDLE_NUMBER) {
                ahead if ahead <= IDLE_AHEAD_MAX => ahead,
                behind => behind - i64::from(IDLE_NUMBER) - 1,
            };
            return units.saturating_mul(unit as i64).saturating_sub((now.0 % unit) as i64);
        }
        if self.0 & SECONDS != 0 {
            return (u64::from(self.0 & NUMBER) * SECOND) as i64 - now.0 as i64;
        }
        // The number has 30 bits; the highest bit of the difference is the sign.
        let ticks = (self.0.wrapping_sub((now.0 / TICK) as u32) << 2) as i32 >> 2;
        i64::from(ticks) * TICK as i64 - (now.0 % TICK) as i64
    }

    /// Returns an idle deadline, `left` from now, which a use extends to the whole idle time.
    pub(crate) fn idle(idle: CompactDuration, left: Duration, now: Now) -> Self {
        let at = u128::from(now.0) + left.as_nanos().min(idle.nanoseconds().into());
        let number = at.div_ceil(idle.unit().into()) as u32;
        Self(IDLE | idle.raw() << IDLE_NUMBER_BITS | number.wrapping_add(EXTENDED_BY) & IDLE_NUMBER)
    }

    /// Returns the first deadline that can be encoded at or after `nanoseconds`.
    pub(crate) fn at(nanoseconds: u128, now: Now) -> Self {
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
