//! A rate limit for all threads: the generic cell rate algorithm, in one atomic word.
//!
//! The word is the time at which all units that were used are paid for. A unit may be used while
//! that time is at most [`BURST_TIME`] ahead of now. So the average is the limit, but for the cost
//! of a use, which is rounded down to nanoseconds; and after a pause a tenth of a second's units
//! and one more may be used at once. One use may be of more units than that: the next one then
//! waits for all of them.
//!
//! A change must ensure that the limit holds for all threads together: the cost of each accepted
//! use is added to the word.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The units of this duration, and one more, may be used at once.
const BURST_TIME: Duration = Duration::from_millis(100);

/// A limit of units (requests, bytes) per second.
#[doc(alias = "GCRA")]
#[doc(alias = "token bucket")]
#[derive(Debug)]
pub struct Rate {
    /// Units per second, at least 1; `u64::MAX`: no limit.
    per_second: AtomicU64,
    /// The time at which all used units are paid for, in nanoseconds of the caller's clock.
    paid_at: AtomicU64,
}

impl Default for Rate {
    fn default() -> Self {
        Self { per_second: AtomicU64::new(u64::MAX), paid_at: AtomicU64::new(0) }
    }
}

// All atomics here are relaxed: each is complete in itself, and guards no other memory.
impl Rate {
    /// Sets the units per second; `u64::MAX`: no limit.
    pub fn set(&self, per_second: u64) {
        if self.per_second.swap(per_second.max(1), Ordering::Relaxed) != per_second {
            // Units that were used before do not count against the new limit.
            self.paid_at.store(0, Ordering::Relaxed);
        }
    }

    /// Uses `units` units at the time `now`.
    ///
    /// # Errors
    ///
    /// The wait until units may be used.
    pub fn try_take(&self, units: u64, now: Duration) -> Result<(), Duration> {
        self.update(units, now, |wait| wait.is_zero())
    }

    /// Uses `units` units at the time `now`, even if there are none.
    pub fn take(&self, units: u64, now: Duration) {
        // An error is impossible: the use is accepted after any wait.
        let _ = self.update(units, now, |_| true);
    }

    /// Returns the wait until units may be used; zero: now.
    pub fn wait(&self, now: Duration) -> Duration {
        match self.per_second.load(Ordering::Relaxed) {
            u64::MAX => Duration::ZERO,
            _ => wait(self.paid_at.load(Ordering::Relaxed), now),
        }
    }

    fn update(&self, units: u64, now: Duration, accepts: impl Fn(Duration) -> bool) -> Result<(), Duration> {
        let per_second = self.per_second.load(Ordering::Relaxed);
        if per_second == u64::MAX {
            return Ok(());
        }
        let cost = u128::from(units) * 1_000_000_000 / u128::from(per_second);
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        let next = |paid_at: u64| accepts(wait(paid_at, now)).then(|| paid_at.max(nanos(now)).saturating_add(cost));
        let updated = self.paid_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        updated.map(drop).map_err(|paid_at| wait(paid_at, now))
    }
}

fn wait(paid_at: u64, now: Duration) -> Duration {
    Duration::from_nanos(paid_at).saturating_sub(now + BURST_TIME)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_average_is_the_rate_and_a_burst_is_a_tenth_of_a_second() {
        for per_second in [1, 7, 1000, 50_000] {
            let rate = Rate::default();
            rate.set(per_second);
            let taken = |from: u64, to: u64| (from..to).filter(|ms| rate.try_take(1, millis(*ms)).is_ok()).count();
            let at_once = (0..100_000).take_while(|_| rate.try_take(1, Duration::ZERO).is_ok()).count() as u64;
            assert_eq!(at_once, per_second / 10 + 1, "{per_second}");
            // One attempt a millisecond, for ten seconds.
            let expected = (per_second * 10).min(10_000);
            let taken = taken(1, 10_001) as u64;
            assert!(expected.abs_diff(taken) <= 1, "{per_second}: {taken}");
        }
    }

    #[test]
    fn a_large_use_is_paid_by_those_after_it() {
        let rate = Rate::default();
        rate.set(1000);
        assert_eq!(rate.try_take(5000, millis(0)), Ok(()));
        assert_eq!(rate.try_take(1, millis(1000)), Err(millis(3900)));
        assert_eq!(rate.wait(millis(1000)), millis(3900));
        rate.take(1000, millis(1000));
        assert_eq!(rate.wait(millis(5900)), Duration::ZERO);
        assert_eq!(rate.wait(millis(5899)), millis(1));
        rate.set(1001);
        assert_eq!(rate.wait(millis(1000)), Duration::ZERO, "a new limit begins anew");
        rate.set(u64::MAX);
        rate.take(u64::MAX, millis(1000));
        assert_eq!(rate.try_take(u64::MAX, millis(1000)), Ok(()), "no limit");
    }

    #[test]
    fn threads_do_not_exceed_the_rate_together() {
        let rate = Rate::default();
        rate.set(10_000);
        let taken: usize = std::thread::scope(|scope| {
            let take = || (0..2000).filter(|_| rate.try_take(1, Duration::ZERO).is_ok()).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 1001);
    }
}
