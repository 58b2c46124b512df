//! How much one call of reclaim may do.

/// A clock, for time bounds. Without `std` the embedder brings one, or bounds by objects only. Asked without a lock held; it may
/// use the registry. A panic reaches the caller of reclaim.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some fixed moment; never goes back.
    fn now_ns(&self) -> u64;
}

/// The system's monotonic clock, counted from when this was made.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(std::time::Instant);

#[cfg(feature = "std")]
impl Default for SystemClock {
    fn default() -> Self {
        Self(std::time::Instant::now())
    }
}

#[cfg(feature = "std")]
impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Which bound was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The caller has what it came for.
    Enough,
    /// So many objects were scanned as are allowed.
    Scan,
    /// So much time went by as is allowed.
    Time,
}

/// A bound on work, used up as it is done. It is looked at before every call of a shrinker, and no call is
/// asked for more objects than are left: objects pass it only where a shrinker looks at more than it is
/// asked for, in the last call, and time by one callback. Time counts from the first call on: a thread that
/// was kept waiting before it still gets one shrinker asked.
///
/// ```
/// use lowwater_shrinker::Work;
/// let mut work = Work::objects(1000);
/// assert_eq!(work.scan_left(), 1000);
/// assert!(Work::unlimited().bound().is_none());
/// ```
#[derive(Clone, Copy)]
pub struct Work<'a> {
    scan_left: u64,
    until: Option<(&'a dyn Clock, u64)>,
    enough: Option<&'a dyn Fn() -> bool>,
    begun: bool,
    one_batch: bool,
    /// The clock after the last visit, which is the clock before the next: read once for each, not twice.
    pub(crate) now_ns: u64,
}

impl core::fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Work").field("scan_left", &self.scan_left).finish_non_exhaustive()
    }
}

impl<'a> Work<'a> {
    /// No bound but what the shrinkers hold.
    pub const fn unlimited() -> Self {
        Self::objects(u64::MAX)
    }

    /// At most `scan_max` objects looked at, but for what the last call looks at beyond what it is
    /// asked for.
    pub const fn objects(scan_max: u64) -> Self {
        Self { scan_left: scan_max, until: None, enough: None, begun: false, one_batch: false, now_ns: 0 }
    }

    /// One batch that frees something, for which at most `scan_max` objects are looked at:
    /// [`shrink_least_useful`](crate::Registry::shrink_least_useful) goes no further then.
    pub const fn one_batch(scan_max: u64) -> Self {
        let mut work = Self::objects(scan_max);
        work.one_batch = true;
        work
    }

    /// And not past `deadline_ns` on `clock`.
    pub const fn until(mut self, clock: &'a dyn Clock, deadline_ns: u64) -> Self {
        self.until = Some((clock, deadline_ns));
        self
    }

    /// And only as long as `enough` is false.
    pub const fn while_not(mut self, enough: &'a dyn Fn() -> bool) -> Self {
        self.enough = Some(enough);
        self
    }

    /// Objects that may still be scanned.
    pub const fn scan_left(&self) -> u64 {
        self.scan_left
    }

    /// The bound that is reached, if one is.
    pub fn bound(&self) -> Option<Bound> {
        if self.scan_left == 0 {
            return Some(Bound::Scan);
        }
        if self.enough.is_some_and(|enough| enough()) {
            return Some(Bound::Enough);
        }
        let late = |(clock, deadline): (&dyn Clock, u64)| clock.now_ns() >= deadline;
        (self.begun && self.until.is_some_and(late)).then_some(Bound::Time)
    }

    /// Whether one batch that frees something is enough.
    pub(crate) fn is_one_batch(&self) -> bool {
        self.one_batch
    }

    /// A pass begins: whatever the clock was after the last, it is later now.
    pub(crate) fn forget_now(&mut self) {
        self.now_ns = 0;
    }

    /// A shrinker is asked.
    pub(crate) fn begin(&mut self) {
        self.begun = true;
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
    /// Objects looked at.
    pub scanned: u64,
    /// Calls of `count_objects`: one for each pair that was asked, one more where it was asked again after its bit was
    /// cleared.
    pub callbacks: u64,
    /// Shrinkers that asked to be left alone for a moment ([`ShrinkControl::back_off`](crate::ShrinkControl::back_off)).
    pub back_offs: u64,
}

impl core::ops::AddAssign for Progress {
    fn add_assign(&mut self, other: Self) {
        self.freed = self.freed.saturating_add(other.freed);
        self.scanned = self.scanned.saturating_add(other.scanned);
        self.callbacks = self.callbacks.saturating_add(other.callbacks);
        self.back_offs = self.back_offs.saturating_add(other.back_offs);
    }
}
