//! The clock of access times: whole seconds since the start of the store.
//!
//! The server reads the clock for each batch of requests. On Linux, that is the coarse clock, which
//! is a few milliseconds behind and costs a third of the instructions.
//!
//! A change must ensure that the seconds never decrease.

/// A clock that counts whole seconds.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The second of the system's clock in which this one was started.
    started: u64,
}

impl Clock {
    pub fn start() -> Self {
        Self { started: system_seconds() }
    }

    /// Returns the seconds since the start.
    pub fn seconds(self) -> u32 {
        (system_seconds() - self.started) as u32
    }
}

/// Returns the seconds of a clock of the system that is never set.
#[cfg(target_os = "linux")]
fn system_seconds() -> u64 {
    use rustix::time::{clock_gettime, ClockId};

    clock_gettime(ClockId::MonotonicCoarse).tv_sec as u64
}

/// Returns the seconds since the first call.
#[cfg(not(target_os = "linux"))]
fn system_seconds() -> u64 {
    use std::sync::LazyLock;
    use std::time::Instant;

    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    FIRST.elapsed().as_secs()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_clock_counts_seconds() {
        let (clock, started) = (Clock::start(), Instant::now());
        assert_eq!(clock.seconds() / 2, 0, "it begins with 0");
        while clock.seconds() < 2 {
            assert!(started.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(started.elapsed() >= Duration::from_millis(900), "the first second may be a part of one");
    }
}
