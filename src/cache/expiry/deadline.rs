//! Deadlines: when records expire, in four bytes.
//!
//! Time is counted since the cache was made: in ticks of 4 ms for what expires within 20 days, in seconds for what expires later. A moment
//! is rounded up, so an entry lives at least as long as was asked, and at most a tick longer. Seconds last for 34 years; what is further
//! off is never. The count of ticks goes round after 49 days: an entry that expired, and was not met by any lookup or walk for 24
//! days after that, would be taken for alive again for as long.
//!
//! One bit says that a moment is that of an idle time, which a use pushes on, by how long is told in ten bits beside it: so an entry can have
//! an idle time of its own, and it is pushed on, or replaced by a time that stays, in one step. Such a time is told in 32 to 63 units of so many
//! ticks as that takes, rounded up, and so is its end; that goes round after 30,000 times the time, and after two hours at least.

use std::time::Duration;

use super::compact_duration::{CompactDuration, TICK};

pub(crate) const SECOND: u64 = 1_000_000_000;
/// Set in an idle deadline: a use extends it.
const IDLE: u32 = 1 << 31;
/// Set in a deadline in seconds that is no idle deadline.
const SECONDS: u32 = 1 << 30;
/// The number itself.
const NUMBER: u32 = SECONDS - 1;
/// Deadlines further off are in seconds.
pub(crate) const FAR: u64 = 20 * 86_400 * SECOND;
/// Of an idle time's moment: how many bits its number has, how long the time is above it.
const IDLE_NUMBER_BITS: u32 = 21;
const IDLE_NUMBER: u32 = (1 << IDLE_NUMBER_BITS) - 1;
/// Units from when it was told to its end, at most: 63, those that are granted, and one for rounding; and some for clocks that were read at the same time.
const IDLE_AHEAD_MAX: i64 = 127;
/// An idle time is begun anew by a use when so many units of it have passed, so that most uses write nothing. They are granted on top.
const EXTENDED_BY: u32 = 2;

/// When a record expires; 0 is never.
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

    /// Tells whether the deadline has passed.
    pub(crate) fn is_past(self, now: Now) -> bool {
        !self.is_never() && self.nanoseconds_from(now) <= 0
    }

    /// The time left, a tick less at most, and not more than was asked for; none for never. Of an idle deadline without the units that were granted
    /// on top.
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

    /// The time until the deadline passes; none for never.
    pub(crate) fn until(self, now: Now) -> Option<Duration> {
        (!self.is_never()).then(|| Duration::from_nanos(u64::try_from(self.nanoseconds_from(now)).unwrap_or(0)))
    }

    /// Tells whether the deadline is before `other`. Never is last. Deadlines in different units are compared by the time left from `now`.
    pub(crate) fn is_before(self, other: Self, now: impl FnOnce() -> Now) -> bool {
        match (self.is_never(), other.is_never()) {
            (true, _) => false,
            (false, true) => true,
            _ => match (self.0 & (IDLE | SECONDS), other.0 & (IDLE | SECONDS)) {
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

    /// The earlier of two deadlines.
    pub(crate) fn earlier(a: Self, b: Self, now: Now) -> Self {
        if b.is_before(a, || now) {
            b
        } else {
            a
        }
    }

    /// Tells whether a use extends the deadline.
    #[inline]
    pub(crate) fn is_idle(self) -> bool {
        self.0 & IDLE != 0
    }

    /// The idle time, if a use extends the deadline: not less than was asked for.
    pub(crate) fn time_to_idle(self) -> Option<Duration> {
        self.idle_time().map(|idle| Duration::from_nanos(idle.nanoseconds()))
    }

    pub(crate) fn idle_time(self) -> Option<CompactDuration> {
        self.is_idle().then_some(CompactDuration::from_raw((self.0 & !IDLE) >> IDLE_NUMBER_BITS))
    }

    /// Nanoseconds until the deadline, which is not never; negative if it has passed.
    pub(crate) fn nanoseconds_from(self, now: Now) -> i64 {
        if let Some(idle) = self.idle_time() {
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

    /// An idle deadline, `left` from now, which a use extends to the whole idle time.
    pub(crate) fn idle(idle: CompactDuration, left: Duration, now: Now) -> Self {
        let at = u128::from(now.0) + left.as_nanos().min(idle.nanoseconds().into());
        let number = at.div_ceil(idle.unit().into()) as u32;
        Self(IDLE | idle.raw() << IDLE_NUMBER_BITS | number.wrapping_add(EXTENDED_BY) & IDLE_NUMBER)
    }

    /// The first deadline that can be encoded at or after `nanoseconds`.
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
