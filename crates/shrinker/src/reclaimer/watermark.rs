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
/// By default the gaps are fractions of each limit ([`RELATIVE`](Self::RELATIVE), and
/// [`relative`](Self::relative) for others), so they follow a limit that is changed, manually or by
/// pressure. Gaps in bytes are constant, but capped at a sixteenth and an eighth of `max`, so that
/// one pair of gaps serves a budget and the small limits below it.
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
/// assert_eq!(Watermarks::relative(128, 64).target(ByteSize::mib(64)), ByteSize::mib(63));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "WMARK_LOW")]
#[doc(alias = "WMARK_HIGH")]
pub struct Watermarks {
    /// Reclaim starts when usage is above `max` less this gap. [`ByteSize::MAX`] stands for 1/32 of
    /// each `max`, and up to 2^32 - 1 bytes less for the parts of [`relative`](Self::relative).
    pub low_gap: ByteSize,
    /// Reclaim stops when usage is at most `max` less this gap, or less `low_gap` if that is
    /// larger. [`ByteSize::MAX`] stands for 1/16 of each `max`, and less as for `low_gap`.
    pub high_gap: ByteSize,
}

/// The divisor of a limit for the low gap, which charges may use up while the reclaimer wakes.
const LOW_PARTS: u64 = 32;
/// The divisor of a limit for the high gap.
const HIGH_PARTS: u64 = 16;
/// The largest divisor of a [`relative_gap`].
const PARTS_MAX: u64 = u32::MAX as u64;
/// Gaps in bytes are capped at these fractions of a limit, given as divisors.
const LOW_PARTS_MIN: u64 = 16;
const HIGH_PARTS_MIN: u64 = 8;

impl Watermarks {
    /// 1/32 and 1/16 of each limit's current value. The default of a runtime.
    pub const RELATIVE: Self = Self::relative(0, 0);

    /// Creates gaps of 1/`low_parts` and 1/`high_parts` of each limit's current value; 0 parts
    /// stand for those of [`RELATIVE`](Self::RELATIVE).
    pub const fn relative(low_parts: u32, high_parts: u32) -> Self {
        Self { low_gap: relative_gap(low_parts), high_gap: relative_gap(high_parts) }
    }

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

    /// Returns the gap below this `max`: a part of it if the gap is relative (1/`parts` if it has
    /// no parts of its own), else the given bytes, capped at 1/`parts_min` of it.
    #[inline]
    fn gap(gap: ByteSize, max: ByteSize, parts: u64, parts_min: u64) -> ByteSize {
        ByteSize::new(match u64::MAX - gap.get() {
            0 => max.get() / parts,
            own_parts @ 1..=PARTS_MAX => max.get() / own_parts,
            _ => gap.get().min(max.get() / parts_min),
        })
    }
}

/// Returns the gap that stands for 1/`parts` of each limit: among the highest byte sizes, which are
/// no gap in bytes.
const fn relative_gap(parts: u32) -> ByteSize {
    ByteSize::new(u64::MAX - parts as u64)
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

    #[test]
    fn relative_gaps_may_have_any_parts() {
        let (gib, max) = (ByteSize::gib(1), ByteSize::MAX);
        for (low, high, gaps) in [(128, 64, (8, 16)), (1, 1, (1024, 1024)), (0, 0, (32, 64)), (256, 0, (4, 64))] {
            let marks = Watermarks::relative(low, high);
            let below = |mark: ByteSize| gib.get() - mark.get();
            assert_eq!((below(marks.low(gib)), below(marks.target(gib))), (gaps.0 << 20, gaps.1 << 20), "{low} {high}");
            assert_eq!((marks.low(max), marks.target(max)), (max, max));
        }
        assert_eq!(Watermarks::relative(32, 16).target(gib), Watermarks::RELATIVE.target(gib));
        let least = Watermarks::relative(u32::MAX, u32::MAX);
        assert_eq!((least.low(gib), least.low(ByteSize::gib(8)).get()), (gib, (8 << 30) - 2));
    }

    /// Returns gaps of all kinds.
    fn gaps() -> impl Strategy<Value = ByteSize> {
        prop_oneof![any::<u64>().prop_map(ByteSize::new), any::<u32>().prop_map(relative_gap)]
    }

    proptest! {
        #[test]
        fn reclaim_that_has_reached_its_target_does_not_start_again(
            low_gap in gaps(),
            high_gap in gaps(),
            max: u64,
            usage: u64,
        ) {
            let marks = Watermarks { low_gap, high_gap };
            let (max, usage) = (ByteSize::new(max), ByteSize::new(usage));
            prop_assert!(marks.target(max) <= marks.low(max) && marks.low(max) <= max);
            prop_assert_eq!(marks.is_low(usage, max), usage > marks.low(max));
            prop_assert!(!marks.is_low(marks.target(max), max));
            prop_assert!(!marks.is_min(usage, max) || marks.is_low(usage, max));
        }
    }
}
