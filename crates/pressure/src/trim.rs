//! The trim hook: returns freed memory to the system, so that resident memory falls with usage.
//!
//! An allocator keeps freed memory for later allocations. After a large shrink no such allocations
//! follow, and resident memory stays high: the pressure stays. So a hook makes the allocator
//! release memory, after enough was freed or when the resident memory is near its maximum, and not
//! too often.
//!
//! A change must ensure that freed bytes are counted until a trim begins, and that no trim begins
//! before the interval since the start of the last trim is over.

use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use lowwater_lru_core::ByteSize;

/// Default for the bytes that have to be freed before a trim pays.
const THRESHOLD: ByteSize = ByteSize::mib(4);
/// Default for the least time between two trims: a trim holds the allocator's locks for a while.
const INTERVAL: Duration = Duration::from_secs(1);
/// The divisor of the interval while the cgroup is close to its limit, or the resident memory to
/// its maximum: 1 s becomes 50 ms, as usage may reach the limit within a second.
const URGENT_PARTS: u64 = 20;
/// The time from the start of a trim to the start of the next is at least this many times the
/// duration of the first: a trim of a large heap takes long, and so trims take at most a twentieth
/// of the time.
const COST_PARTS: u64 = 20;
/// The same while the interval is divided.
const COST_PARTS_URGENT: u64 = 2;

/// The hook that is called after a large shrink, or when the resident memory is near its maximum,
/// with its threshold and interval.
///
/// ```
/// use core::time::Duration;
/// use lowwater_lru_core::ByteSize;
/// use lowwater_pressure::Trim;
///
/// // glibc's `malloc_trim`, where that is the allocator.
/// let glibc = Trim::system().threshold(ByteSize::mib(32));
/// // jemalloc, mimalloc and others: the call that purges them.
/// let other = Trim::new(|| { /* arena.purge(), mi_collect(true), ... */ }).interval(Duration::from_secs(5));
/// ```
#[derive(Clone)]
pub struct Trim {
    hook: Arc<dyn Fn() + Send + Sync>,
    threshold: ByteSize,
    interval: Duration,
}

impl Trim {
    /// Creates a trim that calls `hook`, on the pressure monitor's own thread. While the hook runs,
    /// the monitor reads no source of pressure. Aborts the process if there is no memory for
    /// `hook`.
    ///
    /// The memory must have been returned when the hook returns. With
    /// [`MonitorConfig::resident_max`](super::MonitorConfig::resident_max) a hook that returns none
    /// makes the caches give way to memory that is free.
    ///
    /// No lock is held: the hook may use the monitor, and drop it. A panic of the hook is counted
    /// ([`PressureStats::trims_failed`](super::PressureStats)); a panic in the `Drop` of a captured
    /// value is not.
    pub fn new(hook: impl Fn() + Send + Sync + 'static) -> Self {
        Self { hook: Arc::new(hook), threshold: THRESHOLD, interval: INTERVAL }
    }

    /// Trims the system's own allocator: glibc's `malloc_trim` on Linux with glibc, no operation
    /// elsewhere. Has no effect on a program that uses another allocator.
    #[doc(alias = "malloc_trim")]
    pub fn system() -> Self {
        Self::new(system)
    }

    /// Sets the bytes that have to be freed since the last call of the hook. Default: 4 MiB. A call
    /// because of the resident memory does not wait for them.
    pub fn threshold(mut self, bytes: ByteSize) -> Self {
        self.threshold = bytes;
        self
    }

    /// Sets the least time between the starts of two calls. Default: 1 s. While the cgroup is close
    /// to its limit, or a 64th of the maximum of the resident memory is left, a twentieth of this
    /// time applies. A call that took long is followed by a pause of 19 times its duration, and of
    /// once its duration then.
    pub fn interval(mut self, time: Duration) -> Self {
        self.interval = time;
        self
    }

    /// Calls the hook.
    pub(super) fn call(&self) {
        (self.hook)();
    }
}

impl fmt::Debug for Trim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trim")
            .field("threshold", &self.threshold)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn system() {
    lowwater_base::malloc_trim::malloc_trim(ByteSize::ZERO);
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn system() {}

/// The schedule of a trim: due when enough was freed or a trim was requested, and the last trim was
/// long enough ago. Has no clock of its own.
#[derive(Debug)]
pub(super) struct TrimSchedule {
    threshold: ByteSize,
    interval_ns: u64,
    /// The bytes freed since the last trim began.
    freed: ByteSize,
    /// A trim is necessary, however little was freed.
    requested: bool,
    /// The time in nanoseconds at which the last trim began.
    last: Option<u64>,
    /// The duration of the last trim.
    took_ns: u64,
}

impl TrimSchedule {
    pub(super) fn new(trim: &Trim) -> Self {
        let interval_ns = u64::try_from(trim.interval.as_nanos()).unwrap_or(u64::MAX);
        Self { threshold: trim.threshold, interval_ns, freed: ByteSize::ZERO, requested: false, last: None, took_ns: 0 }
    }

    /// Adds freed bytes.
    pub(super) fn freed(&mut self, bytes: ByteSize) {
        self.freed = self.freed.saturating_add(bytes);
    }

    /// Requests a trim, regardless of the freed bytes.
    pub(super) fn request(&mut self) {
        self.requested = true;
    }

    /// Notes how long a trim took.
    pub(super) fn took(&mut self, time: Duration) {
        self.took_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    }

    /// Returns the time in nanoseconds from which [`open`](Self::open) returns true; `None` until
    /// enough is freed or a trim is requested. `urgent`: the cgroup or the resident
    /// memory is close to its limit.
    pub(super) fn due(&self, urgent: bool) -> Option<u64> {
        let (interval, cost_parts) =
            if urgent { (self.interval_ns / URGENT_PARTS, COST_PARTS_URGENT) } else { (self.interval_ns, COST_PARTS) };
        let interval = interval.max(self.took_ns.saturating_mul(cost_parts));
        let enough = self.requested || self.freed > ByteSize::ZERO && self.freed >= self.threshold;
        enough.then(|| self.last.map_or(0, |last| last.saturating_add(interval)))
    }

    /// Returns whether a trim is due. If so, the caller begins it now, and the next interval
    /// starts.
    pub(super) fn open(&mut self, now_ns: u64, urgent: bool) -> bool {
        let open = self.due(urgent).is_some_and(|due| due <= now_ns);
        if open {
            (self.freed, self.requested, self.last) = (ByteSize::ZERO, false, Some(now_ns));
        }
        open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn trims_are_rare_and_none_is_forgotten(events in proptest::collection::vec((0..100_u64, 0..50_u64, any::<bool>()), 0..50)) {
            let trim = Trim::new(|| {}).threshold(ByteSize::new(100)).interval(Duration::from_nanos(200));
            let mut schedule = TrimSchedule::new(&trim);
            let (mut now, mut last, mut freed) = (0, None, 0);
            for (after, bytes, urgent) in events {
                now += after;
                schedule.freed(ByteSize::new(bytes));
                freed += bytes;
                let (due, open) = (schedule.due(urgent), schedule.open(now, urgent));
                let interval = if urgent { 10 } else { 200 };
                prop_assert_eq!(open, due.is_some_and(|due| due <= now));
                prop_assert_eq!(open, freed >= 100 && last.is_none_or(|last| now >= last + interval));
                if open {
                    (freed, last) = (0, Some(now));
                }
            }
        }
    }

    #[test]
    fn when_it_is_urgent_the_interval_is_a_twentieth() {
        let trim = Trim::new(|| {}).threshold(ByteSize::new(1)).interval(Duration::from_nanos(207));
        let mut schedule = TrimSchedule::new(&trim);
        schedule.freed(ByteSize::new(1));
        assert!(schedule.open(1_000, false), "the first one");
        schedule.freed(ByteSize::new(1));
        assert_eq!((schedule.due(false), schedule.due(true)), (Some(1_207), Some(1_010)));
        assert!(!schedule.open(1_009, true) && schedule.open(1_010, true));
    }

    #[test]
    fn a_long_trim_makes_the_next_one_wait() {
        let trim = Trim::new(|| {}).threshold(ByteSize::MAX).interval(Duration::from_nanos(200));
        let mut schedule = TrimSchedule::new(&trim);
        schedule.request();
        assert!(schedule.open(1_000, false), "requested");
        schedule.took(Duration::from_nanos(30));
        assert_eq!(schedule.due(false), None, "nothing is requested any more");
        schedule.request();
        assert_eq!([false, true].map(|urgent| schedule.due(urgent)), [Some(1_600), Some(1_060)]);
    }

    #[test]
    fn a_threshold_of_zero_needs_a_freed_byte() {
        let mut schedule = TrimSchedule::new(&Trim::new(|| {}).threshold(ByteSize::ZERO));
        assert!(!schedule.open(1, false));
        schedule.freed(ByteSize::new(1));
        assert!(schedule.open(1, false));
    }
}
