//! Reading a group's files.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use lowwater_lru_core::ByteSize;
use thiserror::Error;

use super::{parse_limit_of, CgroupPath, Events, Membership, Mount, Stat, Version};
use crate::text::{number, TextError};

/// A control group, to be asked about its memory.
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
    place: CgroupPath,
}

/// A limit of a group or of one above it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// How much; [`ByteSize::MAX`] without any limit.
    pub bytes: ByteSize,
    /// The file that says so; none without any limit.
    pub file: Option<PathBuf>,
}

impl Limit {
    /// The group that has it; none without any limit.
    pub fn directory(&self) -> Option<&Path> {
        self.file.as_deref().and_then(Path::parent)
    }

    /// That the group that has it can still be seen.
    pub(crate) fn group_must_be_there(&self) -> Result<(), CgroupError> {
        let Some(directory) = self.directory() else { return Ok(()) };
        fs::metadata(directory).map(drop).map_err(|source| CgroupError::Read { file: directory.into(), source })
    }
}

/// A group's file cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CgroupError {
    /// The file cannot be read.
    #[error("{} cannot be read: {source}; mount /proc and /sys/fs/cgroup, or give the budget by hand", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file does not say what it should.
    #[error("{}: {source}; this is not a control group's file: give the budget by hand", .file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The field, and what is wrong with it.
        source: TextError,
    },
}

impl Cgroup {
    /// The group of this process that has the memory controller: v1's if there is one, v2's otherwise. None if it is in none
    /// that can be seen.
    ///
    /// # Errors
    ///
    /// [`CgroupError`] if `/proc` says something that is not understood. That it is not mounted is no error.
    pub fn own() -> Result<Option<Self>, CgroupError> {
        Self::find(Path::new("/proc/self"), &[Version::V1, Version::V2])
    }

    /// The group of this process in the unified hierarchy, whether it has the memory controller or not: it tells stalls in
    /// any case.
    ///
    /// # Errors
    ///
    /// As for [`own`](Self::own).
    pub fn own_unified() -> Result<Option<Self>, CgroupError> {
        Self::find(Path::new("/proc/self"), &[Version::V2])
    }

    /// The group that lies in this directory. Its visible path ends at `top`, which is a directory above it, or itself.
    pub fn at(version: Version, top: &Path, directory: &Path) -> Self {
        let mount = Mount { version, root: String::from("/"), point: top.to_string_lossy().into_owned() };
        let below = directory.strip_prefix(top).unwrap_or(Path::new(""));
        let path = std::format!("/{}", below.to_string_lossy());
        let membership = Membership { v2: Some(path.clone()), v1_memory: Some(path) };
        let place = CgroupPath::find(&membership, core::slice::from_ref(&mount), version)
            .expect("a path below the only mount has a place");
        Self { place }
    }

    fn find(process: &Path, versions: &[Version]) -> Result<Option<Self>, CgroupError> {
        let (groups, mounts) = (process.join("cgroup"), process.join("mountinfo"));
        let (Some(membership), Some(mounted)) = (optional(&groups)?, optional(&mounts)?) else { return Ok(None) };
        let membership = Membership::parse(&membership).map_err(|source| malformed(&groups, source))?;
        let mounted = Mount::parse_all(&mounted).map_err(|source| malformed(&mounts, source))?;
        let place = versions.iter().find_map(|version| CgroupPath::find(&membership, &mounted, *version));
        Ok(place.map(|place| Self { place }))
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.place.version()
    }

    /// Where its files are.
    pub fn directory(&self) -> &Path {
        path(self.place.directory())
    }

    /// Is it the topmost group that can be seen?
    pub fn is_top(&self) -> bool {
        self.place.directory() == self.place.top()
    }

    /// The effective limit: the smallest of [`limits`](Self::limits).
    ///
    /// # Errors
    ///
    /// [`CgroupError`] names the file that cannot be read or understood. A missing file is no limit.
    pub fn limit(&self) -> Result<Limit, CgroupError> {
        let least = self.limits()?.into_iter().min_by_key(|limit| limit.bytes);
        Ok(least.unwrap_or(Limit { bytes: ByteSize::MAX, file: None }))
    }

    /// The limits on the path, its own first: of each group that has one, the smallest. In v2 a `high` counts as a limit, since
    /// above it the group is slowed down until it is as good as dead. O(depth) files.
    ///
    /// # Errors
    ///
    /// As for [`limit`](Self::limit).
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
                let Some(text) = optional(&file)? else { continue };
                let bytes = parse_limit_of(name, &text).map_err(|source| malformed(&file, source))?;
                if bytes < least.bytes {
                    least = Limit { bytes, file: Some(file) };
                }
            }
            limits.extend(least.file.is_some().then_some(least));
        }
        Ok(limits)
    }

    /// Usage that the kernel cannot take back by itself: all that is charged, less files in the page cache and the kernel's
    /// own caches. None where the kernel does not count.
    ///
    /// # Errors
    ///
    /// [`CgroupError`] names the file that cannot be read or understood.
    pub fn usage(&self) -> Result<Option<ByteSize>, CgroupError> {
        self.usage_in(self.directory())
    }

    /// Usage that counts against a limit: the usage of the group that has it, others in it included. None without a limit, and where
    /// the kernel does not count.
    ///
    /// # Errors
    ///
    /// As for [`usage`](Self::usage).
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
        let charged = number(name, text.trim_ascii()).map_err(|source| malformed(&file, source))?;
        let file = directory.join("memory.stat");
        let stat = optional(&file)?.map(|text| Stat::parse(&text).map_err(|source| malformed(&file, source)));
        let droppable = stat.transpose()?.unwrap_or_default().droppable();
        Ok(Some(ByteSize::new(charged).saturating_sub(droppable)))
    }

    /// How often it met its limits; none where the kernel does not say (v1, the root).
    ///
    /// # Errors
    ///
    /// [`CgroupError`] names the file that cannot be read or understood.
    pub fn events(&self) -> Result<Option<Events>, CgroupError> {
        let file = self.directory().join("memory.events");
        optional(&file)?.map(|text| Events::parse(&text).map_err(|source| malformed(&file, source))).transpose()
    }

    /// Where its stalls are told, in v2.
    pub fn pressure_file(&self) -> PathBuf {
        self.directory().join("memory.pressure")
    }
}

/// A [`CgroupPath`]'s directory, which has no slash at its end.
fn path(directory: &str) -> &Path {
    Path::new(if directory.is_empty() { "/" } else { directory })
}

/// Reads a file that need not be there.
fn optional(file: &Path) -> Result<Option<String>, CgroupError> {
    match fs::read(file) {
        // A group's name may be anything; what is looked for is ASCII.
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).to_string())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(CgroupError::Read { file: file.into(), source }),
    }
}

fn malformed(file: &Path, source: TextError) -> CgroupError {
    CgroupError::Malformed { file: file.into(), source }
}
