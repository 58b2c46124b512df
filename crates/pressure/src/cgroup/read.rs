//! Reads the memory files of a control group: limits, usage and events.
//!
//! The only file of this module that touches the file system; all parsing is in the others, so that
//! it can be tested and fuzzed without one.
//!
//! A missing file is not an error: it means no limit, not reported, or no group. An unreadable or
//! malformed file is an error. A change must keep this difference. The only missing paths that are
//! errors are the directory of a group that had a limit (`group_must_be_there`) and that of a group
//! that was named (`must_be_there`). A mount that shows the process's group at an unknown place is
//! an error, too: its limit would be missed.
//!
//! Paths are strings. Bytes of a group's name that are not UTF-8 are replaced, so the files of such
//! a group, and of the groups below it, count as missing, also if it was named; the limits of its
//! ancestors are read.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use lowwater_lru_core::ByteSize;
use thiserror::Error;

use super::{parse_limit_of, CgroupPath, Events, Membership, Mount, Stat, Version};
use crate::text::{number, TextError};

/// A control group whose memory files can be read.
///
/// ```
/// use lowwater_pressure::cgroup::Cgroup;
///
/// if let Some(cgroup) = Cgroup::own()? {
///     let limit = cgroup.limit()?;
///     println!("{}: at most {} bytes", cgroup.directory().display(), limit.bytes);
/// }
/// # Ok::<(), lowwater_pressure::cgroup::CgroupError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cgroup {
    /// The group's directory, and those of the visible groups above it.
    place: CgroupPath,
}

/// A limit of a group or of one of its ancestors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// The limit; [`ByteSize::MAX`] if there is none.
    pub bytes: ByteSize,
    /// The file with the limit; `None` if there is none.
    pub file: Option<PathBuf>,
}

impl Limit {
    /// Returns the directory of the group that has the limit; `None` if there is no limit.
    pub fn directory(&self) -> Option<&Path> {
        self.file.as_deref().and_then(Path::parent)
    }

    /// Returns an error if the group that has the limit no longer exists, or its directory cannot
    /// be read. Called when the limit's file is missing (`monitor/limit.rs`): either the group has
    /// no limit any more, or the group itself was removed.
    pub(crate) fn group_must_be_there(&self) -> Result<(), CgroupError> {
        self.directory().map_or(Ok(()), directory_must_be_there)
    }
}

/// An unusable file of a group.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// The file cannot be read.
    #[error("{} cannot be read: {error}; mount /proc and /sys/fs/cgroup, or give the budget by hand", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The content of the file is malformed.
    #[error("{}: {error}; this is not a control group's file: give the budget by hand", .file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The malformed field.
        error: TextError,
    },
}

impl CgroupError {
    /// Returns whether the group was removed, or its hierarchy unmounted.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Read { error, .. } if error.kind() == ErrorKind::NotFound)
    }
}

impl Cgroup {
    /// Returns the group of this process: that of v1's memory controller if it is visible,
    /// otherwise that of v2, which may lack the controller. `None` if neither is visible.
    ///
    /// # Errors
    ///
    /// [`CgroupError`] if a file in `/proc` is unreadable or malformed, or if the process is in a
    /// cgroup namespace while only the mount of groups above it is visible, in which its group has
    /// an unknown path. A missing `/proc` is not an error.
    pub fn own() -> Result<Option<Self>, CgroupError> {
        Self::find(Path::new("/proc/self"), &[Version::V1, Version::V2])
    }

    /// Returns the group of this process in the unified hierarchy, with or without the memory
    /// controller: it reports stalls in either case.
    ///
    /// # Errors
    ///
    /// The errors of [`own`](Self::own).
    pub fn own_unified() -> Result<Option<Self>, CgroupError> {
        Self::find(Path::new("/proc/self"), &[Version::V2])
    }

    /// Returns the group with this directory. `top` is the topmost group whose limits are read: the
    /// directory itself or an ancestor of it. If `directory` is not below `top`, returns the group
    /// of `top`.
    pub fn at(version: Version, top: &Path, directory: &Path) -> Self {
        let mount = Mount { version, root: String::from("/"), point: top.to_string_lossy().into_owned() };
        let below = directory.strip_prefix(top).unwrap_or(Path::new(""));
        let path = std::format!("/{}", below.to_string_lossy());
        let membership = Membership { v2: Some(path.clone()), v1_memory: Some(path) };
        let place = CgroupPath::find(&membership, core::slice::from_ref(&mount), version)
            .expect("a path below the only mount has a place");
        Self { place }
    }

    pub(super) fn find(process: &Path, versions: &[Version]) -> Result<Option<Self>, CgroupError> {
        let (groups, mounts) = (process.join("cgroup"), process.join("mountinfo"));
        let (Some(membership), Some(mounted)) = (optional(&groups)?, optional(&mounts)?) else { return Ok(None) };
        let membership = Membership::parse(&membership).map_err(|error| malformed(&groups, error))?;
        let mounted = Mount::parse_all(&mounted).map_err(|error| malformed(&mounts, error))?;
        for version in versions {
            let place = CgroupPath::locate(&membership, &mounted, *version);
            if let Some(place) = place.map_err(from_above)? {
                return Ok(Some(Self { place }));
            }
        }
        Ok(None)
    }

    /// Returns whether the group is in a hierarchy of cgroup v1 or in the unified one of v2.
    pub fn version(&self) -> Version {
        self.place.version()
    }

    /// Returns whether a file is shown by the mount that shows the group itself. Other mounts may
    /// show groups above it.
    pub(crate) fn is_in_own_mount(&self, file: &Path) -> bool {
        file.starts_with(path(self.place.top()))
    }

    /// Ignores the error of a file that another mount shows: this process may not read all mounts.
    fn ignored(&self, file: &Path, error: CgroupError) -> Result<Option<String>, CgroupError> {
        match self.is_in_own_mount(file) {
            true => Err(error),
            false => Ok(None),
        }
    }

    /// Returns the directory of the group.
    pub fn directory(&self) -> &Path {
        path(self.place.directory())
    }

    /// Returns an error if the directory of the group does not exist or cannot be read. Nothing is
    /// known of a group whose name is not UTF-8.
    pub(crate) fn must_be_there(&self) -> Result<(), CgroupError> {
        match self.place.directory().contains(char::REPLACEMENT_CHARACTER) {
            true => Ok(()),
            false => directory_must_be_there(self.directory()),
        }
    }

    /// Returns whether this is the topmost visible group.
    pub fn is_top(&self) -> bool {
        self.place.upwards().nth(1).is_none()
    }

    /// Returns the effective limit: the smallest of [`limits`](Self::limits).
    ///
    /// # Errors
    ///
    /// [`CgroupError`], which names the unreadable or malformed file. A missing file is no limit.
    pub fn limit(&self) -> Result<Limit, CgroupError> {
        let least = self.limits()?.into_iter().min_by_key(|limit| limit.bytes);
        Ok(least.unwrap_or(Limit { bytes: ByteSize::MAX, file: None }))
    }

    /// Returns the limits of the group and of its visible ancestors, the group's own first: for
    /// each group with limits, the smallest. In v2 `memory.high` counts as a limit, because a group
    /// above it is throttled until it makes hardly any progress. Reads O(depth) files.
    ///
    /// # Errors
    ///
    /// The errors of [`limit`](Self::limit).
    pub fn limits(&self) -> Result<Vec<Limit>, CgroupError> {
        let names: &[&str] = match self.version() {
            Version::V1 => &["memory.limit_in_bytes"],
            Version::V2 => &["memory.max", "memory.high"],
        };
        let mut limits = Vec::new();
        for directory in self.place.upwards() {
            let mut least = Limit { bytes: ByteSize::MAX, file: None };
            for name in names {
                let file = path(directory).join(name);
                let Some(text) = optional(&file).or_else(|error| self.ignored(&file, error))? else { continue };
                let bytes = parse_limit_of(name, &text).map_err(|error| malformed(&file, error))?;
                if bytes < least.bytes {
                    least = Limit { bytes, file: Some(file) };
                }
            }
            limits.extend(least.file.is_some().then_some(least));
        }
        Ok(limits)
    }

    /// Returns the usage that the kernel cannot reclaim without swap: all charged memory, less the
    /// page cache of files and, in v2, reclaimable slab (v1 does not report it). Shared memory and
    /// locked pages count as used. `None` if the kernel does not report the usage.
    ///
    /// # Errors
    ///
    /// [`CgroupError`], which names the unreadable or malformed file.
    pub fn usage(&self) -> Result<Option<ByteSize>, CgroupError> {
        self.usage_in(self.directory())
    }

    /// Returns the [usage](Self::usage) that counts against a limit: that of the group that has the
    /// limit, with all descendants of that group. `None` if there is no limit, or the kernel does
    /// not report the usage.
    ///
    /// # Errors
    ///
    /// The errors of [`usage`](Self::usage).
    pub fn usage_under(&self, limit: &Limit) -> Result<Option<ByteSize>, CgroupError> {
        limit.directory().map_or(Ok(None), |directory| self.usage_in(directory))
    }

    fn usage_in(&self, directory: &Path) -> Result<Option<ByteSize>, CgroupError> {
        let name = match self.version() {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        let file = directory.join(name);
        let Some(text) = optional(&file)? else { return Ok(None) };
        let charged = number(name, text.trim_ascii()).map_err(|error| malformed(&file, error))?;
        let file = directory.join("memory.stat");
        let stat = optional(&file)?.map(|text| Stat::parse(&text).map_err(|error| malformed(&file, error)));
        let droppable = stat.transpose()?.unwrap_or_default().droppable();
        Ok(Some(ByteSize::new(charged).saturating_sub(droppable)))
    }

    /// Returns how often the group met its limits; `None` where the kernel does not report it (v1,
    /// the root).
    ///
    /// # Errors
    ///
    /// [`CgroupError`], which names the unreadable or malformed file.
    pub fn events(&self) -> Result<Option<Events>, CgroupError> {
        let file = self.directory().join("memory.events");
        optional(&file)?.map(|text| Events::parse(&text).map_err(|error| malformed(&file, error))).transpose()
    }

    /// Returns the path of the group's PSI file. Only v2 has one; the file may be missing.
    pub fn pressure_file(&self) -> PathBuf {
        self.directory().join("memory.pressure")
    }
}

/// Returns a directory of a [`CgroupPath`] as a path. These directories have no trailing slash, so
/// the file system's root is the empty string.
fn path(directory: &str) -> &Path {
    Path::new(if directory.is_empty() { "/" } else { directory })
}

fn directory_must_be_there(directory: &Path) -> Result<(), CgroupError> {
    fs::metadata(directory).map(drop).map_err(|error| CgroupError::Read { file: directory.into(), error })
}

/// Reads a file that may be missing.
fn optional(file: &Path) -> Result<Option<String>, CgroupError> {
    match fs::read(file) {
        // A group's name may be any bytes, and must not make the other lines unreadable. See the
        // module for names that are not UTF-8.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).to_string())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CgroupError::Read { file: file.into(), error }),
    }
}

/// The error for a mount that shows the group of the process at an unknown place.
fn from_above(mount: &Mount) -> CgroupError {
    let text = "it is mounted from above this process's cgroup namespace, and its path to the process is not known";
    let error = io::Error::new(ErrorKind::Unsupported, std::format!("{text} ({})", mount.root));
    CgroupError::Read { file: PathBuf::from(&mount.point), error }
}

fn malformed(file: &Path, error: TextError) -> CgroupError {
    CgroupError::Malformed { file: file.into(), error }
}
