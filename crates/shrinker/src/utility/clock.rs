//! The clock by which tallies (`tallies.rs`) decay. It counts evicted bytes, in fractions of the
//! budget.
//!
//! Time is measured in evicted bytes, not seconds: an idle system forgets nothing, and a busy one
//! adapts as fast as it evicts. A race may delay a correction of `left` or count an epoch twice:
//! tallies are estimates, so neither matters.
//!
//! A change must ensure that only evicted bytes advance it. The half-life is also a constant of the
//! oracle (`tests/one_budget/oracle.rs` of the package `lowwater`), as a part of the budget.

use lowwater_base::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The number of epochs in which the evicted bytes amount to the budget.
const EPOCHS_PER_BUDGET: u64 = 16;
/// The number of epochs after which a tally has decayed to half.
pub(crate) const HALF_LIFE: u32 = 4;

/// Counts epochs. Evicted bytes stand for inserted bytes: while memory is full they are equal, and
/// while it is not full, no victim has to be selected.
#[derive(Default)]
pub(crate) struct EvictionClock {
    epoch: AtomicU32,
    /// Bytes until the next epoch. They begin at 0, so the first call of `advance` ends an epoch at
    /// once. An `i64` in two's complement, because targets without 64-bit atomics provide no signed
    /// type.
    left: AtomicU64,
}

impl EvictionClock {
    /// Returns the epoch; wraps after 2^32.
    pub(crate) fn epoch(&self) -> u32 {
        // Relaxed, as all accesses in this file: a counter that orders no other data.
        self.epoch.load(Ordering::Relaxed)
    }

    /// Returns the KiB until the next epoch, at most `u32::MAX`.
    pub(crate) fn kib_left(&self) -> u32 {
        // It is negative for the moment between the two steps of `advance`.
        let left = u64::try_from(self.left.load(Ordering::Relaxed) as i64).unwrap_or(0);
        u32::try_from(left >> 10).unwrap_or(u32::MAX)
    }

    /// Advances the clock by `bytes` evicted under a budget of `budget` bytes.
    pub(crate) fn advance(&self, bytes: u64, budget: u64) {
        // A number above `i64::MAX` counts as a quarter of it, so that `left` does not wrap.
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX / 4);
        let (bytes, epoch) = (signed(bytes), signed(budget / EPOCHS_PER_BUDGET).max(1));
        let before = self.left.load(Ordering::Relaxed);
        if before as i64 > epoch {
            // The budget was larger before. If another thread changed `left` first, the next call
            // corrects it.
            let _ = self.left.compare_exchange(before, epoch as u64, Ordering::Relaxed, Ordering::Relaxed);
        }
        let left = (self.left.fetch_sub(bytes as u64, Ordering::Relaxed) as i64).saturating_sub(bytes);
        if left <= 0 {
            let epochs = left.unsigned_abs() / epoch.unsigned_abs() + 1;
            self.left.fetch_add(epoch.saturating_mul(signed(epochs)) as u64, Ordering::Relaxed);
            self.epoch.fetch_add(epochs as u32, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, feature = "std", not(lowwater_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_sixteen_epochs_for_all_step_sizes() {
        for step in [1, 7, 100, 1_000, 5_000] {
            let clock = EvictionClock::default();
            for _ in 0..160_000 / step {
                clock.advance(step, 16_000);
            }
            let expected = 160_000 / step * step / 1_000;
            assert!(clock.epoch().abs_diff(expected as u32) <= 1, "{} epochs in steps of {step}", clock.epoch());
        }
    }

    #[test]
    fn epochs_become_shorter_with_the_budget() {
        let clock = EvictionClock::default();
        (0..3).for_each(|_| clock.advance(1, 1 << 40));
        let before = clock.epoch();
        (0..160).for_each(|_| clock.advance(100, 16_000));
        assert!((15..=17).contains(&(clock.epoch() - before)), "{} epochs", clock.epoch() - before);
    }

    #[test]
    fn a_budget_below_sixteen_bytes_has_an_epoch_for_each_byte() {
        let clock = EvictionClock::default();
        clock.advance(5, 15);
        assert_eq!(clock.epoch(), 6, "one for each byte, and the first, which ends at once");
    }

    #[test]
    fn the_rest_of_an_epoch_is_in_kib() {
        let (clock, budget) = (EvictionClock::default(), 16 << 20);
        assert_eq!(clock.kib_left(), 0, "the first epoch ends at once");
        clock.advance(1, budget);
        assert_eq!(clock.kib_left(), 1_023, "a KiB that has begun does not count");
        clock.advance(10 << 10, budget);
        assert_eq!((clock.kib_left(), clock.epoch()), (1_013, 1));
        clock.left.store(-1_i64 as u64, Ordering::Relaxed);
        assert_eq!(clock.kib_left(), 0);
        clock.left.store(i64::MAX as u64, Ordering::Relaxed);
        assert_eq!(clock.kib_left(), u32::MAX);
    }

    #[test]
    fn no_number_is_too_large() {
        for budget in [0, 1, u64::MAX] {
            let clock = EvictionClock::default();
            (0..10).for_each(|_| clock.advance(u64::MAX, budget));
            clock.advance(0, budget);
        }
        let clock = EvictionClock::default();
        (0..10).for_each(|_| clock.advance(u64::MAX, u64::MAX));
        assert_eq!(clock.epoch(), 21, "`u64::MAX` counts as a quarter of `i64::MAX`; an epoch is an eighth");
    }
}
