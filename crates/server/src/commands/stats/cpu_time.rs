//! The processor time of this process.
//!
//! It is read from `/proc` by hand, so that the server needs no further crate for two numbers. A
//! change must ensure that a system without `/proc` reports no time instead of 0.

use std::time::Duration;

/// Processor time, in user mode and in the kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct CpuTime {
    pub user: Duration,
    pub system: Duration,
}

/// Returns the processor time so far; `None` if the system does not report it.
#[cfg(target_os = "linux")]
pub fn cpu_time() -> Option<CpuTime> {
    parse(&std::fs::read_to_string("/proc/self/stat").ok()?, rustix::param::clock_ticks_per_second())
}

/// Elsewhere, it is not reported.
#[cfg(not(target_os = "linux"))]
pub fn cpu_time() -> Option<CpuTime> {
    None
}

/// Reads the times from a line of `/proc/<pid>/stat`.
#[cfg(target_os = "linux")]
fn parse(line: &str, ticks_per_second: u64) -> Option<CpuTime> {
    // The program's name, in parentheses, may contain anything.
    let (_, fields) = line.rsplit_once(") ")?;
    let mut ticks = fields.split(' ').skip(11).map(str::parse::<u64>);
    let mut time = || {
        let ticks = ticks.next()?.ok()?;
        Some(Duration::from_micros((ticks * 1_000_000).checked_div(ticks_per_second)?))
    };
    Some(CpuTime { user: time()?, system: time()? })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_times_follow_the_name() {
        let line = "7 (a) 1 (b) S 1 7 7 0 -1 4194304 1000 0 0 0 150 25 0 0 20 0 5 0 100 1 2 3\n";
        let (user, system) = (Duration::from_millis(1500), Duration::from_millis(250));
        assert_eq!(parse(line, 100), Some(CpuTime { user, system }));
        for (line, ticks) in [("", 100), ("7 (a) S 1", 100), (line, 0), ("7 (a) S 1 7 7 0 -1 4 1 0 0 0 x 25 0", 100)] {
            assert_eq!(parse(line, ticks), None, "{line:?}");
        }
        assert!(cpu_time().is_some());
    }
}
