//! Sources of pressure outside the process, and their events.

use alloc::format;
use alloc::string::String;
use std::io;

use thiserror::Error;

use super::cgroup::CgroupError;
use super::psi::{Psi, PsiFile};
use super::systemd::Watch;
use super::{Level, Trigger};

#[cfg(target_os = "linux")]
#[path = "source/linux.rs"]
mod system;
#[cfg(not(target_os = "linux"))]
#[path = "source/other.rs"]
mod system;

pub(super) use system::{OpenSource, Poller};

/// A source of pressure. Each only raises the level; time alone lowers it.
///
/// One that fails later (its group is removed, the other end goes) stops; [`SourceStats`](super::SourceStats) says why. The
/// others go on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The kernel, when tasks waited too long for memory.
    Psi(Psi),
    /// The service manager.
    Systemd(Watch),
}

/// An event of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "there is no source to say it"))]
pub(super) enum SourceEvent {
    /// Nothing: it was our own echo, or of what was before we listened.
    Nothing,
    /// Something has happened in the control group: look there.
    Look,
    /// It is this bad.
    Level(Level),
}

/// A place that should tell pressure cannot be watched, or no longer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The file cannot be opened.
    #[error("{file} cannot be opened: {source}; {advice}")]
    Open {
        /// The file.
        file: String,
        /// The system's error.
        source: io::Error,
        /// Advice.
        advice: &'static str,
    },
    /// The kernel does not take the trigger.
    #[error("{file} does not take the trigger \"{trigger}\": {source}; {advice}")]
    Trigger {
        /// The file.
        file: String,
        /// The trigger that was written there.
        trigger: Trigger,
        /// The system's error.
        source: io::Error,
        /// Advice.
        advice: &'static str,
    },
    /// The bytes that the service manager wants written cannot be written.
    #[error("{file} does not take what $MEMORY_PRESSURE_WRITE says: {source}; correct the unit, or unset it")]
    Write {
        /// The file.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// The path leads to something that cannot tell pressure.
    #[error("{file} is neither a PSI file nor a FIFO nor an AF_UNIX socket; correct the path")]
    Kind {
        /// The file.
        file: String,
    },
    /// The group of this process has no directory that can be seen.
    #[error("this process is in no cgroup (v2) that can be seen: mount /sys/fs/cgroup, or watch the system instead")]
    NoCgroup,
    /// The group of this process cannot be found.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// The file is gone: its group was removed.
    #[error("{file} is gone, as a removed cgroup's files are; this source has stopped")]
    Gone {
        /// The file.
        file: String,
    },
    /// The other end was closed.
    #[error("{file} was closed by its other end; this source has stopped")]
    Closed {
        /// The file.
        file: String,
    },
    /// Reading failed.
    #[error("{file} cannot be read any more: {source}; this source has stopped")]
    Read {
        /// The file.
        file: String,
        /// The system's error.
        source: io::Error,
    },
    /// This operating system has no such files.
    #[error("{file} is a file of Linux: leave it out on other systems")]
    Unsupported {
        /// The file.
        file: String,
    },
}

impl Source {
    /// Its name in statistics and errors: its file.
    fn file(&self) -> Result<String, SourceError> {
        match self {
            Self::Psi(Psi { file: PsiFile::At(path), .. }) => Ok(path.clone()),
            Self::Psi(Psi { file: PsiFile::OwnCgroup, .. }) => own_pressure_file(),
            Self::Systemd(watch) => Ok(watch.path.clone()),
        }
    }
}

/// This process's group's `memory.pressure`. The topmost group has none on many kernels; for it the system's is the same.
fn own_pressure_file() -> Result<String, SourceError> {
    let group = super::cgroup::Cgroup::own_unified()?.ok_or(SourceError::NoCgroup)?;
    let file = group.pressure_file();
    if group.is_top() && !file.exists() {
        return Ok(String::from("/proc/pressure/memory"));
    }
    Ok(format!("{}", file.display()))
}
