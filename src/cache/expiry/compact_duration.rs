//! An idle time (how long an entry lives without a use) in ten bits: rounded up to a tick below 64
//! ticks, from there on by at most a 32nd.
//!
//! An idle time shares a record's four bytes with the deadline (`deadline.rs`).
//!
//! A change must ensure that an idle time is never shorter than requested, and stays in ten bits.

use std::time::Duration;

/// Nanoseconds in a tick, the smallest unit of deadlines and idle times. 30 bits count ticks for 49
/// days (`deadline.rs`). `CacheBuilder::time_to_idle` documents multiples of a tick.
pub(crate) const TICK: u64 = 4_000_000;
/// The length of a tick.
pub(crate) const TICK_TIME: Duration = Duration::from_nanos(TICK);

/// An idle time in ten bits, like a floating-point number: five bits of exponent and five of
/// mantissa. Below 32 ticks the value is the number of ticks. Otherwise it is (32 + the lowest five
/// bits) units, and a unit is 2^(highest five bits - 1) ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompactDuration(u32);

impl CompactDuration {
    /// The bits of the mantissa, and of the exponent.
    const STEP_BITS: u32 = 5;
    const STEPS: u32 = 1 << Self::STEP_BITS;

    pub(crate) fn raw(self) -> u32 {
        self.0
    }

    /// Decodes the result of [`raw`](Self::raw).
    pub(crate) fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// Returns the shortest encodable idle time of at least `time`; `None` if `time` is longer than
    /// the longest one, which is 8.5 years.
    pub(crate) fn at_least(time: Duration) -> Option<Self> {
        let ticks = u64::try_from(time.as_nanos().div_ceil(TICK.into())).ok()?;
        let steps = u64::from(Self::STEPS);
        let mut doublings = 0_u32;
        while ticks.div_ceil(1 << doublings) >= 2 * steps {
            doublings += 1;
        }
        let units = ticks.div_ceil(1 << doublings);
        let idle = match units.checked_sub(steps) {
            Some(above) => (u64::from(doublings) + 1) << Self::STEP_BITS | above,
            None => units,
        };
        (idle < 1 << (2 * Self::STEP_BITS)).then_some(Self(idle as u32))
    }

    /// Returns the nanoseconds of the idle time's unit.
    pub(crate) fn unit(self) -> u64 {
        TICK << (self.0 >> Self::STEP_BITS).saturating_sub(1)
    }

    pub(crate) fn nanoseconds(self) -> u64 {
        let units = if self.0 < Self::STEPS { self.0 } else { Self::STEPS + self.0 % Self::STEPS };
        u64::from(units) * self.unit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_idle_times_are_at_most_a_32nd_longer() {
        let times =
            (0..70).map(|bit| 3_u128 << bit).chain([1, 31 * 4_000_000, 32 * 4_000_000, 33 * 4_000_000, 64 * 4_000_000]);
        for nanoseconds in times.filter(|time| *time < u128::from(u64::MAX)) {
            let time = Duration::from_nanos(nanoseconds as u64);
            let Some(idle) = CompactDuration::at_least(time) else {
                assert!(time > Duration::from_secs(8 * 365 * 86_400), "{time:?}");
                continue;
            };
            let told = Duration::from_nanos(idle.nanoseconds());
            assert!(told >= time && told <= time + time / 32 + TICK_TIME, "{time:?} {told:?}");
            assert_eq!(CompactDuration::at_least(told), Some(idle));
        }
    }
}
