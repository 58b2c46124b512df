//! Watermarks: the reclaimer starts before a limit is reached, so that threads seldom have to reclaim for themselves.
//!
//! ```text
//!     0 ------------------------ target ------ low ---- max
//!                                  |            |        |
//!                       reclaim stops        starts      charges are refused
//! ```
//!
//! The gap between start and stop is hysteresis: without it the thread would wake for every object.

use lowwater_lru_core::Bytes;

/// How far below a group's `max` the reclaimer starts, and how far it goes.
///
/// By default the gaps are parts of each limit ([`RELATIVE`](Self::RELATIVE)), so they follow a
/// limit that is changed, by hand or by pressure. Gaps in bytes stay as they are, cut to a
/// sixteenth and an eighth of `max`, so that one pair serves a budget and the small limits below
/// it.
///
/// ```
/// use lowwater_lru_core::Bytes;
/// use lowwater_shrinker::Watermarks;
///
/// for marks in [Watermarks::RELATIVE, Watermarks::for_budget(Bytes::mib(64))] {
///     assert!(!marks.is_low(Bytes::mib(62), Bytes::mib(64)));
///     assert!(marks.is_low(Bytes::mib(63), Bytes::mib(64)));
///     assert_eq!(marks.target(Bytes::mib(64)), Bytes::mib(60));
///     assert!(marks.is_near(Bytes::mib(62), Bytes::mib(64)));
///     assert!(!marks.is_near(Bytes::mib(61), Bytes::mib(64)));
/// }
/// assert_eq!(Watermarks::RELATIVE.target(Bytes::mib(32)), Bytes::mib(30));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "WMARK_LOW")]
#[doc(alias = "WMARK_HIGH")]
pub struct Watermarks {
    /// Reclaim starts when usage is above `max` less this; [`Bytes::MAX`] stands for a 32nd of each
    /// `max`.
    pub low_gap: Bytes,
    /// Reclaim stops when usage is at most `max` less this; taken as `low_gap` if it is less.
    /// [`Bytes::MAX`] stands for a 16th of each `max`.
    pub high_gap: Bytes,
}

/// Of a limit, the part that is the low gap, and so how much of it charges may use up while the
/// reclaimer wakes.
const LOW_PARTS: u64 = 32;
/// Of a limit, the part that is the high gap.
const HIGH_PARTS: u64 = 16;
/// Gaps in bytes are not larger than these parts of a limit.
const LOW_PARTS_MIN: u64 = 16;
const HIGH_PARTS_MIN: u64 = 8;

impl Watermarks {
    /// A 32nd and a 16th of each limit, whatever that is just now. The default of a runtime.
    pub const RELATIVE: Self = Self { low_gap: Bytes::MAX, high_gap: Bytes::MAX };

    /// A 32nd and a 16th of `budget`, in bytes: another budget later does not change them.
    pub const fn for_budget(budget: Bytes) -> Self {
        Self { low_gap: Bytes::new(budget.get() / LOW_PARTS), high_gap: Bytes::new(budget.get() / HIGH_PARTS) }
    }

    /// Is it time to start, with `usage` of at most `max`? Never without a limit.
    pub fn is_low(&self, usage: Bytes, max: Bytes) -> bool {
        max < Bytes::MAX && usage > max.saturating_sub(self.low_gap(max))
    }

    /// Is it nearly time to start? Half way between where reclaim stops and where it starts: who makes room for itself here leaves the
    /// reclaimer nothing to do.
    pub fn is_near(&self, usage: Bytes, max: Bytes) -> bool {
        let below = max.saturating_sub(self.low_gap(max)).saturating_sub(self.target(max));
        max < Bytes::MAX && usage > self.target(max).saturating_add(Bytes::new(below.get() / 2))
    }

    /// The usage at which reclaim stops; no bound without a limit.
    pub fn target(&self, max: Bytes) -> Bytes {
        if max == Bytes::MAX {
            return max;
        }
        let gap = Self::gap(self.high_gap, max, HIGH_PARTS, HIGH_PARTS_MIN);
        max.saturating_sub(gap.max(self.low_gap(max)))
    }

    fn low_gap(&self, max: Bytes) -> Bytes {
        Self::gap(self.low_gap, max, LOW_PARTS, LOW_PARTS_MIN)
    }

    /// The gap below this `max`: one of the `parts` if it is relative, else so many bytes, cut to
    /// one of the `parts_min`.
    fn gap(gap: Bytes, max: Bytes, parts: u64, parts_min: u64) -> Bytes {
        match gap {
            Bytes::MAX => Bytes::new(max.get() / parts),
            bytes => Bytes::new(bytes.get().min(max.get() / parts_min)),
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
            let (marks, max) = (Watermarks::RELATIVE, Bytes::kib(kib));
            assert_eq!(marks, Watermarks::default());
            assert_eq!(marks.target(max), Bytes::kib(kib / 16 * 15));
            assert!(!marks.is_low(Bytes::kib(kib / 32 * 31), max));
            assert!(marks.is_low(Bytes::kib(kib / 32 * 31 + 1), max));
            assert_eq!(marks.target(max), Watermarks::for_budget(max).target(max));
        }
        assert!(!Watermarks::RELATIVE.is_low(Bytes::MAX, Bytes::MAX));
    }

    proptest! {
        #[test]
        fn reclaim_that_has_reached_its_target_does_not_start_again(low: u64, high: u64, max: u64, usage: u64) {
            let marks = Watermarks { low_gap: Bytes::new(low), high_gap: Bytes::new(high) };
            let (max, usage) = (Bytes::new(max), Bytes::new(usage));
            prop_assert!(marks.target(max) <= max);
            prop_assert!(!marks.is_low(marks.target(max), max));
            prop_assert!(!marks.is_near(marks.target(max), max));
            prop_assert!(!marks.is_low(usage, max) || marks.is_near(usage, max));
        }
    }
}
