//! Bounds on one call of reclaim.
//!
//! One bound for all ways of reclaim, so that objects, time and "enough" are checked in one place,
//! before every call of a shrinker. A change must ensure that used-up objects and a passed deadline
//! stay a reached bound; whether the caller has enough may change.

/// A clock, for time bounds. Without `std` the embedder provides one, or sets only bounds on
/// objects. Called without a lock held; an implementation may use the registry. A panic reaches the
/// caller of reclaim.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some fixed point; never decreases.
    fn now_ns(&self) -> u64;
}

/// The system's monotonic clock, counted from the creation of this value.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Start);

/// On Linux, nanoseconds of the system's clock: each visit of a shrinker reads the clock twice, and
/// `Instant::elapsed` takes several times the instructions of a difference.
#[cfg(all(feature = "std", target_os = "linux"))]
type Start = u64;
#[cfg(all(feature = "std", not(target_os = "linux")))]
type Start = std::time::Instant;

#[cfg(feature = "std")]
impl Default for SystemClock {
    fn default() -> Self {
        #[cfg(target_os = "linux")]
        let start = monotonic_ns();
        #[cfg(not(target_os = "linux"))]
        let start = std::time::Instant::now();
        Self(start)
    }
}

#[cfg(feature = "std")]
impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        #[cfg(target_os = "linux")]
        return monotonic_ns().saturating_sub(self.0);
        #[cfg(not(target_os = "linux"))]
        return u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }
}

/// Returns the system's monotonic clock, in nanoseconds since the system was started or earlier.
#[cfg(all(feature = "std", target_os = "linux"))]
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Neither is negative, and the sum has room for 584 years.
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// The reason for which a [`Work`] ended before all objects were visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The caller has what it needs.
    Enough,
    /// The maximum number of objects was scanned.
    Scan,
    /// The maximum time has passed.
    Time,
}

/// A bound on work, which is used up as work is done. It is checked before every call of a
/// shrinker, and no call is requested to scan more objects than are left. The bound on objects is
/// exceeded only if a shrinker scans more than requested in the last call; the bound on time by at
/// most one callback, and the second count that may follow it. Time is not checked until a shrinker
/// has scanned, deferred or counted an unknown number: a thread that was delayed before makes that
/// step all the same.
///
/// ```
/// use lowwater_shrinker::Work;
/// let mut work = Work::objects(1000);
/// assert_eq!(work.scan_left(), 1000);
/// assert!(Work::unlimited().bound().is_none());
/// ```
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// Objects; `u64::MAX`: no bound.
    scan_left: u64,
    /// A clock, and the deadline in its nanoseconds.
    until: Option<(&'a dyn Clock, u64)>,
    /// Nanoseconds of visits that are left; `u64::MAX`: no bound.
    time_left_ns: u64,
    enough: Option<&'a dyn Fn() -> bool>,
    /// Whether a shrinker was called to scan, has deferred, or counted an unknown number. A visit
    /// that finds an empty pair does not count.
    begun: bool,
    one_batch: bool,
    /// The time after the last visit, which is the time before the next one: the clock is read once
    /// per visit, not twice. 0: not read yet.
    pub(crate) now_ns: u64,
}

impl core::fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Work").field("scan_left", &self.scan_left).finish_non_exhaustive()
    }
}

impl<'a> Work<'a> {
    /// Sets no bound other than the number of existing objects.
    pub const fn unlimited() -> Self {
        Self::objects(u64::MAX)
    }

    /// Permits a scan of at most `scan_max` objects, except for objects that the last call scans
    /// beyond its request.
    pub const fn objects(scan_max: u64) -> Self {
        let until = None;
        Self {
            scan_left: scan_max,
            until,
            time_left_ns: u64::MAX,
            enough: None,
            begun: false,
            one_batch: false,
            now_ns: 0,
        }
    }

    /// Permits one batch that frees something, of one pair or, if there are many, of several, for
    /// which at most `scan_max` objects are scanned:
    /// [`shrink_least_useful`](crate::Registry::shrink_least_useful) then stops.
    pub const fn one_batch(scan_max: u64) -> Self {
        let mut work = Self::objects(scan_max);
        work.one_batch = true;
        work
    }

    /// Also stops at `deadline_ns` on `clock`.
    pub const fn until(mut self, clock: &'a dyn Clock, deadline_ns: u64) -> Self {
        self.until = Some((clock, deadline_ns));
        self
    }

    /// Also stops after the visit of a shrinker with which the visits have taken `time` by the
    /// registry's clock, if it has one. Costs less than [`until`](Self::until), as each visit is
    /// timed anyway.
    pub const fn within(mut self, time: core::time::Duration) -> Self {
        // Saturating: 584 years are no bound.
        let seconds = time.as_secs().saturating_mul(1_000_000_000);
        self.time_left_ns = seconds.saturating_add(time.subsec_nanos() as u64);
        self
    }

    /// Also stops when `enough` returns true.
    pub const fn while_not(mut self, enough: &'a dyn Fn() -> bool) -> Self {
        self.enough = Some(enough);
        self
    }

    /// Returns the number of objects that may still be scanned.
    pub const fn scan_left(&self) -> u64 {
        self.scan_left
    }

    /// Returns the bound that has been reached, if any.
    pub fn bound(&self) -> Option<Bound> {
        if self.scan_left == 0 {
            return Some(Bound::Scan);
        }
        if self.enough.is_some_and(|enough| enough()) {
            return Some(Bound::Enough);
        }
        let late = |(clock, deadline): (&dyn Clock, u64)| clock.now_ns() >= deadline;
        (self.begun && (self.time_left_ns == 0 || self.until.is_some_and(late))).then_some(Bound::Time)
    }

    /// Returns true if one batch that frees something is enough.
    pub(crate) fn is_one_batch(&self) -> bool {
        self.one_batch
    }

    /// Drops the cached time at the beginning of a pass: time has passed since the last visit.
    pub(crate) fn forget_now(&mut self) {
        self.now_ns = 0;
    }

    /// Records that a shrinker scans, defers, or counted an unknown number: from now on time is
    /// checked.
    pub(crate) fn begin(&mut self) {
        self.begun = true;
    }

    /// Records the time of a visit.
    pub(crate) fn spend_time(&mut self, time_ns: u64) {
        if self.time_left_ns != u64::MAX {
            self.time_left_ns = self.time_left_ns.saturating_sub(time_ns);
        }
    }

    /// Records the time since the last visit, if there was one: the next visit begins now.
    pub(crate) fn spend_time_between_visits(&mut self, clock: Option<&dyn Clock>) {
        if let (Some(clock), 1..) = (clock, self.now_ns) {
            let now_ns = clock.now_ns();
            self.spend_time(now_ns.saturating_sub(self.now_ns));
            self.now_ns = now_ns;
        }
    }

    pub(crate) fn spend(&mut self, objects: u64) {
        if self.scan_left != u64::MAX {
            self.scan_left = self.scan_left.saturating_sub(objects);
        }
    }
}

/// The outcome of one call of reclaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Objects freed.
    pub freed: u64,
    /// Objects scanned.
    pub scanned: u64,
    /// Calls of `count_objects`: one for each visited pair, and one more for each second count
    /// after a bit was cleared.
    pub callbacks: u64,
    /// Shrinkers that requested a back-off
    /// ([`ShrinkControl::back_off`](crate::ShrinkControl::back_off)).
    pub back_offs: u64,
    /// Scans that were refused, because another thread frees objects of the shrinker
    /// ([`Scan::Busy`](crate::Scan::Busy)).
    pub busy: u64,
}

impl core::ops::AddAssign for Progress {
    fn add_assign(&mut self, other: Self) {
        self.freed = self.freed.saturating_add(other.freed);
        self.scanned = self.scanned.saturating_add(other.scanned);
        self.callbacks = self.callbacks.saturating_add(other.callbacks);
        self.back_offs = self.back_offs.saturating_add(other.back_offs);
        self.busy = self.busy.saturating_add(other.busy);
    }
}
