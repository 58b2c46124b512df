//! [`WorkTime`]: the processor time that the calling thread takes for its work.
//!
//! The housekeeper's rests are multiples of it. A listener, or a value's `Drop`, may block: the
//! time for which it does is no work, and must not prolong the rests of all caches.

use std::time::{Duration, Instant};

/// Measures processor time, on the thread that has created it.
pub(crate) struct WorkTime {
    /// The processor time of the thread; `None` if it is not known.
    processor: Option<Duration>,
    now: Instant,
}

impl WorkTime {
    /// Begins to measure.
    pub(crate) fn start() -> Self {
        Self { processor: processor_time(), now: Instant::now() }
    }

    /// Returns the processor time since the last reading. Where it is not known: the time since
    /// then, at most `unknown_max`.
    pub(crate) fn lap(&mut self, unknown_max: Duration) -> Duration {
        let last = std::mem::replace(self, Self::start());
        match (last.processor, self.processor) {
            (Some(last), Some(now)) => now.saturating_sub(last),
            _ => (self.now - last.now).min(unknown_max),
        }
    }
}

/// Returns the processor time of the calling thread.
#[cfg(target_os = "linux")]
fn processor_time() -> Option<Duration> {
    use rustix::time::{clock_gettime_dynamic, ClockId, DynamicClockId};
    // Fails under a filter of system calls that refuses it, and under Miri.
    let time = clock_gettime_dynamic(DynamicClockId::Known(ClockId::ThreadCPUTime)).ok()?;
    // Neither is negative.
    Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// Returns the processor time of the calling thread: not known.
#[cfg(not(target_os = "linux"))]
fn processor_time() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_counts_and_blocking_does_not() {
        let mut time = WorkTime::start();
        std::thread::sleep(Duration::from_millis(100));
        let blocked = time.lap(Duration::from_millis(5));
        assert!(blocked < Duration::from_millis(20), "{blocked:?}");
        let (start, mut worked) = (Instant::now(), Duration::ZERO);
        while worked < Duration::from_millis(4) {
            assert!(start.elapsed() < Duration::from_secs(60), "{worked:?}");
            worked += time.lap(Duration::from_millis(5));
        }
    }
}
