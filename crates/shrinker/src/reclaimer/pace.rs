//! The pace of paying debts: pure arithmetic.
//!
//! No thread waits for a debt to be paid, but allocating threads wait for the locks that paying it
//! takes, and for cache lines in another processor's cache. If all of a debt were paid at once, a
//! few calls of allocating threads would become slow (measured: a p99 of twice the p50). So while
//! other threads reclaim in the foreground, the background thread pays in small parts with rests in
//! between, and uses an eighth of its processor's time; more if debts grow nevertheless, up to all
//! of it, or if a part takes so long that [`REST_MAX`] bounds the rest. Without foreground reclaim
//! the background thread pays as fast as it can.
//!
//! A change must keep [`Pace`] free of clocks and locks, so that tests can compute its results.

use core::time::Duration;

/// Objects of one part while there is foreground reclaim.
const PART: u64 = 64;
/// Objects of one part without foreground reclaim, which is checked after each part.
const PART_IDLE: u64 = 4096;
/// The share of its time that the thread uses, as a divisor.
const SHARE_PARTS: u32 = 8;
/// How long debts are observed before the share changes.
const WATCHED: Duration = Duration::from_millis(50);
/// Foreground reclaim is considered absent after this long without a call. Twice [`REST_MAX`], so
/// that the rest after one part does not look like absence.
const QUIET: Duration = Duration::from_millis(10);
/// The longest rest, however long the last part took.
const REST_MAX: Duration = Duration::from_millis(5);

/// The pace of one thread.
#[derive(Debug)]
pub(super) struct Pace {
    /// The divisor of the share: [`SHARE_PARTS`], or a half, a quarter, ... of it.
    one_in: u32,
    /// The owed objects at the last observation, and the time since. Initially larger than any
    /// debt.
    owed: u64,
    since: Duration,
    /// The number of foreground calls up to the last part, and the time since the last new call was
    /// observed.
    calls: u64,
    quiet: Duration,
}

impl Pace {
    /// Creates a pace. `calls` is the number of foreground calls so far.
    pub(super) fn new(calls: u64) -> Self {
        Self { one_in: SHARE_PARTS, owed: u64::MAX, since: Duration::ZERO, calls, quiet: Duration::ZERO }
    }

    /// Returns the number of objects of the next part.
    pub(super) fn part(&self) -> u64 {
        if self.is_idle() {
            PART_IDLE
        } else {
            PART
        }
    }

    /// Returns whether there is no foreground reclaim.
    fn is_idle(&self) -> bool {
        self.quiet >= QUIET
    }

    /// Records that a part was paid in time `took`, with `owed` objects remaining and `calls`
    /// foreground calls so far. Returns how long to rest.
    pub(super) fn paid(&mut self, took: Duration, owed: u64, calls: u64) -> Duration {
        let rest = took.saturating_mul(self.one_in - 1).min(REST_MAX);
        if core::mem::replace(&mut self.calls, calls) != calls {
            self.quiet = Duration::ZERO;
        }
        // Includes the rest before the next part.
        self.quiet = self.quiet.saturating_add(took).saturating_add(rest);
        if self.is_idle() {
            return Duration::ZERO;
        }
        self.since += (took + rest).min(WATCHED);
        if self.since >= WATCHED {
            self.since = Duration::ZERO;
            let rises = core::mem::replace(&mut self.owed, owed) < owed;
            self.one_in = if rises { self.one_in / 2 } else { self.one_in * 2 }.clamp(1, SHARE_PARTS);
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates paying for `time` at `cost` per object, while foreground reclaim defers
    /// `per_second` objects. Returns the owed objects at the end, and the largest share of a 10 ms
    /// window that was used.
    fn pay(mut owed: u64, cost: Duration, per_second: u64, time: Duration) -> (u64, f64) {
        let mut pace = Pace::new(0);
        let (mut now, mut calls, mut come) = (Duration::ZERO, 0, 0.0);
        let (mut window, mut used, mut most) = (Duration::ZERO, Duration::ZERO, 0.0_f64);
        while now < time {
            let part = pace.part().min(owed);
            assert!(part <= PART, "the foreground is active");
            let took = cost * part as u32 + Duration::from_micros(2);
            calls += 1;
            let rest = pace.paid(took, owed - part, calls);
            come += (took + rest).as_secs_f64() * per_second as f64;
            owed = owed - part + come as u64;
            come = come.fract();
            now += took + rest;
            used += took;
            window += took + rest;
            if window > Duration::from_millis(10) {
                most = most.max(used.as_secs_f64() / window.as_secs_f64());
                (window, used) = (Duration::ZERO, Duration::ZERO);
            }
        }
        (owed, most)
    }

    #[test]
    fn a_million_is_paid_at_the_pace_of_everything_else() {
        // 180,000 objects per second at a third of a microsecond each: a sixteenth of the time.
        let cost = Duration::from_nanos(330);
        let (owed, most) = pay(1_000_000, cost, 180_000, Duration::from_secs(2));
        assert!((500_000..750_000).contains(&owed), "{owed} of a million are owed after two seconds");
        assert!(most < 0.15, "{most} of the time");
        assert_eq!(pay(1_000_000, cost, 180_000, Duration::from_secs(10)).0 / 1000, 0);
    }

    #[test]
    fn growing_debts_get_more_processor_time() {
        for per_second in [100_000, 500_000, 1_000_000, 2_000_000] {
            let (owed, _) = pay(0, Duration::from_nanos(330), per_second, Duration::from_secs(5));
            assert!(owed < 400_000, "{owed} are owed where {per_second} come in a second");
        }
    }

    #[test]
    fn without_foreground_reclaim_the_pace_has_no_rests() {
        let (mut pace, took) = (Pace::new(7), Duration::from_micros(100));
        let rests = (0..).take_while(|_| pace.part() == PART && !pace.paid(took, 1000, 7).is_zero()).count();
        assert_eq!(rests, 12, "800 us each, until 10 ms are over");
        assert_eq!((pace.part(), pace.paid(took, 1000, 7)), (PART_IDLE, Duration::ZERO));
        assert_eq!(pace.paid(took, 1000, 8), Duration::from_micros(700));
        assert_eq!(pace.part(), PART, "the foreground became active");
    }

    #[test]
    fn a_slow_callback_is_no_reason_for_a_long_rest() {
        assert_eq!(Pace::new(0).paid(QUIET / 4, u64::MAX, 1), QUIET / 2);
        assert_eq!(Pace::new(0).paid(Duration::MAX, u64::MAX, 1), Duration::ZERO, "by then the foreground may be idle");
    }
}
