//! Deadlines: when records expire, in four bytes.
//!
//! Time is counted since the first clock of the process began, or from a manual clock's 0: in ticks
//! of 4 ms for deadlines within 20 days, in seconds for later ones. A deadline is rounded up, so a
//! record lives at least as long as requested. It lives less than two ticks longer: a count of 0
//! would mean never, and is stored as 1. A deadline in seconds is less than a second late.
//! Seconds last for 34 years; a deadline further off is stored as never.
//!
//! One bit marks an idle deadline, which a use extends. Ten bits beside it encode the idle time, so
//! that each record can have its own, and so that extending the deadline, or replacing it with a
//! fixed one, is a single store. An idle time is at most 63 units. A unit is one tick for idle
//! times below 64 ticks; longer ones are 32 to 63 units of more ticks. The idle time is rounded up
//! to units, and so is the deadline.
//!
//! # The floor
//!
//! The counts wrap: ticks after 49 days, units after at least 33,000 times the idle time and two
//! hours. So a stored count is not compared with the current time, which may have advanced by
//! any step, but decoded relative to the clock's floor: it is the deadline with this count that is
//! nearest to the floor. The floor advances only after a sweep has removed the records that had
//! expired when the sweep began, to that time at most (`reaper.rs`). So a record that has expired
//! stays expired, however long no thread has looked at it.
//!
//! Rejected: wider deadlines, which are four more bytes in each record; and a sweep by the insert
//! that notices a long pause, which would be O(records).
//!
//! A deadline that is too far from the floor for its count is stored in seconds, which do not wrap:
//! an idle deadline then becomes a fixed one. Only records that are inserted or used before the
//! first sweep after a long pause have such a deadline: the pause and the record's time are
//! together longer than half the range of the count: 24 days, or for an idle deadline 16,000 times
//! the idle time or more, and at least an hour.
//!
//! A change must ensure that a deadline stays in four bytes, is never early, and that one that has
//! passed stays past.

use std::time::Duration;

use super::compact_duration::{CompactDuration, TICK};

pub(crate) const SECOND: u64 = 1_000_000_000;
/// Set in an idle deadline: a use extends it.
const IDLE: u32 = 1 << 31;
/// Set in a deadline in seconds that is no idle deadline.
const SECONDS: u32 = 1 << 30;
/// The bits of the number of ticks or seconds.
const NUMBER: u32 = SECONDS - 1;
/// Nanoseconds beyond which a deadline is in seconds: less than half the range of ticks, 24 days,
/// so that the floor may lag behind the clock by days. `CacheBuilder::time_to_live` documents it.
pub(crate) const FAR: u64 = 20 * 86_400 * SECOND;
/// Bits of the number of units in an idle deadline; the idle time is in the bits above.
const IDLE_NUMBER_BITS: u32 = 21;
const IDLE_NUMBER: u32 = (1 << IDLE_NUMBER_BITS) - 1;
/// Bits of the number of ticks.
const NUMBER_BITS: u32 = 30;
/// A stored count is at most half of its range ahead of the floor, less this margin for counts that
/// are rounded up. More than enough: a count is rounded up by less than four.
const MARGIN: u64 = 256;
/// A use extends an idle deadline only when more than this many units of it have passed, so that
/// most uses write nothing. The same number of units is added to each idle deadline.
const EXTENDED_BY: u32 = 2;

/// The time when a record expires; 0 is never.
#[doc(alias = "expiration")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline(u32);

/// The time to which a clock's floor has advanced, in seconds; see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Floor(pub(crate) u32);

/// The current time, in nanoseconds since the clock's 0, and the clock's floor, which is not later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) at: u64,
    pub(crate) floor: Floor,
}

/// A deadline to be stored in a record, and the floor for which it was encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expires {
    pub(crate) at: Deadline,
    /// The deadline beyond which no use extends `at`; never, if there is none. Encoded for the same
    /// floor.
    pub(crate) live_end: Deadline,
    pub(crate) floor: Floor,
}

/// The deadline of a record, and the clock's floor while the record was in the index. When the
/// record has left, the floor may advance beyond its deadline, and the count alone would then mean
/// another time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenDeadline {
    pub(crate) at: Deadline,
    pub(crate) floor: Floor,
}

/// The time by which the floor may lag behind the clock before a sweep raises it: a quarter of the
/// shortest distance ahead of the floor at which a stored count wraps.
const LAG: u64 = (1 << (IDLE_NUMBER_BITS - 2)) / 2 * TICK;

impl Now {
    /// Returns whether the floor lags behind the clock so much that a sweep is due.
    pub(crate) fn lags(self) -> bool {
        self.at.saturating_sub(self.floor.nanoseconds()) > LAG
    }
}

impl Expires {
    pub(crate) const NEVER: Self = Self { at: Deadline::NEVER, live_end: Deadline::NEVER, floor: Floor(0) };
    /// In place of a new record's deadline: the one of the record that it replaces, as of the
    /// insert.
    pub(crate) const OF_REPLACED: Self = Self { floor: Floor::OF_REPLACED, ..Self::NEVER };
}

impl Floor {
    /// That of [`Expires::OF_REPLACED`]: no clock reaches it.
    pub(crate) const OF_REPLACED: Self = Self(u32::MAX);

    /// Returns the last floor that is not after `now`.
    pub(crate) fn of(now: Now) -> Self {
        Self(u32::try_from(now.at / SECOND).unwrap_or(u32::MAX))
    }

    fn nanoseconds(self) -> u64 {
        u64::from(self.0) * SECOND
    }

    /// Returns the count of `unit` nearest to the floor whose lowest `bits` bits are those of
    /// `number`.
    fn decode(self, number: u32, bits: u32, unit: u64) -> i64 {
        let floor = (self.nanoseconds() / unit) as i64;
        let ahead = number.wrapping_sub(floor as u32) << (32 - bits);
        floor + i64::from(ahead as i32 >> (32 - bits))
    }

    /// Returns whether [`decode`](Self::decode) returns this count for its lowest `bits` bits.
    fn reaches(self, count: u64, bits: u32, unit: u64) -> bool {
        count < self.nanoseconds() / unit + (1 << (bits - 1)) - MARGIN
    }
}

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

    /// Returns the time left; none for never. The most by which the deadline was rounded up is
    /// subtracted (a tick or a second; for an idle deadline a unit and those of [`EXTENDED_BY`]),
    /// so that the time is not longer than requested; only a count of 0, stored as 1, adds a tick.
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

    /// Returns whether the deadline is before `other`. Never is last.
    pub(crate) fn is_before(self, other: Self, floor: Floor) -> bool {
        match (self.is_never(), other.is_never()) {
            (true, _) => false,
            (false, true) => true,
            _ => self.nanoseconds(floor) < other.nanoseconds(floor),
        }
    }

    /// Returns the earlier of two deadlines.
    pub(crate) fn earlier(a: Self, b: Self, floor: Floor) -> Self {
        if b.is_before(a, floor) {
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
        self.nanoseconds(now.floor).saturating_sub(now.at as i64)
    }

    /// Returns the deadline, which is not never, in nanoseconds since the clock's 0. It is negative
    /// for a count before that, which no record has.
    pub(crate) fn nanoseconds(self, floor: Floor) -> i64 {
        if let Some(idle) = self.idle_time() {
            let unit = idle.unit();
            return floor.decode(self.0 & IDLE_NUMBER, IDLE_NUMBER_BITS, unit).saturating_mul(unit as i64);
        }
        if self.0 & SECONDS != 0 {
            return i64::from(self.0 & NUMBER) * SECOND as i64;
        }
        floor.decode(self.0 & NUMBER, NUMBER_BITS, TICK).saturating_mul(TICK as i64)
    }

    /// Returns the last floor that is not after the deadline; the last of all for never.
    pub(crate) fn floor(self, floor: Floor) -> Floor {
        if self.is_never() {
            return Floor(u32::MAX);
        }
        let at = u64::try_from(self.nanoseconds(floor)).unwrap_or(0);
        Floor::of(Now { at, floor })
    }

    /// Returns an idle deadline, `left` from now, which a use extends to the whole idle time; a
    /// fixed deadline in seconds, if the count of units does not reach from the floor.
    pub(crate) fn idle(idle: CompactDuration, left: Duration, now: Now) -> Self {
        let at = u128::from(now.at) + left.as_nanos().min(idle.nanoseconds().into());
        // Below 2^64: the clock and each idle time are below 2^63 nanoseconds.
        let number = at.div_ceil(idle.unit().into()) as u64 + u64::from(EXTENDED_BY);
        if !now.floor.reaches(number, IDLE_NUMBER_BITS, idle.unit()) {
            return Self::in_seconds(at as u64);
        }
        Self(IDLE | idle.raw() << IDLE_NUMBER_BITS | number as u32 & IDLE_NUMBER)
    }

    /// Returns the first deadline in whole seconds at or after `at`, in nanoseconds.
    pub(crate) fn in_seconds(at: u64) -> Self {
        let seconds = u32::try_from(at.div_ceil(SECOND)).unwrap_or(u32::MAX);
        if seconds <= NUMBER {
            Self(seconds | SECONDS)
        } else {
            Self::NEVER
        }
    }

    /// Returns the first deadline that can be encoded at or after `nanoseconds`.
    pub(crate) fn at(nanoseconds: u128, now: Now) -> Self {
        let Some(at) = u64::try_from(nanoseconds).ok() else { return Self::NEVER };
        let ticks = at.div_ceil(TICK);
        if at - now.at > FAR || !now.floor.reaches(ticks, NUMBER_BITS, TICK) {
            return Self::in_seconds(at);
        }
        match ticks as u32 & NUMBER {
            0 => Self(1),
            ticks => Self(ticks),
        }
    }
}
