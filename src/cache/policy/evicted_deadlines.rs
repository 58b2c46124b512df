//! When evicted records would have expired, so that a key that returns later counts as no miss:
//! more memory would have brought no hit.
//!
//! A ghost has no room for a deadline, but the count of its tenant's evictions at its own. Records
//! leave a queue about in the order of their inserts, so their deadlines rise with that count: a
//! tenant keeps the deadlines at two past counts and at the last one, and those between follow from
//! them. Beside entries with short times the deadlines are those of the entries with long ones, so
//! that these keep their misses.
//!
//! The times of evictions are those that a walk has read for deadlines: a tenant without deadlines
//! reads no clock.
//!
//! A change must ensure that zeroed fields are valid new ones.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::cache::expiry::clock::Lifespan;

/// An eviction moves the last deadline by 1 / `LATEST_OF_MIN` of the distance to an earlier one, or
/// by a smaller part: of as many evictions as ghosts count for.
const LATEST_OF_MIN: i64 = 1_024;
/// The unit of times is 16 ms, this logarithm of milliseconds, so that a time of up to 397 days ago
/// is not taken for one to come.
const UNIT: u32 = 4;
/// A longer lifespan, 198 days, is not told apart.
const LEFT_MAX: u64 = 1 << 30;

/// The deadlines of one tenant's evicted records; see the module. Times wrap.
///
/// Statistics: all accesses are Relaxed, and a lost update only makes an estimate less exact.
#[derive(Debug, Default)]
pub(crate) struct EvictedDeadlines {
    /// Two past counts of evictions in the upper half, and the deadlines of the records evicted
    /// then in the lower one; 0 before the first. The older deadline has passed, if there are two.
    older: AtomicU64,
    newer: AtomicU64,
    /// The latest deadline of the last evictions.
    last: AtomicU32,
}

impl EvictedDeadlines {
    /// Notes that `nr` records were evicted just now, up to the count `clock`. `rest` is the
    /// longest lifespan that was left to them, and `reach` the age limit of ghosts in evictions:
    /// blocks of records with short lives hide no ghost of a long one.
    pub(crate) fn note(&self, nr: u32, clock: u32, reach: u32, rest: Lifespan) {
        let now = (rest.now >> UNIT) as u32;
        let seen = (rest.left >> UNIT).min(LEFT_MAX) as i64;
        let newer = self.newer.load(Ordering::Relaxed);
        let before = if newer == 0 { seen } else { left(self.last.load(Ordering::Relaxed), now) };
        let of = LATEST_OF_MIN.max(reach.into());
        let latest = seen.max(before - ((before - seen) * i64::from(nr)).div_euclid(of));
        let last = now.wrapping_add(latest as u32);
        self.last.store(last, Ordering::Relaxed);
        if newer == 0 || left(newer as u32, now) <= 0 {
            let next = u64::from(clock) << 32 | u64::from(last);
            self.older.store(if newer == 0 { next } else { newer }, Ordering::Relaxed);
            self.newer.store(next, Ordering::Relaxed);
        }
    }

    /// Returns whether the deadline of a record that was evicted `evictions` before the count
    /// `clock` has passed. `new` is the lifespan of the new record of its key.
    pub(crate) fn has_passed(&self, evictions: u64, clock: u32, new: Lifespan) -> bool {
        let now = (new.now >> UNIT) as u32;
        let [older, newer] = [&self.older, &self.newer].map(|point| point.load(Ordering::Relaxed));
        if newer == 0 || new.left >> UNIT >= LEFT_MAX {
            return false;
        }
        let point = |point: u64| (i64::from(clock.wrapping_sub((point >> 32) as u32)), left(point as u32, now));
        let (older, newer) = (point(older), point(newer));
        let last = (0, left(self.last.load(Ordering::Relaxed), now));
        let evictions = i64::try_from(evictions).unwrap_or(i64::MAX);
        let (from, to) = if evictions <= newer.0 { (last, newer) } else { (newer, older) };
        // Before the older point: that deadline, or an earlier one.
        let part = (evictions - from.0).clamp(0, (to.0 - from.0).max(0));
        // The product of a count and a time may exceed 64 bits.
        let later = i128::from(to.1 - from.1) * i128::from(part) / i128::from((to.0 - from.0).max(1));
        i128::from(from.1) + later <= 0
    }

    pub(crate) fn reset(&self) {
        [&self.older, &self.newer].into_iter().for_each(|point| point.store(0, Ordering::Relaxed));
        self.last.store(0, Ordering::Relaxed);
    }
}

/// Returns the time from `now` to a deadline; negative if it has passed.
fn left(deadline: u32, now: u32) -> i64 {
    i64::from(deadline.wrapping_sub(now) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REACH: u32 = 1_000;

    /// A lifespan in units.
    fn lifespan(now: u64, left: u64) -> Lifespan {
        Lifespan { now: now << UNIT, left: left << UNIT }
    }

    /// Notes 100 batches of 8 evictions, one eviction in `units`, each with this rest. Returns the
    /// last count and time.
    fn evict(deadlines: &EvictedDeadlines, (clock, now): (u32, u64), units: u64, left: u64) -> (u32, u64) {
        let batches = (1..=100).map(|n| (clock.wrapping_add(n * 8), now + u64::from(n) * 8 * units));
        batches.inspect(|&(clock, now)| deadlines.note(8, clock, REACH, lifespan(now, left))).last().unwrap()
    }

    /// Returns whether the deadlines have passed of records evicted so many evictions ago.
    fn have_passed(deadlines: &EvictedDeadlines, evictions: [u64; 2], (clock, now): (u32, u64)) -> [bool; 2] {
        evictions.map(|evictions| deadlines.has_passed(evictions, clock, lifespan(now, 100_000)))
    }

    #[test]
    fn a_deadline_passes_after_the_rest_however_the_counts_wrap() {
        for at in [(1_000, 0), (u32::MAX - 500, 7), (7, u64::from(u32::MAX) - 1_000)] {
            let deadlines = EvictedDeadlines::default();
            assert_eq!(have_passed(&deadlines, [0, u64::MAX], at), [false; 2], "no deadline is known");
            let at = evict(&deadlines, at, 2, 500);
            assert_eq!(have_passed(&deadlines, [245, 255], at), [false, true]);
            assert_eq!(have_passed(&deadlines, [700, u64::MAX], at), [true; 2]);
            let later = (at.0, at.1 + 400);
            assert_eq!(have_passed(&deadlines, [45, 55], later), [false, true], "evictions have stopped");
        }
    }

    #[test]
    fn a_rest_that_becomes_longer_or_shorter_is_that_of_its_time() {
        for (first, second) in [(400, 1_400), (1_400, 400)] {
            let deadlines = EvictedDeadlines::default();
            let at = evict(&deadlines, (1_000, 0), 1, first);
            let at = (0..4).fold(at, |at, _| evict(&deadlines, at, 1, second));
            assert_eq!(have_passed(&deadlines, [second - 10, second + 10], at), [false, true]);
        }
    }

    #[test]
    fn short_lives_hide_no_long_ones() {
        let deadlines = EvictedDeadlines::default();
        let at = (0..10_000_u32).map(|n| {
            let (clock, now) = (1_000 + n * 8, u64::from(n) * 16);
            deadlines.note(8, clock, REACH, lifespan(now, if n % 4 == 0 { 20_000 } else { 500 }));
            (clock, now)
        });
        let at = at.last().unwrap();
        assert_eq!(have_passed(&deadlines, [9_500, 10_500], at), [false, true]);
    }

    /// Each period has a block of records with long lives, and a longer one of others. The keys of
    /// the first block return in the next period.
    #[test]
    fn blocks_of_short_lives_hide_no_long_ones() {
        let (long, short, life) = (2_000, 8_000, 25_000_u64);
        // Evictions in a unit of time.
        for each in [1, 16] {
            let (deadlines, mut ended) = (EvictedDeadlines::default(), 0);
            for n in 0..100_000_u32 {
                let (clock, now, is_long) = (1_000 + n, u64::from(n) / each, n % (long + short) < long);
                let left = if is_long { life } else { 500 } / each;
                if is_long && n > long + short {
                    let new = lifespan(now, left);
                    ended += u32::from(deadlines.has_passed(u64::from(long + short), clock - 1, new));
                }
                deadlines.note(1, clock, 16_000, lifespan(now, left));
            }
            assert_eq!(ended, 0, "of {}, {each} in a unit", 9 * long);
        }
    }

    #[test]
    fn deadlines_of_a_long_pause_and_billions_of_evictions_do_not_overflow() {
        let deadlines = EvictedDeadlines::default();
        let pause = 5 * LEFT_MAX / 2;
        deadlines.note(1, 1, REACH, lifespan(0, LEFT_MAX));
        deadlines.note(1, u32::MAX, REACH, lifespan(pause, LEFT_MAX));
        let at = (u32::MAX, pause);
        assert_eq!(have_passed(&deadlines, [0, u64::MAX], at), [false, true]);
    }

    #[test]
    fn a_lifespan_of_many_days_never_passes() {
        let deadlines = EvictedDeadlines::default();
        let at = evict(&deadlines, (1_000, 0), 2, 500);
        assert!(!deadlines.has_passed(u64::MAX, at.0, lifespan(at.1, LEFT_MAX)));
    }

    #[test]
    fn deadlines_have_passed_after_a_pause_of_a_year() {
        const DAY: u64 = 24 * 60 * 60 * 1_000;
        for days in [20, 30, 45, 60, 365] {
            let deadlines = EvictedDeadlines::default();
            deadlines.note(1, 1, REACH, Lifespan { now: 0, left: 60_000 });
            let new = Lifespan { now: days * DAY, left: 60_000 };
            assert!(deadlines.has_passed(1, 1, new), "{days} days");
        }
    }
}
