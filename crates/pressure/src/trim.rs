//! Giving freed memory back to the system, so that resident memory follows.
//!
//! An allocator keeps what is freed for the next allocation. After a large shrink there is none, and the system sees no
//! difference: the pressure stays. So after enough was freed, and not too often, a hook tells the allocator.

use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use lowwater_lru_core::ByteSize;

/// Bytes that have to be freed before a trim pays, by default.
const THRESHOLD: ByteSize = ByteSize::mib(4);
/// The least time between two trims, by default: a trim holds the allocator's locks for a while.
const INTERVAL: Duration = Duration::from_secs(1);
/// The interval is so many times shorter when it is urgent.
const URGENT_PARTS: u64 = 20;

/// The hook that is called after a large shrink, and when it is due.
///
/// ```
/// use core::time::Duration;
/// use lowwater_lru_core::ByteSize;
/// use lowwater_pressure::Trim;
///
/// // glibc's `malloc_trim`, where that is the allocator.
/// let glibc = Trim::system().threshold(ByteSize::mib(32));
/// // jemalloc, mimalloc and others: whatever call purges them.
/// let other = Trim::new(|| { /* arena.purge(), mi_collect(true), ... */ }).interval(Duration::from_secs(5));
/// ```
#[derive(Clone)]
pub struct Trim {
    hook: Arc<dyn Fn() + Send + Sync>,
    threshold: ByteSize,
    interval: Duration,
}

impl Trim {
    /// Calls `hook`, on the pressure monitor's own thread. It may take its time, but holds up the answer to further pressure
    /// for as long.
    ///
    /// No lock is held: it may use the monitor, and drop it. A panic is counted ([`PressureStats::trims_failed`](super::PressureStats)),
    /// one in the `Drop` of what the hook has captured is not.
    pub fn new(hook: impl Fn() + Send + Sync + 'static) -> Self {
        Self { hook: Arc::new(hook), threshold: THRESHOLD, interval: INTERVAL }
    }

    /// The system's own allocator: glibc's `malloc_trim` on Linux with glibc, nothing elsewhere. Harmless for a program that
    /// has another allocator, and of no use to it.
    #[doc(alias = "malloc_trim")]
    pub fn system() -> Self {
        Self::new(system)
    }

    /// How much has to be freed since the last call; 4 MiB by default.
    pub fn threshold(mut self, bytes: ByteSize) -> Self {
        self.threshold = bytes;
        self
    }

    /// The least time between two calls; 1 s by default. A twentieth of that while memory is about to run out.
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

/// When it is time: enough was freed, and the last time was long enough ago. No clock of its own.
#[derive(Debug)]
pub(super) struct TrimSchedule {
    threshold: ByteSize,
    interval_ns: u64,
    freed: ByteSize,
    last: Option<u64>,
}

impl TrimSchedule {
    pub(super) fn new(trim: &Trim) -> Self {
        let interval_ns = u64::try_from(trim.interval.as_nanos()).unwrap_or(u64::MAX);
        Self { threshold: trim.threshold, interval_ns, freed: ByteSize::ZERO, last: None }
    }

    /// So much was freed.
    pub(super) fn freed(&mut self, bytes: ByteSize) {
        self.freed = self.freed.saturating_add(bytes);
    }

    /// The moment from which [`open`](Self::open) is true; none before enough is freed.
    pub(super) fn due(&self, urgent: bool) -> Option<u64> {
        let interval = if urgent { self.interval_ns / URGENT_PARTS } else { self.interval_ns };
        let enough = self.freed > ByteSize::ZERO && self.freed >= self.threshold;
        enough.then(|| self.last.map_or(0, |last| last.saturating_add(interval)))
    }

    /// Is it time? Then it counts as done.
    pub(super) fn open(&mut self, now_ns: u64, urgent: bool) -> bool {
        let open = self.due(urgent).is_some_and(|due| due <= now_ns);
        if open {
            (self.freed, self.last) = (ByteSize::ZERO, Some(now_ns));
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
    fn nothing_freed_is_never_a_reason() {
        let mut schedule = TrimSchedule::new(&Trim::new(|| {}).threshold(ByteSize::ZERO));
        assert!(!schedule.open(1, false));
        schedule.freed(ByteSize::new(1));
        assert!(schedule.open(1, false));
    }
}
