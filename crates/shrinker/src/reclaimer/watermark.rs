//! Watermarks: the reclaimer starts before a limit is reached, so that threads seldom have to use
//! direct reclaim.
//!
//! ```text
//!     0 ------------------------ target ------ low ---- max
//!                                  |            |        |
//!                       reclaim stops        starts      charges are refused
//! ```
//!
//! The gap between start and stop is hysteresis: without it the reclaimer would be woken for every
//! object.
//!
//! A change must keep the order of the marks: target, low, min, max. The mark min is in the middle
//! between low and max ([`Watermarks::is_min`]).

use lowwater_lru_core::ByteSize;

/// The distances below a group's `max` at which the reclaimer starts and stops.
///
/// By default the gaps are fractions of each limit ([`RELATIVE`](Self::RELATIVE)), so they follow a
/// limit that is changed, manually or by pressure. Gaps in bytes are constant, but capped at a
/// sixteenth and an eighth of `max`, so that one pair of gaps serves a budget and the small limits
/// below it.
///
/// ```
/// use lowwater_lru_core::ByteSize;
/// use lowwater_shrinker::Watermarks;
///
/// for marks in [Watermarks::RELATIVE, Watermarks::for_budget(ByteSize::mib(64))] {
///     assert!(!marks.is_low(ByteSize::mib(62), ByteSize::mib(64)));
///     assert!(marks.is_low(ByteSize::mib(63), ByteSize::mib(64)));
///     assert_eq!(marks.target(ByteSize::mib(64)), ByteSize::mib(60));
///     assert!(!marks.is_min(ByteSize::mib(63), ByteSize::mib(64)));
///     assert!(marks.is_min(ByteSize::kib(63 * 1024 + 513), ByteSize::mib(64)));
/// }
/// assert_eq!(Watermarks::RELATIVE.target(ByteSize::mib(32)), ByteSize::mib(30));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "WMARK_LOW")]
#[doc(alias = "WMARK_HIGH")]
pub struct Watermarks {
    /// Reclaim starts when usage is above `max` less this gap; [`ByteSize::MAX`] stands for 1/32 of
    /// each `max`.
    pub low_gap: ByteSize,
    /// Reclaim stops when usage is at most `max` less this gap, or less `low_gap` if that is
    /// larger. [`ByteSize::MAX`] stands for 1/16 of each `max`.
    pub high_gap: ByteSize,
}

/// The divisor of a limit for the low gap, which charges may use up while the reclaimer wakes.
const LOW_PARTS: u64 = 32;
/// The divisor of a limit for the high gap.
const HIGH_PARTS: u64 = 16;
/// Gaps in bytes are capped at these fractions of a limit, given as divisors.
const LOW_PARTS_MIN: u64 = 16;
const HIGH_PARTS_MIN: u64 = 8;

impl Watermarks {
    /// 1/32 and 1/16 of each limit's current value. The default of a runtime.
    pub const RELATIVE: Self = Self { low_gap: ByteSize::MAX, high_gap: ByteSize::MAX };

    /// Creates gaps of 1/32 and 1/16 of `budget`, in bytes: a later change of the budget does not
    /// change them.
    pub const fn for_budget(budget: ByteSize) -> Self {
        Self { low_gap: ByteSize::new(budget.get() / LOW_PARTS), high_gap: ByteSize::new(budget.get() / HIGH_PARTS) }
    }

    /// Returns true if reclaim should start, with `usage` under a limit `max`. Never without a
    /// limit.
    pub fn is_low(&self, usage: ByteSize, max: ByteSize) -> bool {
        usage > self.low(max)
    }

    /// Returns true if the reclaimer has fallen behind: usage is above the middle between the
    /// reclaimer's start and `max`. Above it, threads that need memory reclaim some themselves.
    #[doc(alias = "WMARK_MIN")]
    #[inline]
    pub fn is_min(&self, usage: ByteSize, max: ByteSize) -> bool {
        usage > self.min(max)
    }

    /// Returns the usage above which the reclaimer has [fallen behind](Self::is_min); no bound
    /// without a limit.
    #[inline]
    pub fn min(&self, max: ByteSize) -> ByteSize {
        match max {
            ByteSize::MAX => max,
            max => max.saturating_sub(ByteSize::new(self.low_gap(max).get() / 2)),
        }
    }

    /// Returns the usage above which reclaim starts; no bound without a limit.
    #[inline]
    pub fn low(&self, max: ByteSize) -> ByteSize {
        match max {
            ByteSize::MAX => max,
            max => max.saturating_sub(self.low_gap(max)),
        }
    }

    /// Returns the usage at which reclaim stops; no bound without a limit.
    pub fn target(&self, max: ByteSize) -> ByteSize {
        if max == ByteSize::MAX {
            return max;
        }
        let gap = Self::gap(self.high_gap, max, HIGH_PARTS, HIGH_PARTS_MIN);
        max.saturating_sub(gap.max(self.low_gap(max)))
    }

    #[inline]
    fn low_gap(&self, max: ByteSize) -> ByteSize {
        Self::gap(self.low_gap, max, LOW_PARTS, LOW_PARTS_MIN)
    }

    /// Returns the gap below this `max`: 1/`parts` of it if the gap is relative, else the given
    /// bytes, capped at 1/`parts_min` of it.
    #[inline]
    fn gap(gap: ByteSize, max: ByteSize, parts: u64, parts_min: u64) -> ByteSize {
        match gap {
            ByteSize::MAX => ByteSize::new(max.get() / parts),
            bytes => ByteSize::new(bytes.get().min(max.get() / parts_min)),
        }
    }
}

impl Default for Watermarks {
    fn default() -> Self {
        Self::RELATIVE
    }
}

#[cfg(all(test, not(lowwater_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn relative_gaps_are_the_same_part_of_every_limit() {
        for kib in [64, 1 << 10, 1 << 20, 1 << 30] {
            let (marks, max) = (Watermarks::RELATIVE, ByteSize::kib(kib));
            assert_eq!(marks, Watermarks::default());
            assert_eq!(marks.target(max), ByteSize::kib(kib / 16 * 15));
            assert!(!marks.is_low(ByteSize::kib(kib / 32 * 31), max));
            assert!(marks.is_low(ByteSize::kib(kib / 32 * 31 + 1), max));
            assert_eq!(marks.target(max), Watermarks::for_budget(max).target(max));
        }
        assert!(!Watermarks::RELATIVE.is_low(ByteSize::MAX, ByteSize::MAX));
    }

    proptest! {
        #[test]
        fn reclaim_that_has_reached_its_target_does_not_start_again(low: u64, high: u64, max: u64, usage: u64) {
            let marks = Watermarks { low_gap: ByteSize::new(low), high_gap: ByteSize::new(high) };
            let (max, usage) = (ByteSize::new(max), ByteSize::new(usage));
            prop_assert!(marks.target(max) <= marks.low(max) && marks.low(max) <= max);
            prop_assert_eq!(marks.is_low(usage, max), usage > marks.low(max));
            prop_assert!(!marks.is_low(marks.target(max), max));
            prop_assert!(!marks.is_min(usage, max) || marks.is_low(usage, max));
        }
    }
}
