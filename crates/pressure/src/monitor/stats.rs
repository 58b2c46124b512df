//! Statistics of a monitor.
//!
//! A snapshot is a copy of the state at one time; reading it has no effect on the monitor.
//!
//! A new field must be filled in `MonitorState::stats` alone.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use lowwater_lru_core::ByteSize;

use crate::Level;

/// A snapshot of a monitor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PressureStats {
    /// The level of pressure at the time of the snapshot.
    pub level: Level,
    /// The limit for usage now. Pressure lowers it below [`budget`](Self::budget); it rises again
    /// in steps.
    pub ceiling: ByteSize,
    /// The limit for usage without pressure: the budget, or the part of it that the control group
    /// and the maximum of the resident memory leave.
    pub budget: ByteSize,
    /// How often the ceiling was lowered.
    pub lowered: u64,
    /// How often the ceiling was raised again.
    pub given_back: u64,
    /// Calls of [`Monitor::raise`](crate::Monitor::raise).
    pub manual: u64,
    /// The control group, if it is watched as a limit.
    pub cgroup: Option<CgroupStats>,
    /// The resident memory, if it has a maximum.
    pub resident: Option<ResidentStats>,
    /// The other sources, in the order of
    /// [`MonitorConfig::sources`](crate::MonitorConfig::sources), then those of
    /// [`MonitorConfig::auto`](crate::MonitorConfig::auto); the counters of
    /// control groups last.
    pub sources: Vec<SourceStats>,
    /// For each source that [`MonitorConfig::auto`](crate::MonitorConfig::auto) did not find, the
    /// reason why it cannot be watched; also for this process's own control group, if it is to be a
    /// limit ([`CgroupLimit::own`](crate::CgroupLimit::own)) and is not visible, and for the
    /// service manager's file, if it is to be watched and the service manager names none.
    pub missing: Vec<String>,
    /// Calls of the trim hook that have returned or panicked.
    pub trims: u64,
    /// Calls of the trim hook that panicked.
    pub trims_failed: u64,
    /// The longest call of the trim hook.
    pub trim_longest: Duration,
}

/// A watched source of pressure: its file, how often it reported, and whether it still can.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceStats {
    /// The path of the source's file.
    pub file: String,
    /// How often the source reported pressure, or a change of the control group's counters. Stalls
    /// from before the watch began are not counted.
    pub events: u64,
    /// The reason why the source is not watched any more; `None` while it is.
    pub error: Option<String>,
}

/// Statistics of the resident memory as a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResidentStats {
    /// The maximum that was configured:
    /// [`MonitorConfig::resident_max`](crate::MonitorConfig::resident_max).
    pub max: ByteSize,
    /// The resident memory at the last reading.
    pub usage: ByteSize,
    /// How often the ceiling was lowered because the maximum was near.
    pub lowered: u64,
    /// Readings that failed. After a failure the level and the ceiling are held until a reading
    /// succeeds, for five minutes after the last success at most.
    pub failed: u64,
}

/// Statistics of the control group as a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CgroupStats {
    /// The path of the directory of the watched group.
    pub directory: String,
    /// The lowest limit of the group and its visible ancestors, at the last reading;
    /// [`ByteSize::MAX`] if there is none.
    pub limit: ByteSize,
    /// The usage at the last reading, of the group whose limit is closest, less the pages that the
    /// kernel can drop.
    pub usage: ByteSize,
    /// Readings that found the usage too close to the limit.
    pub events: u64,
    /// The reason why the last reading failed; `None` if it succeeded. After a failure the last
    /// limit stays in effect, and the group is read again after a second. Unless the group was
    /// removed, the level and the ceiling are held until a reading succeeds, for five minutes after
    /// the last success at most.
    pub error: Option<String>,
}
