//! The configuration of a monitor, and the errors of its start.
//!
//! Plain data, passed to `Monitor::start`. A new source needs a default that leaves it off.

use alloc::vec::Vec;
use std::io;

use lowwater_lru_core::ByteSize;
use thiserror::Error;

use super::limit::CgroupLimit;
use crate::cgroup::CgroupError;
use crate::{PressureConfig, Source, SourceError, Trim};

/// The sources of a [`Monitor`](crate::Monitor), and its reaction to pressure. By default there is
/// no source: the level is raised manually only.
#[derive(Clone, Debug)]
pub struct MonitorConfig {
    /// The reaction to pressure: how far the ceiling falls at each level, and how soon it rises
    /// again.
    pub pressure: PressureConfig,
    /// The sources to watch; none by default. If one of them cannot be watched, the start of the
    /// monitor fails ([`MonitorError::Source`]).
    pub sources: Vec<Source>,
    /// Watches, in addition, the sources that this machine has: the service manager's file, stalls
    /// in this process's control group and in the whole system (150 ms of 2 s), and the control
    /// group's limit, if [`cgroup`](Self::cgroup) names none. A missing source is no error:
    /// [`PressureStats::missing`](crate::PressureStats::missing) has the reason. If
    /// `$MEMORY_PRESSURE_WATCH` is `/dev/null`, the service manager has switched the watch of
    /// pressure off: of these sources only the limit is watched then.
    ///
    /// In a container the whole system is the host. Its stalls count on purpose, also if the
    /// container has no stalls of its own: both share the memory, and the kernel may kill a process
    /// of the container when the host has none left.
    pub auto: bool,
    /// The control group that is a limit: it bounds the budget, and a usage near it is pressure.
    /// `None` by default. A group that was named ([`CgroupLimit::of`]) and does not exist makes the
    /// start of the monitor fail ([`MonitorError::Cgroup`]).
    pub cgroup: Option<CgroupLimit>,
    /// The most memory of this process that is to be in RAM, if any
    /// ([`resident_memory`](crate::resident_memory)). It bounds the budget, and a usage near it is
    /// pressure. Without a [`trim`](Self::trim) that returns memory at once, the caches shrink
    /// because of memory that the allocator keeps free.
    pub resident_max: Option<ByteSize>,
    /// The hook that is called after a large shrink, and near the maximum of the resident memory;
    /// [`Trim::system`] by default.
    pub trim: Trim,
}

impl Default for MonitorConfig {
    fn default() -> Self {
        Self {
            pressure: PressureConfig::default(),
            sources: Vec::new(),
            auto: false,
            cgroup: None,
            resident_max: None,
            trim: Trim::system(),
        }
    }
}

/// A monitor that could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// A source cannot be watched.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The control group cannot be read, or was named and does not exist.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// A maximum of the resident memory was set to 0.
    #[error("a maximum of 0 bytes for the resident memory leaves none for the program; give a larger one")]
    ZeroResidentMax,
    /// The resident memory of this process cannot be read.
    #[error("the resident memory of this process is not in /proc/self/status, so its maximum cannot be watched; build without one")]
    NoResidentMemory,
    /// The system has no thread left, or no file descriptor for the wake-ups.
    #[error(
        "the pressure monitor has no thread: {0}; raise the limits on threads and open files (ulimit -u, ulimit -n)"
    )]
    Thread(io::Error),
}
