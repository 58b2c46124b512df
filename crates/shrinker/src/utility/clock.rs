//! The clock by which tallies decay: bytes that were evicted, in parts of the budget.

use lowwater_base::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Epochs in which as much is evicted as the budget is.
const EPOCHS_PER_BUDGET: u64 = 16;
/// Epochs after which a tally is half of what it was.
pub(crate) const HALF_LIFE: u32 = 4;

/// Counts epochs. Bytes evicted stand for bytes inserted: while memory is full they are the same, and
/// while it is not, nothing has to be chosen.
#[derive(Default)]
pub(crate) struct EvictionClock {
    epoch: AtomicU32,
    /// Bytes until the next epoch: an `i64` in two's complement, as targets without 64-bit atomics have
    /// no other.
    left: AtomicU64,
}

impl EvictionClock {
    /// The epoch; begins again after 2 to the power of 32.
    pub(crate) fn epoch(&self) -> u32 {
        // Relaxed, as everything here: a number that moves on.
        self.epoch.load(Ordering::Relaxed)
    }

    /// Counts `bytes` that were evicted under a budget of so many.
    pub(crate) fn advance(&self, bytes: u64, budget: u64) {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX / 4);
        let (bytes, epoch) = (signed(bytes), signed(budget / EPOCHS_PER_BUDGET).max(1));
        let before = self.left.load(Ordering::Relaxed);
        if before as i64 > epoch {
            // The budget was larger. If another thread was faster, the next one looks again.
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
    fn sixteen_epochs_are_a_budget_whatever_the_steps() {
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
    fn no_number_is_too_large() {
        for budget in [0, 1, u64::MAX] {
            let clock = EvictionClock::default();
            (0..10).for_each(|_| clock.advance(u64::MAX, budget));
            clock.advance(0, budget);
        }
    }
}
