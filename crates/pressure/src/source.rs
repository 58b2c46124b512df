//! Sources of pressure outside the process, and their events.
//!
//! `linux.rs` opens and polls the sources; other systems (`other.rs`) have none. Error texts tell
//! the operator how to resolve the error.
//!
//! A change must keep the names in `linux.rs` and `other.rs` the same.

use alloc::format;
use alloc::string::String;
use std::io;

use thiserror::Error;

use super::cgroup::{Cgroup, CgroupError};
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

/// A source of pressure. Sources only raise the level; time alone lowers it.
///
/// A source that fails later (its group is removed, its peer closes) stops, with the reason in
/// [`SourceStats`](super::SourceStats). The other sources continue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The kernel, when tasks waited too long for memory.
    Psi(Psi),
    /// The file that the service manager has assigned to this service; each event is
    /// [`Level::Medium`].
    Systemd(Watch),
}

/// An event of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "other systems have no sources"))]
pub(super) enum SourceEvent {
    /// No event: the bytes that this process wrote itself, or a stall from before the watch began.
    Nothing,
    /// The control group's counters changed: its usage is to be read.
    Look,
    /// Pressure of this level.
    Level(Level),
}

/// A source that cannot be watched, or can no longer be watched.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The file cannot be opened.
    #[error("{file} cannot be opened: {error}; {advice}")]
    Open {
        /// The path of the file.
        file: String,
        /// The system's error.
        error: io::Error,
        /// How to resolve it.
        advice: &'static str,
    },
    /// The kernel rejects the trigger.
    #[error("{file} does not take the trigger \"{trigger}\": {error}; {advice}")]
    Trigger {
        /// The path of the file.
        file: String,
        /// The trigger that was written there.
        trigger: Trigger,
        /// The system's error.
        error: io::Error,
        /// How to resolve it.
        advice: &'static str,
    },
    /// The bytes of `$MEMORY_PRESSURE_WRITE` cannot be written.
    #[error("{file} does not take the bytes of $MEMORY_PRESSURE_WRITE: {error}; correct the unit, or unset it")]
    Write {
        /// The path of the file.
        file: String,
        /// The system's error.
        error: io::Error,
    },
    /// The path is of a type that cannot report pressure.
    #[error("{file} is neither a PSI file nor a FIFO nor an AF_UNIX socket; correct the path")]
    Kind {
        /// The path of the file.
        file: String,
    },
    /// The cgroup (v2) of this process has no visible directory.
    #[error("this process is in no cgroup (v2) that can be seen: mount /sys/fs/cgroup, or watch the system instead")]
    NoCgroup,
    /// The control group of this process cannot be read.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// The file is gone, because its group was removed.
    #[error("{file} is gone, as a removed cgroup's files are; this source has stopped")]
    Gone {
        /// The path of the file.
        file: String,
    },
    /// The peer closed the file.
    #[error("{file} was closed by its other end; this source has stopped")]
    Closed {
        /// The path of the file.
        file: String,
    },
    /// The file can no longer be read.
    #[error("{file} cannot be read any more: {error}; this source has stopped")]
    Read {
        /// The path of the file.
        file: String,
        /// The system's error.
        error: io::Error,
    },
    /// This operating system has no such sources.
    #[error("{file} is a file of Linux: leave it out on other systems")]
    Unsupported {
        /// The path of the file.
        file: String,
    },
}

impl Source {
    /// Returns the name of the source in statistics and errors: the path of its file.
    fn file(&self) -> Result<String, SourceError> {
        match self {
            Self::Psi(Psi { file: PsiFile::At(path), .. }) => Ok(path.clone()),
            Self::Psi(Psi { file: PsiFile::OwnCgroup, .. }) => own_pressure_file(),
            Self::Systemd(watch) => Ok(watch.path.clone()),
        }
    }
}

/// Returns the path of `memory.pressure` of this process's cgroup.
fn own_pressure_file() -> Result<String, SourceError> {
    let group = Cgroup::own_unified()?.ok_or(SourceError::NoCgroup)?;
    Ok(pressure_file(&group))
}

/// Returns the path of a cgroup's `memory.pressure`. On many kernels the root cgroup has no such
/// file; the system's file has the same content. All other groups have a `cgroup.events`, also the
/// topmost visible one of a container, whose stalls are not those of the system.
fn pressure_file(group: &Cgroup) -> String {
    let file = group.pressure_file();
    if group.is_top() && !file.exists() && !file.with_file_name("cgroup.events").exists() {
        return String::from("/proc/pressure/memory");
    }
    format!("{}", file.display())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::cgroup::Version;
    use alloc::string::ToString;
    use std::fs;
    use std::path::Path;

    #[test]
    fn only_the_root_cgroup_has_the_pressure_of_the_system() {
        let top = std::env::temp_dir().join(format!("lowwater-own-pressure-{}", std::process::id()));
        let below = top.join("below");
        fs::create_dir_all(&below).unwrap();
        let file = |directory: &Path| pressure_file(&Cgroup::at(Version::V2, &top, directory));
        let own = |directory: &Path| directory.join("memory.pressure").display().to_string();
        assert_eq!(file(&top), "/proc/pressure/memory");
        assert_eq!(file(&below), own(&below));
        // The top of a container.
        fs::write(top.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        assert_eq!(file(&top), own(&top), "its stalls are switched off, and those of the system are others");
        fs::remove_file(top.join("cgroup.events")).unwrap();
        fs::write(top.join("memory.pressure"), "").unwrap();
        assert_eq!(file(&top), own(&top));
        fs::remove_dir_all(top).unwrap();
    }
}
