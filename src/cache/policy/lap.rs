//! The lap time of the main queue, as of the hand in CLOCK: how many evictions it takes until walks
//! have visited each record of the queue once.
//!
//! A record that the hand reaches now was last visited one lap ago, so the next victim of main was
//! idle for no less. A key that returns sooner than that is worth a place in main.
//!
//! A change must ensure that the lap time stays correct when the clock wraps.

use std::sync::atomic::{AtomicU32, Ordering};

/// The laps of a hand over one queue. The clock is the tenant's number of evictions.
///
/// The fields are statistics: all accesses are Relaxed, and a lost update only makes an estimate
/// less exact.
#[derive(Default)]
pub(crate) struct Lap {
    /// The clock at the start of this lap, and the duration of the lap before, in evictions.
    began: AtomicU32,
    before: AtomicU32,
    /// Number of records in this lap, and of those that the hand has not visited yet.
    len: AtomicU32,
    left: AtomicU32,
}

impl Lap {
    /// Moves the hand over `visited` records of a queue with `len` records, and starts the next lap
    /// when none is left in this one. The rest of a lap is no longer than the queue is now: most
    /// records may have been removed since the lap began.
    pub(crate) fn advance(&self, visited: u64, len: u64, clock: u32) {
        let left = u64::from(self.left.load(Ordering::Relaxed)).min(len);
        match left.checked_sub(visited).filter(|left| *left > 0) {
            Some(left) => self.left.store(left as u32, Ordering::Relaxed),
            None => {
                // The first call starts the first lap, at the clock's zero: there is no earlier lap
                // to measure.
                let is_first = self.len.load(Ordering::Relaxed) == 0;
                let took = clock.wrapping_sub(self.began.load(Ordering::Relaxed));
                self.before.store(if is_first { 0 } else { took }, Ordering::Relaxed);
                self.began.store(if is_first { 0 } else { clock }, Ordering::Relaxed);
                let len = u32::try_from(len).unwrap_or(u32::MAX);
                self.len.store(len, Ordering::Relaxed);
                self.left.store(len, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of evictions since the hand was last at its present position; in the
    /// first lap, since the tenant's first eviction.
    pub(crate) fn idle(&self, clock: u32) -> u64 {
        let now = clock.wrapping_sub(self.began.load(Ordering::Relaxed));
        let len = u64::from(self.len.load(Ordering::Relaxed)).max(1);
        let left = u64::from(self.left.load(Ordering::Relaxed));
        u64::from(now) + u64::from(self.before.load(Ordering::Relaxed)) * left / len
    }

    pub(crate) fn reset(&self) {
        [&self.began, &self.before, &self.len, &self.left].iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_idle_time_is_one_lap_if_uses_are_even() {
        let lap = Lap::default();
        assert_eq!(lap.idle(70), 70);
        // The hand visits one of 100 records every 5 evictions.
        for n in 0..1_000_u32 {
            lap.advance(1, 100, n * 5);
        }
        for n in 1_000..1_200_u32 {
            lap.advance(1, 100, n * 5);
            let idle = lap.idle(n * 5);
            assert!((490..=510).contains(&idle), "{idle}");
        }
    }

    #[test]
    fn the_idle_time_grows_while_the_hand_stands() {
        let lap = Lap::default();
        (0..300_u32).for_each(|n| lap.advance(1, 100, n));
        assert!(lap.idle(10_000) > 9_000);
        (0..100_u32).for_each(|_| lap.advance(1, 100, 10_000));
        (0..100_u32).for_each(|_| lap.advance(1, 100, 10_000));
        assert_eq!(lap.idle(10_000), 0);
        lap.reset();
        assert_eq!(lap.idle(5), 5);
    }

    #[test]
    fn a_lap_ends_early_when_most_records_are_removed() {
        let lap = Lap::default();
        (0..1_500_u32).for_each(|n| lap.advance(1, 1_000, n));
        // 500 records of the second lap are left, and all but 10 are removed.
        (1_500..1_510_u32).for_each(|n| lap.advance(1, 10, n));
        assert_eq!(lap.idle(1_509), u64::from(lap.before.load(Ordering::Relaxed)), "a new lap has begun");
        (1_510..1_550_u32).for_each(|n| lap.advance(1, 10, n));
        assert!(lap.idle(1_550) <= 12, "{}", lap.idle(1_550));
    }

    #[test]
    fn a_clock_that_wraps_is_tolerated() {
        let lap = Lap::default();
        for n in 0..1_000_u32 {
            lap.advance(1, 10, (u32::MAX - 500).wrapping_add(n));
        }
        assert!(lap.idle((u32::MAX - 500).wrapping_add(1_000)) <= 12);
    }
}
