//! The configuration of a monitor, and the errors of its start.

use alloc::vec::Vec;
use std::io;

use thiserror::Error;

use super::limit::CgroupLimit;
use crate::cgroup::CgroupError;
use crate::{PressureConfig, Source, SourceError, Trim};

/// The sources of a [`Monitor`](crate::Monitor), and its reaction to pressure. By default there is
/// no source: the level is raised manually only.
#[derive(Clone, Debug)]
pub struct MonitorConfig {
    /// The reaction to pressure.
    pub pressure: PressureConfig,
    /// The sources.
    pub sources: Vec<Source>,
    /// The control group that is a limit, if any.
    pub cgroup: Option<CgroupLimit>,
    /// The hook that is called after a large shrink; [`Trim::system`] by default.
    pub trim: Trim,
}

impl Default for MonitorConfig {
    fn default() -> Self {
        Self { pressure: PressureConfig::default(), sources: Vec::new(), cgroup: None, trim: Trim::system() }
    }
}

/// A monitor that could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// A source cannot be watched.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The control group cannot be read.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// The system has no thread left, or no file descriptor for the wake-ups.
    #[error(
        "the pressure monitor has no thread: {0}; raise the limits on threads and open files (ulimit -u, ulimit -n)"
    )]
    Thread(io::Error),
}
