//! The configuration of a monitor, and the errors of its start.

use alloc::vec::Vec;
use std::io;

use thiserror::Error;

use super::limit::CgroupLimit;
use crate::cgroup::CgroupError;
use crate::{PressureConfig, Source, SourceError, Trim};

/// The sources of a [`Monitor`](crate::Monitor), and its answer to pressure. By default no source: pressure by hand only.
#[derive(Clone, Debug)]
pub struct MonitorConfig {
    /// The answer to pressure.
    pub pressure: PressureConfig,
    /// The sources.
    pub sources: Vec<Source>,
    /// Whether this process's control group is a limit.
    pub cgroup: Option<CgroupLimit>,
    /// The hook that is called after a large shrink; [`Trim::system`] by default.
    pub trim: Trim,
}

impl Default for MonitorConfig {
    fn default() -> Self {
        Self { pressure: PressureConfig::default(), sources: Vec::new(), cgroup: None, trim: Trim::system() }
    }
}

/// A monitor does not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MonitorError {
    /// A source cannot be watched.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The control group cannot be read.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// The system gave no thread, or no file descriptor to wake it.
    #[error(
        "the pressure monitor has no thread: {0}; raise the limits on threads and open files (ulimit -u, ulimit -n)"
    )]
    Thread(io::Error),
}
