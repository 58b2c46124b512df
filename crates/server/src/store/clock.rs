//! The clock of access times: whole seconds since the start of the store.
//!
//! The server reads the clock for each batch of requests. On Linux, that is the coarse clock, which
//! is a few milliseconds behind and costs a third of the instructions.
//!
//! A change must ensure that the seconds never decrease.

/// A clock that counts whole seconds.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The time of the system's clock at the start.
    started: Time,
}

/// A time of the system's clock.
#[derive(Clone, Copy, Debug)]
struct Time {
    seconds: u64,
    /// The rest, below a second.
    nanoseconds: u32,
}

impl Clock {
    pub fn start() -> Self {
        Self { started: Time::now() }
    }

    /// Returns the seconds since the start.
    pub fn seconds(self) -> u32 {
        let now = Time::now();
        let is_part = now.nanoseconds < self.started.nanoseconds;
        (now.seconds - self.started.seconds - u64::from(is_part)) as u32
    }
}

impl Time {
    /// Reads a clock that is never set.
    #[cfg(target_os = "linux")]
    fn now() -> Self {
        use rustix::time::{clock_gettime, ClockId};

        let now = clock_gettime(ClockId::MonotonicCoarse);
        Self { seconds: now.tv_sec as u64, nanoseconds: now.tv_nsec as u32 }
    }

    /// Returns the time since the first call.
    #[cfg(not(target_os = "linux"))]
    fn now() -> Self {
        use std::sync::LazyLock;
        use std::time::Instant;

        static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
        let now = FIRST.elapsed();
        Self { seconds: now.as_secs(), nanoseconds: now.subsec_nanos() }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_clock_counts_seconds() {
        let (started, clock) = (Instant::now(), Clock::start());
        assert!(u64::from(clock.seconds()) <= started.elapsed().as_secs(), "it begins with 0");
        while clock.seconds() < 2 {
            assert!(started.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(started.elapsed() >= Duration::from_millis(1900), "each second is a whole one");
    }
}
