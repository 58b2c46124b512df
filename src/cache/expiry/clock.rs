//! The clock of a cache, and the times to live of its records.
//!
//! One reading of the clock costs as much as a lookup, so a lookup reads it only for a record with
//! a deadline. Times are rounded up, so that a record does not expire early. There is one
//! exception: a thread that is held up for an hour while it stores a deadline encodes the deadline
//! again (`Clock::lasting`), and may store it in another record of the same hash bits
//! (`reaper.rs`).
//!
//! A change must ensure that times are rounded up, and that the floor (see `deadline.rs`) is read
//! before the time and never falls: otherwise more records could expire early.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use super::compact_duration::CompactDuration;
use super::deadline::{Deadline, Expires, Floor, Now, SeenDeadline};
use super::freshness::{Freshness, RefreshTimes};
use super::live_ends::LiveEnds;
use crate::runtime::ManualClock;

/// The time to live of a record.
#[doc(alias = "time to live")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ttl {
    Forever,
    /// Counted from the record's insert.
    Fixed(Duration),
    /// Counted from the record's last use.
    Idle(Duration),
    /// Both of them, of the cache ([`Clock::with_both`]): whichever ends first.
    Both,
    /// Computed by the cache's function ([`Expiry`](super::lifetime::Expiry)).
    Computed,
}

/// The time for which a record still lives if it is not used, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lifespan {
    /// The present time.
    pub(crate) now: u64,
    /// The time until the deadline, with the stale time.
    pub(crate) left: u64,
}

impl Lifespan {
    /// Returns the lifespan of a record with this deadline; `None`: it does not expire.
    pub(crate) fn of(at: Deadline, now: Now) -> Option<Self> {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let left = milliseconds(at.until(now)?);
        Some(Self { now: milliseconds(Duration::from_nanos(now.at)), left })
    }
}

impl Ttl {
    /// Returns the time to live that a call names; `None`: no deadline.
    pub(crate) fn to_live(time: Option<Duration>) -> Self {
        time.map_or(Self::Forever, Self::Fixed)
    }
}

/// The clock of a cache. It counts from the first clock of the process, or with a manual clock from
/// its 0, so that a small cache need not store its start.
#[derive(Debug)]
pub(crate) struct Clock {
    /// None for most caches, which use the system's monotonic clock, reload nothing, and have at
    /// most one of both times.
    rare: Option<Box<Rare>>,
    /// The floor for which deadlines are encoded and decoded; see `deadline.rs`. Only increases.
    floor: AtomicU32,
    /// The upper bound of the floor to which the sweep in progress, or the last one, raises
    /// `floor`.
    announced: AtomicU32,
}

/// The parts of a clock that few caches have; apart, so that an empty cache is small.
#[derive(Debug)]
struct Rare {
    manual: Option<ManualClock>,
    refresh: RefreshTimes,
    both: Option<BothTimes>,
}

/// The time to live and the idle time of a cache that has both.
#[derive(Debug)]
struct BothTimes {
    live: Duration,
    idle: Duration,
    ends: LiveEnds,
}

/// Returns the address by which a record's end is found.
fn address_of<T>(record: &T) -> usize {
    std::ptr::from_ref(record).addr()
}

/// The zero of the system's clock.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock {
    /// Creates the clock of a new, empty cache.
    pub(crate) fn start(manual: Option<&ManualClock>, refresh: RefreshTimes) -> Self {
        let (floor, announced) = (AtomicU32::new(0), AtomicU32::new(0));
        let is_rare = manual.is_some() || refresh != RefreshTimes::default();
        let rare = is_rare.then(|| Box::new(Rare { manual: manual.cloned(), refresh, both: None }));
        let mut clock = Self { rare, floor, announced };
        // No record has a deadline yet, so the floor may begin at the present time.
        let floor = Floor::of(clock.now());
        (*clock.floor.get_mut(), *clock.announced.get_mut()) = (floor.0, floor.0);
        clock
    }

    /// Sets the times of a cache with a time to live and an idle time, and the size of its records.
    pub(crate) fn with_both(mut self, times: Option<(Duration, Duration)>, record_bytes: usize) -> Self {
        if let Some((live, idle)) = times {
            let none = || Box::new(Rare { manual: None, refresh: RefreshTimes::default(), both: None });
            let ends = LiveEnds::new(record_bytes);
            self.rare.get_or_insert_with(none).both = Some(BothTimes { live, idle, ends });
        }
        self
    }

    fn both(&self) -> Option<&BothTimes> {
        self.rare.as_ref()?.both.as_ref()
    }

    /// Stores the end of the time to live of a record with this deadline, if it is an idle
    /// deadline, and the cache has both times.
    #[inline]
    pub(crate) fn store_live_end<T>(&self, record: &T, expires: Expires) {
        if expires.at.is_idle() {
            self.store_some(address_of(record), expires.live_end);
        }
    }

    /// [`store_live_end`](Self::store_live_end), for a record with an idle deadline. Out of line,
    /// so that an insert without one is short.
    #[cold]
    fn store_some(&self, address: usize, end: Deadline) {
        if let Some(both) = self.both() {
            both.ends.set(address, end);
        }
    }

    /// Returns the end of the time to live of a record with the deadline `at`; never, if the record
    /// has no such end.
    pub(crate) fn live_end<T>(&self, record: &T, at: Deadline) -> Deadline {
        match self.both() {
            // Without a stored end, the deadline itself is the end.
            Some(both) if at.is_idle() => both.ends.get(address_of(record)).unwrap_or(at),
            _ => Deadline::NEVER,
        }
    }

    /// Notes that a sweep has visited a record that stays.
    pub(crate) fn keep_live_end<T>(&self, record: &T) {
        if let Some(both) = self.both() {
            both.ends.mark(address_of(record));
        }
    }

    /// Called when a sweep begins.
    pub(crate) fn begin_live_ends(&self) {
        if let Some(both) = self.both() {
            both.ends.begin();
        }
    }

    /// Frees the memory of ends of which the last sweep has visited no record. Called after the
    /// sweep.
    pub(crate) fn free_live_ends(&self) {
        if let Some(both) = self.both() {
            both.ends.free_unused();
        }
    }

    fn refresh(&self) -> RefreshTimes {
        self.rare.as_ref().map(|rare| rare.refresh).unwrap_or_default()
    }

    /// Returns the bytes that the clock has allocated.
    pub(crate) fn footprint(&self) -> usize {
        self.rare.as_deref().map_or(0, size_of_val) + self.both().map_or(0, |both| both.ends.footprint())
    }

    /// Returns whether the clock is a [`ManualClock`].
    pub(crate) fn is_manual(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.manual.is_some())
    }

    pub(crate) fn now(&self) -> Now {
        // The floor is read before the time, so that it is not later than the time.
        let floor = self.floor();
        let at = match self.rare.as_ref().and_then(|rare| rare.manual.as_ref()) {
            None => START.elapsed().as_nanos() as u64,
            Some(clock) => clock.nanoseconds(),
        };
        Now { at, floor }
    }

    /// Returns the deadline of a record in the index, to be used after the record may have left.
    pub(crate) fn seen(&self, at: Deadline) -> SeenDeadline {
        SeenDeadline { at, floor: self.floor() }
    }

    /// Returns the present time, with the floor by which this deadline is decoded.
    pub(crate) fn now_for(&self, SeenDeadline { floor, .. }: SeenDeadline) -> Now {
        Now { floor, ..self.now() }
    }

    pub(crate) fn floor(&self) -> Floor {
        // Acquire: pairs with the Release in `raise_floor`. A thread may still read an older floor,
        // and take a live record for expired. Before it removes the record, it checks the deadline
        // again under the segment's lock.
        Floor(self.floor.load(Ordering::Acquire))
    }

    /// Announces the floor of a sweep. The sweep calls it before its fence
    /// ([`reset`](lowwater_base::EarliestDeadline::reset)).
    pub(crate) fn announce_floor(&self, floor: Floor) {
        // Relaxed: ordered by the sweep's fence.
        self.announced.store(floor.0, Ordering::Relaxed);
    }

    /// Raises the floor. The caller has ensured that no record in the index has a deadline before
    /// it, and holds the sweep's lock.
    pub(crate) fn raise_floor(&self, floor: Floor) {
        // Release: pairs with the Acquire in `floor`.
        self.floor.fetch_max(floor.0, Ordering::Release);
    }

    /// Returns the deadline encoded in seconds, whose count does not wrap, if the announced floor
    /// is so far from the floor for which the deadline was encoded that the count now means another
    /// time. Called after the deadline was stored and registered: a thread that was held up between
    /// the encoding and the registration, for half of the count's range, has stored such a count.
    pub(crate) fn lasting(&self, expires: Expires) -> Option<Deadline> {
        // Relaxed: ordered by the fence of the registration. Either this load returns the sweep's
        // floor, or the sweep visits the record.
        let floor = Floor(self.announced.load(Ordering::Relaxed)).max(expires.floor);
        let at = expires.at.nanoseconds(expires.floor);
        (at != expires.at.nanoseconds(floor)).then(|| Deadline::in_seconds(u64::try_from(at).unwrap_or(0)))
    }

    /// Returns the deadline of a record that expires in `time`, rounded up, and with the stale time
    /// added. It is [`Deadline::NEVER`] if it would be too far off to be encoded.
    pub(crate) fn after(&self, time: Duration) -> Expires {
        let now = self.now();
        Expires { at: self.fixed(time, now), live_end: Deadline::NEVER, floor: now.floor }
    }

    fn fixed(&self, time: Duration, now: Now) -> Deadline {
        Deadline::at(self.refresh().end(u128::from(now.at) + time.as_nanos()), now)
    }

    /// Returns whether a record with this deadline has expired. It may still be kept as stale.
    #[inline]
    pub(crate) fn has_expired(&self, at: Deadline) -> bool {
        !at.is_never() && self.has_passed(at)
    }

    /// [`has_expired`](Self::has_expired), for a deadline that is not never. Out of line, so that
    /// the path for a record without a deadline is short.
    #[inline(never)]
    fn has_passed(&self, at: Deadline) -> bool {
        self.has_expired_at(at, self.now())
    }

    /// As [`has_expired`](Self::has_expired), at the time `now`.
    pub(crate) fn has_expired_at(&self, at: Deadline, now: Now) -> bool {
        !at.is_never() && self.refresh().left(at, now) <= 0
    }

    /// Returns whether a record with this deadline has expired and is not kept as stale.
    pub(crate) fn is_gone(&self, at: Deadline) -> bool {
        !at.is_never() && at.is_past(self.now())
    }

    /// Returns how fresh a record with this deadline is.
    pub(crate) fn freshness(&self, at: Deadline) -> Freshness {
        if at.is_never() {
            return Freshness::Fresh;
        }
        self.refresh().freshness(at, self.now())
    }

    /// As [`freshness`](Self::freshness), for a record that may have left.
    pub(crate) fn freshness_of_seen(&self, seen: SeenDeadline) -> Freshness {
        if seen.at.is_never() {
            return Freshness::Fresh;
        }
        self.refresh().freshness(seen.at, self.now_for(seen))
    }

    /// Returns the lifespan of a record with this deadline from now. Reads no clock if there is
    /// none.
    pub(crate) fn lifespan(&self, at: Deadline) -> Option<Lifespan> {
        (!at.is_never()).then(|| Lifespan::of(at, self.now())).flatten()
    }

    /// Returns the time that a record with this deadline has to live, as [`Deadline::time_left`].
    pub(crate) fn time_left(&self, at: Deadline, now: Now) -> Option<Duration> {
        at.time_left(now).map(|left| left.saturating_sub(self.refresh().stale_time(at)))
    }

    /// Returns the deadline of a record with this time to live. `ttl` must not be `Computed`.
    #[inline]
    pub(crate) fn deadline_of(&self, ttl: Ttl) -> Expires {
        match ttl {
            Ttl::Forever => Expires::NEVER,
            _ => self.deadline_of_some(ttl),
        }
    }

    /// [`deadline_of`](Self::deadline_of), for records with a deadline.
    #[cold]
    fn deadline_of_some(&self, ttl: Ttl) -> Expires {
        match ttl {
            Ttl::Forever => Expires::NEVER,
            Ttl::Fixed(time) => self.after(time),
            Ttl::Idle(time) => self.deadline_after(Some(time), Some(time), None),
            Ttl::Both => {
                let both = self.both().expect("only a cache with both times has this time to live");
                self.deadline_after(Some(both.idle), Some(both.idle), Some(both.live))
            }
            Ttl::Computed => unreachable!("the cache's `Expiry` has computed the time to live before"),
        }
    }

    /// Returns the deadline of a record that expires in `left`. If `idle` is given, too, it is an
    /// idle deadline, which a use extends to that time; `idle` without `left` is ignored. It is
    /// [`Deadline::NEVER`] if `left` and `live` are `None`, or if no given time is short enough to
    /// be encoded. If `live` is given, the deadline is at most `live` from now, and no use extends
    /// it beyond that; in a cache without both times no use extends it at all.
    pub(crate) fn deadline_after(
        &self,
        left: Option<Duration>,
        idle: Option<Duration>,
        live: Option<Duration>,
    ) -> Expires {
        let (Some(left), Some(idle)) = (left, idle) else {
            let first = match (left, live) {
                (Some(left), Some(live)) => Some(left.min(live)),
                (left, live) => left.or(live),
            };
            return first.map_or(Expires::NEVER, |time| self.after(time));
        };
        let now = self.now();
        let live_end = live.map_or(Deadline::NEVER, |live| self.fixed(live, now));
        if !live_end.is_never() && self.both().is_none() {
            return Expires { at: live_end, live_end: Deadline::NEVER, floor: now.floor };
        }
        let idle = match CompactDuration::at_least(idle) {
            Some(idle) => self.idle(idle, left, now),
            // A use would extend the deadline beyond all that can be encoded.
            None if left < idle => self.fixed(left, now),
            None => Deadline::NEVER,
        };
        Expires { at: self.first(idle, live_end, now), live_end, floor: now.floor }
    }

    /// Returns the deadline of a record with this idle deadline and this end of its time to live:
    /// the one by which the record expires first.
    fn first(&self, idle: Deadline, live_end: Deadline, now: Now) -> Deadline {
        if idle.is_never() || live_end.is_never() {
            return if idle.is_never() { live_end } else { idle };
        }
        let left = |at| self.refresh().left(at, now);
        if left(idle) < left(live_end) {
            idle
        } else {
            live_end
        }
    }

    /// Returns the idle deadline of a record that expires in `left`, or a fixed deadline if the
    /// floor is too far away for a count of units.
    fn idle(&self, idle: CompactDuration, left: Duration, now: Now) -> Deadline {
        let at = Deadline::idle(idle, left, now);
        if at.is_idle() {
            return at;
        }
        // A fixed deadline contains the stale time, which `Deadline::idle` does not add.
        let left = left.min(Duration::from_nanos(idle.nanoseconds()));
        let end = self.refresh().end(u128::from(now.at) + left.as_nanos());
        Deadline::in_seconds(u64::try_from(end).unwrap_or(u64::MAX))
    }

    /// Returns the extended deadline of a record that was used just now, at most `live_end`. It is
    /// `None`, and the use writes nothing, if `at` is no idle deadline, has passed, or was extended
    /// so recently that the whole idle time is still left.
    pub(crate) fn extended(&self, at: Deadline, live_end: Deadline) -> Option<Deadline> {
        let (idle, now) = (at.idle_time()?, self.now());
        let is_due = at.nanoseconds_from(now) < idle.nanoseconds() as i64 && !at.is_past(now);
        is_due.then(|| self.first(self.idle(idle, Duration::MAX, now), live_end, now))
    }
}

#[cfg(test)]
mod tests {
    use super::super::compact_duration::TICK;
    use super::super::deadline::{FAR, SECOND};
    use super::*;

    const DAY: u64 = 86_400 * SECOND;

    /// Returns the time `at`, with the floor raised to it.
    fn now(at: u64) -> Now {
        let floor = Floor::of(Now { at, floor: Floor::default() });
        Now { at, floor }
    }

    /// Returns the time `at`, with the floor still that of `then`.
    fn long_after(then: u64, at: u64) -> Now {
        Now { at, ..now(then) }
    }

    #[test]
    fn a_deadline_is_less_than_two_ticks_late_and_never_early() {
        for begin in [0, 1, 3 * TICK + 7, 49 * DAY + 5, 50 * DAY, 98 * DAY + 5, 99 * DAY, 500 * DAY + 11] {
            for time in [0, 1, TICK, 5_000_000, 100 * SECOND, 19 * DAY, 21 * DAY, 3_000 * DAY] {
                let at = Deadline::at(u128::from(begin + time), now(begin));
                let tick = if time > FAR { SECOND } else { TICK };
                assert!(!at.is_never() && at.is_past(now(begin + time + 2 * tick)), "{begin} {time}");
                assert!(time == 0 || !at.is_past(now(begin + time - 1)), "{begin} {time}");
                let left = at.time_left(now(begin)).expect("a deadline is not never").as_nanos() as u64;
                assert!(left <= time && left + 2 * tick >= time, "{begin} {time} {left}");
                let until = at.until(now(begin)).expect("a deadline is not never").as_nanos() as u64;
                assert!(at.is_past(now(begin + until)) && (until == 0 || !at.is_past(now(begin + until - 1))));
            }
        }
    }

    #[test]
    fn deadlines_are_ordered_by_time() {
        for begin in [0, 20 * DAY, 49 * DAY, 50 * DAY - 7, 98 * DAY] {
            let times = [4 * TICK, 100 * SECOND, 19 * DAY, 21 * DAY, 3_000 * DAY];
            let mut moments: Vec<_> = times.map(|time| Deadline::at(u128::from(begin + time), now(begin))).into();
            moments.push(Deadline::NEVER);
            for (i, a) in moments.iter().enumerate() {
                for (j, b) in moments.iter().enumerate() {
                    assert_eq!(a.is_before(*b, now(begin).floor), i < j, "{begin} {i} {j}");
                    assert_eq!(Deadline::earlier(*a, *b, now(begin).floor), moments[i.min(j)]);
                }
            }
        }
        // `day_22` was encoded in seconds, because it was far off then. It is compared when it is
        // near, with a deadline in ticks.
        let (day_22, then) = (Deadline::at(u128::from(22 * DAY), now(0)), now(20 * DAY));
        let day_39 = Deadline::at(u128::from(39 * DAY), then);
        assert!(day_22.is_before(day_39, then.floor) && !day_39.is_before(day_22, then.floor));
    }

    #[test]
    fn an_idle_deadline_is_at_most_an_eighth_late_and_never_early() {
        for begin in [0, 1, 3 * TICK + 7, 49 * DAY + 5, 500 * DAY + 11] {
            for time in [0, 1, TICK, 100_000_000, 129_000_000, SECOND, 1_801 * SECOND, 35 * DAY + 1, 3_000 * DAY] {
                let idle = CompactDuration::at_least(Duration::from_nanos(time)).expect("below the maximum");
                let at = Deadline::idle(idle, Duration::MAX, now(begin));
                assert!(at.is_idle() && !at.is_past(now(begin + time)), "{begin} {time}");
                assert!(at.is_past(now(begin + time + time / 8 + 4 * TICK)), "{begin} {time}");
                let until = at.until(now(begin)).expect("a deadline is not never").as_nanos() as u64;
                assert!(!at.is_past(now(begin + until - 1)) && at.is_past(now(begin + until)));
                let left = at.time_left(now(begin)).expect("a deadline is not never").as_nanos() as u64;
                assert!(left <= idle.nanoseconds() && left + time / 8 + TICK >= time, "{begin} {time} {left}");
                // An idle deadline with half of the idle time left.
                let half = Deadline::idle(idle, Duration::from_nanos(time / 2), now(begin));
                assert!(
                    !half.is_past(now(begin + time / 2)) && half.is_past(now(begin + time / 2 + time / 8 + 4 * TICK))
                );
                assert_eq!(half.time_to_idle(), at.time_to_idle());
            }
        }
    }

    #[test]
    fn idle_deadlines_of_different_lengths_are_ordered_by_time() {
        for begin in [0, 20 * DAY, 49 * DAY + 3] {
            let times = [SECOND, 10 * SECOND, 3_600 * SECOND, 30 * DAY].map(Duration::from_nanos);
            let idling =
                |time| Deadline::idle(CompactDuration::at_least(time).expect("below the maximum"), time, now(begin));
            let fixed = |time: Duration| Deadline::at(u128::from(begin) + time.as_nanos() * 3 / 2, now(begin));
            let moments: Vec<_> = times.into_iter().flat_map(|time| [idling(time), fixed(time)]).collect();
            for (i, a) in moments.iter().enumerate() {
                for (j, b) in moments.iter().enumerate() {
                    assert_eq!(a.is_before(*b, now(begin).floor), i < j, "{begin} {i} {j}");
                }
            }
        }
    }

    #[test]
    fn a_use_extends_an_idle_deadline_after_two_units() {
        let clock = Clock::start(None, RefreshTimes::default());
        let hour = Duration::from_secs(3_600);
        let fresh = clock.deadline_of(Ttl::Idle(hour)).at;
        assert_eq!(clock.extended(fresh, Deadline::NEVER), None, "extended without elapsed time");
        let aged = clock.deadline_after(Some(hour * 14 / 16), Some(hour), None).at;
        assert!(clock.extended(aged, Deadline::NEVER).is_some_and(|end| end.time_to_idle() == fresh.time_to_idle()));
        assert_eq!(
            clock.extended(clock.after(Duration::from_secs(1)).at, Deadline::NEVER),
            None,
            "not an idle deadline"
        );
        assert!(clock.deadline_of(Ttl::Idle(Duration::MAX)).at.is_never());
    }

    #[test]
    fn a_too_distant_deadline_is_never() {
        let clock = Clock::start(None, RefreshTimes::default());
        assert!(clock.after(Duration::MAX).at.is_never());
        assert!(clock.after(Duration::from_secs(100 * 365 * 86_400)).at.is_never());
        assert!(!Deadline::NEVER.is_past(clock.now()) && Deadline::NEVER.time_left(clock.now()).is_none());
    }

    #[test]
    fn a_past_deadline_stays_past_however_far_the_clock_jumps() {
        for begin in [0, 1, 49 * DAY + 5, 500 * DAY + 11] {
            let fixed =
                [0, 1, TICK, SECOND, 19 * DAY, 21 * DAY].map(|time| Deadline::at((begin + time).into(), now(begin)));
            let idle = [1, TICK, SECOND, 1_801 * SECOND, 35 * DAY].map(|time| {
                let idle = CompactDuration::at_least(Duration::from_nanos(time)).expect("below the maximum");
                Deadline::idle(idle, Duration::MAX, now(begin))
            });
            // The steps are the ranges of the counts (two hours, 49 days, 34 years), half of the
            // second (24 days), multiples of it, and times beside these.
            for step in [DAY / 12, 24 * DAY, 25 * DAY, 49 * DAY, 50 * DAY, 75 * DAY, 98 * DAY, 34 * 365 * DAY] {
                for at in fixed.into_iter().chain(idle) {
                    let jump = at.until(now(begin)).expect("a deadline is not never").as_nanos() as u64 + step;
                    for jitter in [0, 1, TICK, 3_600 * SECOND] {
                        assert!(at.is_past(long_after(begin, begin + jump + jitter)), "{begin} {step} {at:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_deadline_too_far_from_the_floor_is_in_seconds() {
        let lagging = long_after(0, 60 * DAY);
        for time in [0, TICK, SECOND, 19 * DAY] {
            let at = Deadline::at((60 * DAY + time).into(), lagging);
            assert!(!at.is_past(Now { at: lagging.at + time.saturating_sub(1), ..lagging }) || time == 0, "{time}");
            assert!(at.is_past(Now { at: lagging.at + time + SECOND, ..lagging }), "{time}");
            // It means the same after the floor has followed.
            assert_eq!(at.nanoseconds(lagging.floor), at.nanoseconds(now(60 * DAY).floor));
        }
        let idle = CompactDuration::at_least(Duration::from_nanos(TICK)).expect("below the maximum");
        let at = Deadline::idle(idle, Duration::MAX, lagging);
        assert!(!at.is_idle() && !at.is_past(Now { at: lagging.at + TICK, ..lagging }));
        assert!(Deadline::idle(idle, Duration::MAX, now(60 * DAY)).is_idle());
    }

    #[test]
    fn a_deadline_that_was_stored_late_gets_an_encoding_that_lasts() {
        let clock = Clock::start(None, RefreshTimes::default());
        let expires = clock.after(Duration::from_secs(5));
        let at = expires.at.nanoseconds(expires.floor);
        clock.announce_floor(now(20 * DAY).floor);
        assert_eq!(clock.lasting(expires), None, "the count still means the same");
        for day in [25, 49, 60, 1_000] {
            clock.announce_floor(now(day * DAY).floor);
            let lasting = clock.lasting(expires).expect("the count means another time");
            let floor = now(day * DAY).floor;
            assert!((at..at + SECOND as i64).contains(&lasting.nanoseconds(floor)), "{day}");
            assert_eq!(clock.lasting(Expires { at: lasting, floor, ..expires }), None);
        }
    }
}
