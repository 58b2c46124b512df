//! Statistics of a monitor.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use lowwater_lru_core::ByteSize;

use crate::Level;

/// Pressure at a glance.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PressureStats {
    /// The level.
    pub level: Level,
    /// The most that may be used now.
    pub ceiling: ByteSize,
    /// The most that may be used without pressure: the budget, or the part that the control group leaves.
    pub budget: ByteSize,
    /// Times the ceiling was lowered.
    pub lowered: u64,
    /// Times a step of it was given back.
    pub given_back: u64,
    /// Events by hand.
    pub manual: u64,
    /// The control group, if it is a limit.
    pub cgroup: Option<CgroupStats>,
    /// The other sources, in the order in which they were given; a control group's `memory.events` last.
    pub sources: Vec<SourceStats>,
    /// Calls of the trim hook.
    pub trims: u64,
    /// Those of them that panicked.
    pub trims_failed: u64,
    /// The longest of them.
    pub trim_longest: Duration,
}

/// One source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceStats {
    /// Its file.
    pub file: String,
    /// Events so far.
    pub events: u64,
    /// Why it has stopped, if it has.
    pub error: Option<String>,
}

/// The control group as a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CgroupStats {
    /// Its directory.
    pub directory: String,
    /// The effective limit.
    pub limit: ByteSize,
    /// Usage at the last reading, below the limit that was nearest to be met, less the pages that the kernel can drop.
    pub usage: ByteSize,
    /// Looks that found it too near its limit.
    pub events: u64,
    /// Why it is not looked at any more, if so. The last limit stays.
    pub error: Option<String>,
}
